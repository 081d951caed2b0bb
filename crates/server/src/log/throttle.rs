//! How often the same message is said: a log of half a million lines a week is read by nobody. The first few
//! of a kind about the same object are said as they come; of more within a minute the number is said when it
//! is over.

use model::Map;
use std::hash::Hash;
use std::time::Duration;

/// Within this time
pub const WINDOW: Duration = Duration::from_secs(60);
/// so many are said one by one.
pub const BURST: u32 = 10;
/// Kinds and objects that are counted at a time. Beyond that everything is said.
const KEYS_MAX: usize = 2000;

struct Count {
    begun_ns: u128,
    said: u32,
    held: u64,
    /// The last one that was not said.
    last: String,
}

/// What is to be done with a message.
#[derive(PartialEq, Eq, Debug)]
pub enum Turn {
    Say,
    Hold,
}

/// Messages that were held back.
#[derive(PartialEq, Eq, Debug)]
pub struct Held<K> {
    pub key: K,
    pub number: u64,
    /// The last of them.
    pub last: String,
}

/// Counts messages by what they say and about whom.
pub struct Throttle<K> {
    counts: Map<K, Count>,
}

impl<K> Default for Throttle<K> {
    fn default() -> Self {
        Throttle { counts: Map::default() }
    }
}

impl<K: Hash + Eq + Clone> Throttle<K> {
    /// A message comes, by the wall clock.
    pub fn turn(&mut self, key: &K, now_ns: u128, text: impl FnOnce() -> String) -> Turn {
        if !self.counts.contains_key(key) && self.counts.len() >= KEYS_MAX {
            return Turn::Say;
        }
        let new = || Count { begun_ns: now_ns, said: 0, held: 0, last: String::new() };
        let c = self.counts.entry(key.clone()).or_insert_with(new);
        assert!(c.held == 0 || c.said == BURST, "none is held back while there is a turn left");
        if c.said < BURST {
            c.said += 1;
            return Turn::Say;
        }
        c.held += 1;
        c.last = text();
        Turn::Hold
    }

    /// What was held back in minutes that are over; with `all` in those that go on, too.
    pub fn due(&mut self, now_ns: u128, all: bool) -> Vec<Held<K>> {
        let mut due = Vec::new();
        // A wall clock that was set back makes a new minute, too.
        let over = |c: &Count| all || now_ns < c.begun_ns || now_ns - c.begun_ns >= WINDOW.as_nanos();
        self.counts.retain(|key, c| {
            let over = over(c);
            if over && c.held > 0 {
                due.push(Held { key: key.clone(), number: c.held, last: std::mem::take(&mut c.last) });
            }
            !over
        });
        assert!(self.counts.len() <= KEYS_MAX, "what is counted is bounded");
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u128 = 1_000_000_000;

    #[test]
    fn the_first_few_are_said_and_of_the_others_the_number() {
        let mut t = Throttle::default();
        let mut said = 0;
        for n in 0..100u128 {
            said += u32::from(t.turn(&"a", n * SECOND / 10, || format!("message {n}")) == Turn::Say);
        }
        assert_eq!(said, BURST);
        assert_eq!(t.turn(&"b", 10 * SECOND, String::new), Turn::Say, "about another one");
        assert_eq!(t.due(59 * SECOND, false), []);
        let held = Held { key: "a", number: 90, last: "message 99".to_string() };
        assert_eq!(t.due(60 * SECOND, false), [held]);
        assert_eq!(t.turn(&"a", 61 * SECOND, String::new), Turn::Say, "a new minute");
        assert_eq!(t.due(200 * SECOND, false), []);
        assert!(t.counts.is_empty());
    }

    #[test]
    fn keys_are_bounded_and_a_clock_that_is_set_back_holds_nothing_for_ever() {
        let mut t = Throttle::default();
        for n in 0..KEYS_MAX * 2 {
            assert_eq!(t.turn(&n, SECOND, String::new), Turn::Say);
        }
        assert_eq!(t.counts.len(), KEYS_MAX);
        let held = (0..20).filter(|_| t.turn(&0, SECOND, || "x".into()) == Turn::Hold).count();
        assert_eq!(held as u32, 21 - BURST, "one was said before");
        assert_eq!(t.due(0, false).len(), 1);
        assert!(t.counts.is_empty());
    }
}
