//! Why an OST is passed over when objects are given out. Said in the log when it begins, when there is
//! another reason, and when it is over: not each time.

use crate::alloc::{RESERVE_BYTES, STATE_REFUSES};
use crate::osts::{Ost, Osts};
use std::time::Duration;
use world::Instant;

/// Reasons, as bits: the first five are those of [`wire::msg::statfs::StatfsReply::state`].
const DEGRADED: u32 = 1;
const FULL: u32 = 8;
const DEACTIVATED: u32 = 1 << 8;
const UNREACHABLE: u32 = 1 << 9;
const TOLD_NOT_TO: u32 = 1 << 10;
const SLOW: u32 = 1 << 11;

/// Every reason in words.
const WORDS: &[(u32, &str)] = &[
    (2, "read-only"),
    (4, "set to no_create"),
    (FULL, "out of space"),
    (16, "out of inodes"),
    (DEACTIVATED, "deactivated"),
    (UNREACHABLE, "not answering"),
    (TOLD_NOT_TO, "set to max_create_count 0"),
    (DEGRADED, "degraded"),
    (SLOW, "much slower than the others"),
];
/// Those with which it is taken where there are too few others.
const LAST_CHOICE: u32 = DEGRADED | SLOW;

/// Slow is who answers so many times later than half of the others do.
const SLOW_FACTOR: u32 = 8;
/// And not before so long.
const SLOW_MIN: Duration = Duration::from_millis(200);

/// How long an OST took to answer of late.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// The last two answers: one that was late alone says nothing.
    last: [Duration; 2],
    /// When the question was asked that is not answered yet.
    asked: Option<Instant>,
    /// Found slow at the last look, by its answers.
    slow: bool,
    /// It lets somebody wait at the moment. That is not said: it is slow, or gone, before long.
    waits: bool,
}

impl Pace {
    /// A question begins.
    pub fn asked(&mut self, now: Instant) {
        self.asked = Some(now);
    }

    /// The question is over; there was an answer or none.
    pub fn answered(&mut self, now: Instant, answer: bool) {
        if let Some(asked) = self.asked.take().filter(|_| answer) {
            self.last = [now.since(asked), self.last[0]];
        }
    }

    fn delay(&self) -> Duration {
        self.last[0].min(self.last[1])
    }

    /// Slow, or likely to be: others are better.
    pub fn is_slow(&self) -> bool {
        self.slow || self.waits
    }

    /// Looks at it beside the delays of all. Who was slow stays so until he is twice as fast as he need be.
    fn compare(&mut self, now: Instant, all: &[Duration]) {
        assert!(all.is_sorted(), "the middle of what is in order");
        // Of an even number the faster of the two in the middle: of two OSTs one can be slow.
        let Some(middle) = all.len().checked_sub(1).map(|last| all[last / 2]) else { return };
        let limit = (middle * SLOW_FACTOR).max(SLOW_MIN);
        let bound = if self.slow { limit / 2 } else { limit };
        self.slow = self.delay() > bound;
        self.waits = self.asked.is_some_and(|t| now.since(t) > limit);
    }
}

/// The reasons of `set` in words.
fn words(set: u32) -> String {
    WORDS.iter().filter(|(bit, _)| set & bit != 0).map(|(_, w)| *w).collect::<Vec<_>>().join(", ")
}

/// What there is to say when the reasons were `before` and are `after`; whether it is a warning.
fn said(before: u32, after: u32) -> Option<(bool, String)> {
    if before == after {
        return None;
    }
    let what = match after {
        0 => return Some((false, "takes new objects again".to_string())),
        _ if after & !LAST_CHOICE == 0 => "gets new objects only where there are too few others",
        _ => "takes no new objects",
    };
    Some((true, format!("{what}: it is {}", words(after))))
}

