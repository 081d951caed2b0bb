//! Opens that were denied, for who watches for them: the same user's of the same file is told once in a
//! while, not each time.

use model::mutex::Mutex;
use model::{Fid, Timestamp};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `changelog_deniednext`.
pub const DENIED_NEXT_DEFAULT_S: u64 = 60;
/// Users with files that are remembered; with more of them some are told of again.
const REMEMBERED_MAX: usize = 4096;

pub struct DeniedOpens {
    pub next_s: AtomicU64,
    told: Mutex<BTreeMap<(u32, Fid), i64>>,
}

impl Default for DeniedOpens {
    fn default() -> DeniedOpens {
        DeniedOpens { next_s: AtomicU64::new(DENIED_NEXT_DEFAULT_S), told: Mutex::default() }
    }
}

impl DeniedOpens {
    /// Whether this one is told of.
    pub fn is_new(&self, uid: u32, fid: Fid, now: Timestamp) -> bool {
        let next = i64::try_from(self.next_s.load(Relaxed)).unwrap_or(i64::MAX);
        let mut told = self.told.lock();
        let before = told.get(&(uid, fid));
        if before.is_some_and(|t| now.sec >= *t && now.sec.saturating_sub(*t) < next) {
            return false;
        }
        if told.len() >= REMEMBERED_MAX {
            told.clear();
        }
        told.insert((uid, fid), now.sec);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_tries_again_is_told_of_once_a_minute() {
        let d = DeniedOpens::default();
        let at = |sec| Timestamp { sec, nsec: 0 };
        let (f, g) = (Fid::new(9, 1, 0), Fid::new(9, 2, 0));
        assert!(d.is_new(5, f, at(100)));
        assert!(!d.is_new(5, f, at(159)));
        assert!(d.is_new(6, f, at(159)) && d.is_new(5, g, at(159)));
        assert!(d.is_new(5, f, at(160)));
        assert!(d.is_new(5, f, at(50)), "a clock that was set back hides nothing");
    }
}
