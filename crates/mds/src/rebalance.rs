//! What the target does in the background to keep OSTs evenly full, as it is set and shown. What does it is
//! `relayout/rebalance.rs`.

use model::Timestamp;
use model::mutex::{Mutex, MutexGuard};
use std::fmt::Write;
use world::sync::watch;

/// `rebalance_threshold` unless set otherwise, percent: OSTs that differ by less serve their files as well.
pub const THRESHOLD_DEFAULT: u64 = 20;
/// Largest `rebalance_threshold`, percent.
pub const THRESHOLD_MAX: u64 = 99;

/// What is going on in the background.
pub struct Rebalance {
    /// `rebalance_threshold`, percent; 0: off.
    threshold: watch::Sender<u64>,
    tally: Mutex<Tally>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum State {
    #[default]
    Off,
    /// The OSTs do not differ by more than is allowed.
    Even,
    Moving,
    /// For OSTs to destroy what was moved away from them.
    Settling,
    /// They differ, and no file may go that would change it.
    Stuck,
}

/// Since the start of the target.
#[derive(Default)]
pub struct Tally {
    pub state: State,
    since: Timestamp,
    /// Hundredths of a percent, at the last look or as it will be.
    spread: u64,
    pub moved: u64,
    pub bytes: u64,
    /// Files that were used while they were copied.
    pub used: u64,
    /// Files that somebody bound to their OSTs.
    pub bound: u64,
    pub failed: u64,
}

impl Default for Rebalance {
    fn default() -> Rebalance {
        Rebalance { threshold: watch::Sender::new(THRESHOLD_DEFAULT), tally: Mutex::default() }
    }
}

impl Rebalance {
    pub fn threshold(&self) -> u64 {
        *self.threshold.borrow()
    }

    pub fn set_threshold(&self, percent: u64) {
        assert!(percent <= THRESHOLD_MAX, "a parameter's value is within its bounds");
        self.threshold.send_if_modified(|old| std::mem::replace(old, percent) != percent);
    }

    /// Woken with each change of the threshold from now on.
    pub fn settings(&self) -> watch::Receiver<u64> {
        self.threshold.subscribe()
    }

    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock()
    }

    /// It is so from now on, and the OSTs differ by so many hundredths of a percent.
    pub fn show(&self, state: State, now: Timestamp, spread: u64) {
        let mut t = self.tally.lock();
        if t.state != state || t.since == Timestamp::ZERO {
            (t.state, t.since) = (state, now);
        }
        t.spread = spread;
    }

    /// `mdt.*.rebalance`: what is going on, a line each. `rate`: bytes that may be copied in a second now.
    pub fn text(&self, rate: u64) -> String {
        let (t, mut out) = (self.tally.lock(), String::new());
        let state = format!("{:?}", t.state).to_lowercase();
        let spread = format!("{}.{:02}", t.spread / 100, t.spread % 100);
        for (name, v) in [
            ("state", state),
            ("since", t.since.sec.to_string()),
            ("threshold", self.threshold().to_string()),
            ("spread", spread),
            ("files_moved", t.moved.to_string()),
            ("bytes_moved", t.bytes.to_string()),
            ("files_in_use", t.used.to_string()),
            ("files_bound", t.bound.to_string()),
            ("files_failed", t.failed.to_string()),
            ("bytes_per_second_max", rate.to_string()),
        ] {
            let _ = writeln!(out, "{name}: {v}");
        }
        out
    }
}
