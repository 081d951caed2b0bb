//! Supplementary groups of callers. FUSE does not tell them, and a look into /proc is dear (`world::host`),
//! so those of a thread are remembered for a moment.
//!
//! The kernel checks each permission itself, with the groups that the caller has (`default_permissions`): who
//! has left a group meanwhile is refused there. Who has come into one could be refused by a server that is
//! told the old ones, so whoever is refused is looked at again (`ops::start`).

use model::Map;
use model::mutex::Mutex;
use std::time::Duration;
use world::Instant;

/// How long groups are remembered.
const LIFE: Duration = Duration::from_secs(1);
/// Threads of which they are remembered: all are forgotten when there are more.
const THREADS_MAX: usize = 1024;

/// Who acts: thread, user, group.
type Caller = (u32, u32, u32);

/// The callers of one mount.
#[derive(Default)]
pub struct Groups {
    remembered: Mutex<Map<Caller, (Vec<u32>, Instant)>>,
}

impl Groups {
    /// What was remembered a moment ago.
    pub fn remembered(&self, caller: Caller, now: Instant) -> Option<Vec<u32>> {
        let t = self.remembered.lock();
        let (groups, since) = t.get(&caller)?;
        (now.since(*since) < LIFE).then(|| groups.clone())
    }

    /// What a look at the caller told.
    pub fn remember(&self, caller: Caller, groups: &[u32], now: Instant) {
        let mut t = self.remembered.lock();
        if t.len() >= THREADS_MAX && !t.contains_key(&caller) {
            t.clear();
        }
        t.insert(caller, (groups.to_vec(), now));
        assert!(t.len() <= THREADS_MAX, "what is remembered is bounded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_of_one_caller_and_of_a_moment() {
        let (g, t0) = (Groups::default(), Instant::default());
        assert_eq!(g.remembered((1, 2, 3), t0), None);
        g.remember((1, 2, 3), &[4, 5], t0);
        assert_eq!(g.remembered((1, 2, 3), t0), Some(vec![4, 5]));
        for other in [(9, 2, 3), (1, 9, 3), (1, 2, 9)] {
            assert_eq!(g.remembered(other, t0), None, "{other:?}");
        }
        assert_eq!(g.remembered((1, 2, 3), t0.plus(LIFE)), None);
        g.remember((1, 2, 3), &[], t0.plus(LIFE));
        assert_eq!(g.remembered((1, 2, 3), t0.plus(LIFE)), Some(Vec::new()));
    }

    #[test]
    fn threads_beyond_the_bound_are_asked_again() {
        let (g, now) = (Groups::default(), Instant::default());
        for tid in 0..3 * THREADS_MAX as u32 {
            g.remember((tid, 0, 0), &[1], now);
            assert_eq!(g.remembered((tid, 0, 0), now), Some(vec![1]));
        }
        assert!(g.remembered.lock().len() <= THREADS_MAX);
    }
}
