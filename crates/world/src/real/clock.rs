//! The host's clocks.
//!
//! Points in time are those of CLOCK_BOOTTIME, which runs while the host is suspended: leases, heartbeats and
//! what a client believes end in time. Timers go by CLOCK_MONOTONIC, which does not, so a sleep lasts at
//! least as long as it should by either: whoever slept and then looks at the clock finds no less than it
//! waited for.

use super::Entered;
use crate::jumps::Jumps;
use crate::{BoxFuture, Clock, Instant};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::runtime::Handle;

/// With `NACRE_STOPPED_CLOCKS=1`: nobody asked for the time for so long, so the process was stopped.
const STOPPED_NS: u64 = 4_000_000_000;

pub(super) struct RealClock {
    handle: Handle,
    start: u64,
    jumps: Jumps,
    stopped: Option<Stopped>,
}

/// For tests: a clock that stands still while the process is stopped, as those of a virtual machine do while
/// it is paused.
#[derive(Default)]
struct Stopped {
    asked: AtomicU64,
    lost: AtomicU64,
}

fn read(id: ClockId) -> i64 {
    let t = clock_gettime(id);
    t.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec)
}

/// Nanoseconds of a clock that begins at 0 and goes forward.
pub(crate) fn nanos(id: ClockId) -> u64 {
    u64::try_from(read(id)).unwrap_or(0)
}

fn since_boot() -> u64 {
    nanos(ClockId::Boottime)
}

/// As it was at the last tick, some milliseconds ago: that costs a fifth of the exact time.
fn wall_coarse() -> i64 {
    read(ClockId::RealtimeCoarse)
}

impl Stopped {
    fn at(&self, now: u64) -> u64 {
        let before = self.asked.fetch_max(now, Relaxed);
        if before > 0 && now.saturating_sub(before) > STOPPED_NS {
            self.lost.fetch_add(now - before, Relaxed);
        }
        now.saturating_sub(self.lost.load(Relaxed))
    }
}

impl RealClock {
    pub(super) fn new(handle: Handle) -> RealClock {
        let wanted = std::env::var_os("NACRE_STOPPED_CLOCKS").is_some_and(|v| v == "1");
        if wanted {
            tracing::warn!("NACRE_STOPPED_CLOCKS=1: time stands still while this process is stopped");
        }
        let start = since_boot();
        RealClock {
            handle,
            start,
            jumps: Jumps::new(Instant(0), wall_coarse()),
            stopped: wanted.then(Stopped::default),
        }
    }
}

#[allow(clippy::disallowed_methods)] // the production side of the boundary
impl Clock for RealClock {
    fn now(&self) -> Instant {
        let now = since_boot().saturating_sub(self.start);
        Instant(self.stopped.as_ref().map_or(now, |s| s.at(now)))
    }

    fn wall(&self) -> model::Timestamp {
        match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(d) => model::Timestamp { sec: d.as_secs() as i64, nsec: d.subsec_nanos() },
            Err(e) => {
                let d = e.duration();
                model::Timestamp::from_nanos(-(d.as_nanos() as i128))
            }
        }
    }

    fn jumped(&self) -> Instant {
        self.jumps.last(|| (self.now(), wall_coarse()))
    }

    fn sleep(&self, d: Duration) -> BoxFuture<()> {
        let handle = self.handle.clone();
        // The deadline counts from the call, not from the first poll.
        let until = tokio::time::Instant::now() + d.min(Duration::from_secs(86_400 * 365));
        Box::pin(Entered::new(handle, async move { tokio::time::sleep_until(until).await }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Durations since boot include those of a suspended host: the two clocks differ by what it slept, and
    /// never the other way round.
    #[test]
    fn points_in_time_are_of_the_clock_that_runs_while_the_host_sleeps() {
        let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clock = RealClock::new(rt.handle().clone());
        let (before, now, after) = (since_boot(), clock.now().0 + clock.start, since_boot());
        assert!(before <= now && now <= after, "{before} {now} {after}");
        assert!(read(ClockId::Monotonic) as u64 <= since_boot());
        assert_eq!(clock.jumped(), Instant(0));
    }

    #[test]
    fn a_stopped_process_loses_the_time() {
        let s = Stopped::default();
        let sec = 1_000_000_000;
        assert_eq!(
            [s.at(sec), s.at(2 * sec), s.at(62 * sec), s.at(63 * sec)],
            [sec, 2 * sec, 2 * sec, 3 * sec]
        );
    }
}
