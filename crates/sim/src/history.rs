//! Linearizability of what several actors do to one small thing: a shared name, a shared block of bytes.
//!
//! Wing and Gong's search with memory: is there an order of the operations, each between its call and its
//! return, in which every answer is right? An operation without an answer (its client died) may take effect
//! at any later time, or never.

use std::collections::BTreeSet;
use std::fmt;

/// One operation on a register that is empty or holds a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Wants an empty register; fails on a full one.
    Create {
        value: u64,
        done: Option<bool>,
    },
    /// Empties a full register; fails on an empty one.
    Remove {
        done: Option<bool>,
    },
    Write {
        value: u64,
    },
    Read {
        saw: Option<u64>,
    },
}

impl Act {
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Act::Write { .. })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub act: Act,
    pub called: u64,
    /// `u64::MAX`: never answered.
    pub returned: u64,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.answered() {
            write!(f, "{} to {}: {:?}", self.called, self.returned, self.act)
        } else {
            write!(f, "{} to no answer: {:?}", self.called, self.act)
        }
    }
}

impl Event {
    pub(crate) fn answered(&self) -> bool {
        self.returned != u64::MAX
    }

    /// The state afterwards, if the answer is right in `state`.
    fn step(&self, state: Option<u64>) -> Option<Option<u64>> {
        match self.act {
            Act::Create { value, done } => {
                let can = state.is_none();
                (done.is_none_or(|d| d == can)).then_some(if can { Some(value) } else { state })
            }
            Act::Remove { done } => {
                let can = state.is_some();
                (done.is_none_or(|d| d == can)).then_some(None)
            }
            Act::Write { value } => Some(Some(value)),
            Act::Read { saw } => (saw == state).then_some(state),
        }
    }
}

/// States that are looked at before the search gives up.
const STATES_MAX: usize = 300_000;

/// How far the search has come.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Of the answered ones, by the time of their calls, all before this are done.
    base: usize,
    /// Those done behind it: they overlap with it, so they are few.
    later: Vec<usize>,
    /// Those done of the unanswered ones.
    taken: Vec<usize>,
    state: Option<u64>,
}

impl Place {
    fn done(&self, answered: usize, state: Option<u64>) -> Place {
        let mut p = Place { state, ..self.clone() };
        p.later.push(answered);
        p.later.sort_unstable();
        while p.later.first() == Some(&p.base) {
            p.later.remove(0);
            p.base += 1;
        }
        p
    }

    fn took(&self, unanswered: usize, state: Option<u64>) -> Place {
        let mut p = Place { state, ..self.clone() };
        p.taken.push(unanswered);
        p.taken.sort_unstable();
        p
    }
}

/// Whether operations fit together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Fits,
    Wrong,
    /// There are more orders than can be tried.
    Undecided,
}

/// Whether the operations fit together. `events` may be in any order.
pub fn linearizable(start: Option<u64>, events: &[Event]) -> Verdict {
    let mut ev = events.to_vec();
    ev.sort_by_key(|e| e.called);
    let (answered, mut open): (Vec<Event>, Vec<Event>) = ev.into_iter().partition(Event::answered);
    open.retain(|e| !matches!(e.act, Act::Read { .. }));
    let mut seen = BTreeSet::new();
    let mut todo = vec![Place { base: 0, later: Vec::new(), taken: Vec::new(), state: start }];
    while let Some(p) = todo.pop() {
        if p.base == answered.len() {
            return Verdict::Fits;
        }
        // What may come next was called before anything that is not done returned.
        let mut first_return = u64::MAX;
        let mut next = Vec::new();
        for (i, e) in answered.iter().enumerate().skip(p.base) {
            if e.called > first_return {
                break;
            }
            if p.later.binary_search(&i).is_err() {
                first_return = first_return.min(e.returned);
                next.extend(e.step(p.state).map(|s| p.done(i, s)));
            }
        }
        for (i, e) in open.iter().enumerate().take_while(|(_, e)| e.called <= first_return) {
            if p.taken.binary_search(&i).is_err() {
                next.extend(e.step(p.state).map(|s| p.took(i, s)));
            }
        }
        for n in next {
            if seen.len() >= STATES_MAX {
                return Verdict::Undecided;
            }
            if seen.insert(n.clone()) {
                todo.push(n);
            }
        }
    }
    Verdict::Wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(events: &[Event]) -> bool {
        linearizable(None, events) == Verdict::Fits
    }

    fn ev(called: u64, returned: u64, act: Act) -> Event {
        Event { act, called, returned }
    }

    #[test]
    fn right_and_wrong_histories() {
        let create = |v, d| Act::Create { value: v, done: Some(d) };
        let ok =
            [ev(1, 5, create(1, true)), ev(2, 6, create(2, false)), ev(7, 8, Act::Read { saw: Some(1) })];
        assert!(fits(&ok));
        let both = [ev(1, 5, create(1, true)), ev(2, 6, create(2, true))];
        assert!(!fits(&both));
        let stale = [ev(1, 2, Act::Write { value: 5 }), ev(3, 4, Act::Read { saw: None })];
        assert!(!fits(&stale));
        let overlapping = [ev(1, 4, Act::Write { value: 5 }), ev(3, 4, Act::Read { saw: None })];
        assert!(fits(&overlapping));
        let back = [
            ev(1, 10, Act::Write { value: 5 }),
            ev(2, 3, Act::Read { saw: Some(5) }),
            ev(4, 5, Act::Read { saw: None }),
        ];
        assert!(!fits(&back));
        let unanswered = [ev(1, u64::MAX, Act::Write { value: 5 }), ev(20, 30, Act::Read { saw: Some(5) })];
        assert!(fits(&unanswered));
        let never = [ev(1, u64::MAX, Act::Write { value: 5 }), ev(20, 30, Act::Read { saw: None })];
        assert!(fits(&never));
    }
    #[test]
    fn too_many_orders_are_not_decided() {
        let mut ev: Vec<Event> = (0..24).map(|v| ev(1, u64::MAX, Act::Write { value: v })).collect();
        ev.push(Event { act: Act::Read { saw: Some(99) }, called: 2, returned: 3 });
        assert_eq!(linearizable(None, &ev), Verdict::Undecided);
    }
}
