//! What statfs(2) was answered last, for as long as that is good.

use crate::session::Target;
use crate::{FsSpace, R};
use model::mutex::Mutex;
use model::{Attr, TargetId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use wire::msg::statfs::StatfsReply;
use world::Instant;

/// A target, and what it said of its space.
pub(super) type Answer = (Arc<Target>, R<StatfsReply>);

/// What the last answers to statfs(2) were.
pub(crate) struct RecentSpace {
    /// Seconds; 0: the servers are always asked.
    pub max_age_s: AtomicU64,
    /// Told within a second, whoever answers.
    pub lazy: AtomicBool,
    /// The last sum is good for a while: programs ask in a loop.
    last: Mutex<Option<(Instant, FsSpace)>>,
    /// The last that each target said, and the disk that it lies on, for when it does not answer.
    said: Mutex<BTreeMap<TargetId, (StatfsReply, u64)>>,
    /// The root as it was when the kernel asked for it last.
    pub root: Mutex<Option<Attr>>,
}

impl Default for RecentSpace {
    fn default() -> RecentSpace {
        RecentSpace {
            max_age_s: AtomicU64::new(RecentSpace::MAX_AGE_DEFAULT_S),
            lazy: AtomicBool::new(true),
            last: Mutex::default(),
            said: Mutex::default(),
            root: Mutex::default(),
        }
    }
}

impl RecentSpace {
    /// `statfs_max_age`, seconds, as Lustre has it.
    pub(crate) const MAX_AGE_DEFAULT_S: u64 = 1;

    pub(super) fn get(&self, now: Instant) -> Option<FsSpace> {
        let max = Duration::from_secs(self.max_age_s.load(Relaxed));
        let last = self.last.lock();
        last.as_ref().filter(|(asked, _)| now.since(*asked) < max).map(|(_, space)| *space)
    }

    pub(super) fn set(&self, asked: Instant, space: &FsSpace) {
        *self.last.lock() = Some((asked, *space));
    }

    /// What each target said now, or else when it last said something.
    pub(super) fn learn(&self, answers: &[Answer]) -> Vec<(TargetId, StatfsReply, u64)> {
        let mut said = self.said.lock();
        said.extend(answers.iter().filter_map(|(t, r)| Some((t.id, (*r.as_ref().ok()?, t.import.disk())))));
        // A target that left the file system takes its space along.
        said.retain(|id, _| answers.iter().any(|(t, _)| t.id == *id));
        said.iter().map(|(id, (s, disk))| (*id, *s, *disk)).collect()
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
