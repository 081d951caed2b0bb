//! statfs: space, from all targets at once.

use super::glimpse::BoxFutureOf;
use crate::stats::Verb;
use crate::targets::Target;
use crate::{Fs, FsSpace, R, TargetState};
use model::{Errno, TargetKind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::msg::statfs::{Statfs, StatfsReply};
use world::Instant;
use world::future::join_all;

/// How long one target may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause before all are asked again when none answered.
const AGAIN: Duration = Duration::from_millis(200);

/// `statfs_max_age`, seconds, as Lustre has it.
const MAX_AGE_DEFAULT_S: u64 = 1;

/// What the last answer to statfs(2) was, which is good for a while: programs ask in a loop.
pub(crate) struct RecentSpace {
    /// Seconds; 0: the servers are always asked.
    pub max_age_s: AtomicU64,
    last: Mutex<Option<(Instant, FsSpace)>>,
}

impl Default for RecentSpace {
    fn default() -> RecentSpace {
        RecentSpace { max_age_s: AtomicU64::new(MAX_AGE_DEFAULT_S), last: Mutex::default() }
    }
}

impl RecentSpace {
    fn get(&self, now: Instant) -> Option<FsSpace> {
        let max = Duration::from_secs(self.max_age_s.load(Relaxed));
        let last = self.last.lock().expect("no panic while locked");
        last.as_ref().filter(|(asked, _)| now.since(*asked) < max).map(|(_, space)| *space)
    }

    fn set(&self, asked: Instant, space: &FsSpace) {
        *self.last.lock().expect("no panic while locked") = Some((asked, *space));
    }
}

impl Fs {
    /// The file system's space: bytes of the object targets that answer within a second, inodes of the metadata
    /// targets, as they were at most `statfs_max_age` ago. Waits while no server is there.
    pub async fn statfs(self: Arc<Self>) -> R<FsSpace> {
        let work = async {
            let asked = self.world.now();
            if let Some(space) = self.recent_space.get(asked) {
                return Ok(space);
            }
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
            if answers.iter().all(|(_, r)| r.is_err()) {
                return Err(Errno::EIO);
            }
            // With a target missing the sum is wrong enough to ask again.
            if answers.iter().all(|(_, r)| r.is_ok()) {
                self.recent_space.set(asked, &sum);
            }
            Ok(sum)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_good_for_as_long_as_is_set() {
        let at = |ms: u64| Instant(ms * 1_000_000);
        let r = RecentSpace::default();
        assert!(r.get(at(0)).is_none());
        r.set(at(500), &FsSpace { free: 7, ..FsSpace::default() });
        assert_eq!(r.get(at(1499)).map(|s| s.free), Some(7));
        assert!(r.get(at(1500)).is_none(), "a second after it was asked for");
        r.max_age_s.store(60, Relaxed);
        assert_eq!(r.get(at(60_499)).map(|s| s.free), Some(7));
        r.max_age_s.store(0, Relaxed);
        assert!(r.get(at(500)).is_none());
    }
}
