//! statfs: space, from all targets at once.

use super::Admin;
use super::recent_space::Answer;
use crate::BoxFutureOf;
use crate::session::Target;
use crate::stats::Verb;
use crate::{Call, Fs, FsSpace, R, TargetState};
use model::{Attr, Errno, TargetId, TargetKind};
use rpc::ImportState;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::msg::statfs::{Statfs, StatfsReply};
use world::BoxFuture;
use world::future::join_all;

/// How long one target may take to answer `lfs df`.
const PATIENCE: Duration = Duration::from_secs(1);
/// And statfs(2) with `lazystatfs`: before the second is over, what is known is told.
const LAZY_PATIENCE: Duration = Duration::from_millis(700);
/// Pause before all are asked again when one has to answer that did not.
const AGAIN: Duration = Duration::from_millis(200);

impl Fs {
    /// The file system's space: bytes of the object targets, inodes of the metadata targets, as they were at
    /// most `statfs_max_age` ago. With `lazystatfs` it comes within a second, and of a target that does not
    /// answer what it said last counts; otherwise it waits until every active target answers.
    pub fn statfs(self: Arc<Self>) -> BoxFuture<R<FsSpace>> {
        Box::pin(async move {
            let work = async {
                let asked = self.cx.world.now();
                if let Some(space) = self.recent_space.get(asked) {
                    return Ok(space);
                }
                let is_missed = |(t, r): &Answer| r.is_err() && t.is_active();
                let answers = loop {
                    let lazy = self.is_lazystatfs();
                    let a = self.ask_space(if lazy { LAZY_PATIENCE } else { PATIENCE }).await;
                    if lazy || self.cx.is_closed() || !a.iter().any(is_missed) {
                        break a;
                    }
                    self.cx.world.sleep(AGAIN).await;
                };
                let sum = total(self.recent_space.learn(&answers));
                // With a target missing the sum is wrong enough to ask again.
                if answers.iter().all(|(_, r)| r.is_ok()) {
                    self.recent_space.set(asked, &sum);
                }
                Ok(sum)
            };
            self.run(Verb::Statfs, work).await
        })
    }

    /// As [`Fs::getattr`] of the mount's root, for the kernel. Whatever lists mounts (df(1), for one) looks
    /// at their roots first: with `lazystatfs` and without a session to the metadata server the root is shown
    /// as it was last. What is below it waits all the same.
    pub fn getattr_root(self: Arc<Self>, call: Call) -> BoxFuture<R<Attr>> {
        Box::pin(async move {
            let fid = self.root();
            let keep = |a: &Attr| {
                *self.recent_space.root.lock() = Some(a.clone());
            };
            if !self.is_lazystatfs() {
                return self.clone().getattr(call, fid).await;
            }
            let mut asked = std::pin::pin!(self.clone().getattr(call, fid));
            loop {
                if let Some(r) = self.cx.world.timeout(LAZY_PATIENCE, asked.as_mut()).await {
                    return r.inspect(keep);
                }
                let mdt = self.lmv.known_target(TargetId::mdt(self.meta.locate.mdt_of(fid)));
                let away = mdt.is_none_or(|t| !matches!(t.import.state(), ImportState::Full));
                let known = self.recent_space.root.lock().clone();
                if let Some(a) = known.filter(|_| away) {
                    return Ok(a);
                }
            }
        })
    }

    async fn ask_space(self: &Arc<Self>, patience: Duration) -> Vec<Answer> {
        let all = self.lmv.all_targets();
        let asked = all
            .iter()
            .map(|t| {
                let ask = async move {
                    let reply = t.call(self.cx.own(), Statfs { flags: 0 });
                    self.cx.world.timeout(patience, reply).await.unwrap_or(Err(Errno::ETIMEDOUT))
                };
                Box::pin(ask) as BoxFutureOf<'_, R<StatfsReply>>
            })
            .collect();
        let answers = join_all(asked).await;
        all.into_iter().zip(answers).collect()
    }
}

impl Admin<'_> {
    /// Space of each target and the bits of [`StatfsReply::state`]; an unreachable one gives its errno. Never
    /// waits longer than a second.
    pub fn df(self) -> BoxFuture<Vec<(TargetState, R<FsSpace>, u32)>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let states = Admin(&fs).targets();
            let answers = fs.ask_space(PATIENCE).await;
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
        })
    }
}

/// Bytes of the disks that object targets lie on, each once, however many of them share it; inodes of the
/// metadata targets, lowered to what the object targets still can hold. As `lfs df` sums up.
fn total(said: Vec<(TargetId, StatfsReply, u64)>) -> FsSpace {
    let mut sum = FsSpace::default();
    let mut disks: BTreeMap<u64, FsSpace> = BTreeMap::new();
    for (id, s, disk) in said {
        if id.kind == TargetKind::Ost {
            // What is not known to be shared is not.
            let of = if disk == 0 { u64::MAX - u64::from(id.index) } else { disk };
            let d = disks.entry(of).or_default();
            d.total = d.total.max(s.total);
            d.free = d.free.max(s.free);
            d.available = d.available.max(s.available);
            d.files = d.files.max(s.files);
            d.files_free = d.files_free.max(s.files_free);
        } else {
            sum.files = sum.files.saturating_add(s.files);
            sum.files_free = sum.files_free.saturating_add(s.files_free);
        }
    }
    let objects = disks.values().fold(0u64, |sum, d| sum.saturating_add(d.files));
    let free = disks.values().fold(0u64, |sum, d| sum.saturating_add(d.files_free));
    // Hosts that make inodes as they go report none at all.
    if objects > 0 && free < sum.files_free {
        sum.files = sum.files.saturating_sub(sum.files_free - free);
        sum.files_free = free;
    }
    for d in disks.values() {
        sum.total = sum.total.saturating_add(d.total);
        sum.free = sum.free.saturating_add(d.free);
        sum.available = sum.available.saturating_add(d.available);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_counts_once_however_many_targets_share_it() {
        let s = |total: u64, available: u64| StatfsReply {
            total,
            free: available,
            available,
            ..StatfsReply::default()
        };
        let sum = total(vec![
            (TargetId::ost(0), s(100, 50), 7),
            (TargetId::ost(1), s(100, 49), 7),
            (TargetId::ost(2), s(30, 20), 8),
            (TargetId::ost(3), s(1000, 500), 0),
            (TargetId::ost(4), s(1000, 500), 0),
            (TargetId::mdt(0), StatfsReply { files: 9, ..s(100, 50) }, 7),
        ]);
        assert_eq!((sum.total, sum.available, sum.files), (2130, 1070, 9));
        let f = |files, files_free| StatfsReply { files, files_free, ..s(100, 50) };
        let sum = total(vec![
            (TargetId::ost(0), f(50, 10), 7),
            (TargetId::ost(1), f(50, 10), 7),
            (TargetId::ost(2), f(50, 5), 8),
            (TargetId::mdt(0), f(100, 40), 9),
        ]);
        assert_eq!((sum.files, sum.files_free), (75, 15), "as many more as there is room for objects");
    }
}
