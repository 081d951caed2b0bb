//! statfs: space, from all targets at once.

use super::glimpse::BoxFutureOf;
use crate::stats::Verb;
use crate::targets::Target;
use crate::{Fs, FsSpace, R, TargetState};
use model::{Errno, TargetKind};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::statfs::{Statfs, StatfsReply};
use world::future::join_all;

/// How long one target may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause before all are asked again when none answered.
const AGAIN: Duration = Duration::from_millis(200);

impl Fs {
    /// The file system's space: bytes of the object targets that answer within a second, inodes of the metadata
    /// targets. Waits while no server is there.
    pub async fn statfs(self: Arc<Self>) -> R<FsSpace> {
        let work = async {
            // With every server away it waits like any other call.
            let answers = loop {
                let a = self.ask_space().await;
                if self.is_closed() || a.iter().any(|(_, r)| r.is_ok()) {
                    break a;
                }
                self.world.sleep(AGAIN).await;
            };
            let mut sum = FsSpace::default();
            for (t, r) in &answers {
                let Ok(s) = r else { continue };
                if t.id.kind == TargetKind::Ost {
                    sum.total = sum.total.saturating_add(s.total);
                    sum.free = sum.free.saturating_add(s.free);
                    sum.available = sum.available.saturating_add(s.available);
                } else {
                    sum.files = sum.files.saturating_add(s.files);
                    sum.files_free = sum.files_free.saturating_add(s.files_free);
                }
            }
            if answers.iter().all(|(_, r)| r.is_err()) { Err(Errno::EIO) } else { Ok(sum) }
        };
        self.run(Verb::Statfs, work).await
    }

    /// Space of each target and the bits of [`StatfsReply::state`]; an unreachable one gives its errno. Never waits
    /// longer than a second.
    pub async fn df(self: Arc<Self>) -> Vec<(TargetState, R<FsSpace>, u32)> {
        let states = self.targets();
        let answers = self.ask_space().await;
        let of = |t: &Target| states.iter().find(|s| s.target == t.id).cloned();
        let row = |(t, r): (Arc<Target>, R<StatfsReply>)| {
            let bits = r.map_or(0, |s| s.state);
            let space = r.map(|s| FsSpace {
                total: s.total,
                free: s.free,
                available: s.available,
                files: s.files,
                files_free: s.files_free,
            });
            of(&t).map(|state| (state, space, bits))
        };
        answers.into_iter().filter_map(row).collect()
    }

    async fn ask_space(self: &Arc<Self>) -> Vec<(Arc<Target>, R<StatfsReply>)> {
        let all = self.targets.all();
        let asked = all
            .iter()
            .map(|t| {
                let ask = async move {
                    let reply = t.call(self.own_ctx(), Statfs { flags: 0 });
                    self.world.timeout(PATIENCE, reply).await.unwrap_or(Err(Errno::ETIMEDOUT))
                };
                Box::pin(ask) as BoxFutureOf<'_, R<StatfsReply>>
            })
            .collect();
        let answers = join_all(asked).await;
        all.into_iter().zip(answers).collect()
    }
}