impl Ost {
    fn reasons(&self, reachable: bool) -> u32 {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        if !self.configured || !self.enabled {
            return DEACTIVATED;
        }
        let state = self.space.map_or(0, |s| s.state & (STATE_REFUSES | DEGRADED));
        // Twice the room before it counts as room again.
        let was_full = self.passed_over & FULL != 0;
        let needed = if was_full { 2 * RESERVE_BYTES } else { RESERVE_BYTES };
        state
            | bit(self.space.is_some_and(|s| s.available <= needed), FULL)
            | bit(!reachable, UNREACHABLE)
            | bit(self.max_create_count == 0, TOLD_NOT_TO)
            | bit(self.pace.slow, SLOW)
    }
}

impl Osts {
    /// Looks at all OSTs, and says of which of them something changed. `label` is what an OST is called.
    pub fn review(&self, now: Instant, max_age: Duration, label: impl Fn(u16) -> String) {
        let mut changes = Vec::new();
        {
            let mut table = self.table.lock();
            let in_use = table.values().filter(|o| o.configured && o.enabled && o.import.is_some());
            let mut delays: Vec<Duration> = in_use.map(|o| o.pace.delay()).collect();
            delays.sort_unstable();
            for (index, o) in table.iter_mut() {
                o.pace.compare(now, &delays);
                let after = o.reasons(Osts::reachable(o, now, max_age));
                let before = std::mem::replace(&mut o.passed_over, after);
                changes.extend(said(before, after).map(|said| (*index, said)));
            }
        }
        for (index, (warning, text)) in changes {
            let label = label(index);
            if warning {
                model::event!(WARN, PassedOver, label, "{label} {text}");
            } else {
                tracing::info!("{label} {text}");
            }
        }
    }

    /// Why it is passed over, in words; empty: it is not.
    pub fn why_passed_over(&self, index: u16) -> String {
        self.get(index).map_or_else(String::new, |o| words(o.passed_over))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn a_change_is_said_once_and_its_end_once() {
        let mut before = 0;
        let mut log = Vec::new();
        for now in [0, 8, 8, 8, 8 | UNREACHABLE, 0, 0, DEGRADED, DEGRADED, 0] {
            log.extend(said(before, now));
            before = now;
        }
        let text: Vec<_> = log.iter().map(|(_, t)| t.as_str()).collect();
        assert_eq!(
            text,
            [
                "takes no new objects: it is out of space",
                "takes no new objects: it is out of space, not answering",
                "takes new objects again",
                "gets new objects only where there are too few others: it is degraded",
                "takes new objects again"
            ]
        );
        assert!(WORDS.iter().all(|(bit, w)| words(*bit) == *w));
    }

    #[test]
    fn who_answers_much_later_than_the_others_twice_is_slow_until_he_is_fast_again() {
        let (mut p, others) = (Pace::default(), [MS, 2 * MS, 3 * MS]);
        let mut answer = |from: u64, took: u64| {
            p.asked(at(from));
            p.answered(at(from + took), true);
            p.compare(at(from + took), &others);
            p.is_slow()
        };
        assert!(!answer(0, 900), "once says nothing");
        assert!(answer(5000, 900));
        assert!(answer(10_000, 150), "once says nothing");
        assert!(answer(20_000, 150), "and that is not twice as fast as it need be");
        assert!(!answer(30_000, 2));
        assert!(!answer(40_000, 199) && !answer(50_000, 199), "nobody notices that");
        // One that does not answer at all is slow before it is given up.
        p.asked(at(60_000));
        p.compare(at(60_100), &others);
        assert!(!p.is_slow());
        p.compare(at(60_300), &others);
        assert!(p.is_slow() && !p.slow, "nothing to say yet");
    }

    #[test]
    fn where_all_are_as_late_nobody_is_slow() {
        let mut p = Pace::default();
        for from in [0, 5000] {
            p.asked(at(from));
            p.answered(at(from + 2000), true);
        }
        p.compare(at(9000), &[1500 * MS, 2000 * MS]);
        assert!(!p.is_slow());
        p.compare(at(9000), &[]);
        assert!(!p.is_slow());
    }
}
