//! How fast the background may copy beside those who use the file system: less than they leave.
//!
//! What a piece of a copy takes says how busy the servers are that it goes through. Twice as long as it took
//! at the best of times of late, and the copy gives way: a quarter of its speed. Else it becomes faster by a
//! little. So it backs off before those who are in a hurry do, as LEDBAT does on a network (RFC 6817).

use model::mutex::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use world::Instant;

/// Bytes a second.
const RATE_MIN: u64 = 2 << 20;
const RATE_MAX: u64 = 2 << 30;
const RATE_FIRST: u64 = 16 << 20;
/// By so much it becomes faster with each piece that was not late.
const FASTER: u64 = 1 << 20;
/// A piece is late that took so many times as long as the fastest, and longer than that by [`LATE_MIN`].
const LATE_FACTOR: u32 = 2;
const LATE_MIN: Duration = Duration::from_millis(3);
/// Between two steps down: pieces that were on their way together say the same.
const DOWN_AGAIN: Duration = Duration::from_millis(100);
/// The fastest piece of so long counts, and of the same time before.
const WINDOW: Duration = Duration::from_secs(120);

/// The speed of everything that copies in the background.
pub struct Yielding {
    rate: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    since: Instant,
    /// The fastest pieces, of this window and the one before.
    fastest: [Option<Duration>; 2],
    down: Instant,
}

impl Default for Yielding {
    fn default() -> Yielding {
        Yielding { rate: AtomicU64::new(RATE_FIRST), seen: Mutex::default() }
    }
}

impl Yielding {
    /// Bytes that may be copied in a second.
    pub fn rate(&self) -> u64 {
        self.rate.load(Relaxed)
    }

    /// A piece is copied, and took so long.
    pub fn took(&self, now: Instant, took: Duration) {
        let mut s = self.seen.lock();
        if now.since(s.since) >= WINDOW {
            s.fastest = [None, s.fastest[0]];
            s.since = now;
        }
        s.fastest[0] = Some(s.fastest[0].map_or(took, |f| f.min(took)));
        let fastest = s.fastest.iter().flatten().min().copied().unwrap_or(took);
        let rate = self.rate.load(Relaxed);
        let next = if took <= (fastest * LATE_FACTOR).max(fastest + LATE_MIN) {
            rate + FASTER
        } else if now.since(s.down) >= DOWN_AGAIN {
            s.down = now;
            rate - rate / 4
        } else {
            rate
        };
        self.rate.store(next.clamp(RATE_MIN, RATE_MAX), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Pieces that each take as `took` says, one after the other; the speed afterwards.
    fn copy(y: &Yielding, now: &mut Instant, n: u32, took: Duration) -> u64 {
        for _ in 0..n {
            *now = now.plus(took);
            y.took(*now, took);
        }
        y.rate()
    }

    #[test]
    fn it_gives_way_when_pieces_take_longer_and_comes_back_when_they_do_not() {
        let (y, mut now) = (Yielding::default(), Instant(1_000_000_000));
        let idle = copy(&y, &mut now, 400, 4 * MS);
        assert!(idle > 300 << 20, "nobody is there: {idle}");
        assert_eq!(copy(&y, &mut now, 20, 7 * MS), idle + 20 * FASTER, "that is no delay to speak of");
        let busy = copy(&y, &mut now, 60, 30 * MS);
        assert!(busy < idle / 20, "others are in a hurry: {busy}");
        assert_eq!(copy(&y, &mut now, 1000, 30 * MS), RATE_MIN, "it goes on, however busy they are");
        assert!(copy(&y, &mut now, 100, 4 * MS) > 50 << 20);
    }

    #[test]
    fn what_was_fast_long_ago_is_forgotten() {
        let (y, mut now) = (Yielding::default(), Instant(1_000_000_000));
        copy(&y, &mut now, 10, MS);
        let slow = copy(&y, &mut now, 100, 20 * MS);
        now = now.plus(WINDOW);
        copy(&y, &mut now, 1, 20 * MS);
        now = now.plus(WINDOW);
        assert!(copy(&y, &mut now, 50, 20 * MS) > slow + 40 * FASTER, "the disks are slower now");
    }

    #[test]
    fn pieces_that_are_late_together_are_one_reason() {
        let (y, now) = (Yielding::default(), Instant(1_000_000_000));
        y.took(now, MS);
        (0..10).for_each(|_| y.took(now, 50 * MS));
        assert_eq!(y.rate(), (RATE_FIRST + FASTER) / 4 * 3);
    }
}
