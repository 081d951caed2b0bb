//! Whether time passed that the clock did not see: a paused virtual machine goes on with the clocks that it
//! had, and then somebody sets the wall clock right.

use crate::Instant;
use model::mutex::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI64, AtomicU64};

/// The two clocks go at the same rate, also while NTP slows or hastens them; a step of the wall clock by less
/// is not looked at. Far below any margin between the terms of two hosts.
pub const STEP_NS: u64 = 500_000_000;

/// Watches the wall clock against the one that terms are measured by.
#[derive(Debug)]
pub struct Jumps {
    /// Nanoseconds from the one to the other when that was last looked at closely.
    apart: AtomicI64,
    /// What [`Jumps::last`] returns.
    last: AtomicU64,
    /// Of several who meet the same jump one counts it.
    counting: Mutex<()>,
}

/// Nanoseconds from `now` to `wall`.
fn apart(now: Instant, wall: i64) -> i64 {
    wall.wrapping_sub_unsigned(now.0)
}

impl Jumps {
    /// `wall`: nanoseconds since 1970.
    pub fn new(now: Instant, wall: i64) -> Jumps {
        Jumps { apart: AtomicI64::new(apart(now, wall)), last: AtomicU64::new(0), counting: Mutex::new(()) }
    }

    /// What was before this point in time may have been longer ago than it seems; zero if no jump was ever
    /// seen. Each jump is found by the first look after it.
    pub fn last(&self, read: impl Fn() -> (Instant, i64)) -> Instant {
        let (now, wall) = read();
        let known = self.apart.load(Acquire);
        if apart(now, wall).abs_diff(known) > STEP_NS {
            let _counting = self.counting.lock();
            let known = self.apart.load(Acquire);
            // Stopped between the two readings, perhaps. A second time in a row would be a jump too many:
            // only a look.
            let (now, wall) = read();
            let new = apart(now, wall);
            if new.abs_diff(known) > STEP_NS {
                // First the jump, so that nobody sees the new distance without it. What was sent in this very
                // nanosecond may have been sent before it.
                self.last.fetch_max(now.0.saturating_add(1), Relaxed);
                self.apart.store(new, Release);
            }
        }
        Instant(self.last.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_seen_once_in_each_direction_and_slow_clocks_are_none() {
        let s = |n: i64| n * 1_000_000_000;
        let t = |n: u64| Instant(n * 1_000_000_000);
        let j = Jumps::new(t(1), s(1_000));
        assert_eq!(j.last(|| (t(2), s(1_001))), Instant(0));
        // Paused for a minute.
        assert_eq!(j.last(|| (t(3), s(1_062))), t(3).plus(std::time::Duration::from_nanos(1)));
        assert_eq!(j.last(|| (t(9), s(1_068))).seconds(), 3);
        // Set back.
        assert_eq!(j.last(|| (t(10), s(1_000))).seconds(), 10);
        assert_eq!(j.last(|| (t(11), s(1_001))).seconds(), 10);
        // Many small steps are one in the end.
        for n in 1..=5 {
            assert_eq!(j.last(|| (t(11), s(1_001) + n * 100_000_000)).seconds(), 10);
        }
        assert_eq!(j.last(|| (t(12), s(1_002) + 600_000_000)).seconds(), 12);
        // Stopped between two readings: the second pair is right.
        let twice = AtomicU64::new(0);
        let late =
            || (t(13), if twice.fetch_add(1, Relaxed) == 0 { s(2_000) } else { s(1_003) + 600_000_000 });
        assert_eq!(j.last(late).seconds(), 12);
    }
}
