//! Which files a rule takes: the first ones in its order, no more than are needed, in bounded memory.

use super::rules::{Action, Entry, Order, Rule, Time, When};
use crate::command::df::Numbers;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Users whose files are added up; those of others are not.
const USERS_MAX: usize = 1 << 20;

/// A file with its place in the order.
#[derive(PartialEq, Eq)]
struct Ranked {
    rank: i128,
    entry: Entry,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> Ordering {
        let key = |r: &Ranked| (r.rank, r.entry.fid);
        key(self).cmp(&key(other)).then_with(|| self.entry.path.cmp(&other.entry.path))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn rank(order: Order, e: &Entry) -> i128 {
    match order {
        Order::None => 0,
        Order::OldestFirst(t) => e.time(t).into(),
        Order::LargestFirst => -i128::from(e.space),
    }
}

/// What makes a rule due, as it is at the moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Due {
    /// With what it is now, in words.
    Not(String),
    /// For all that fits.
    All,
    /// So many bytes are to become free.
    Bytes(u64),
    /// For the files of these users.
    Users(BTreeSet<u32>),
}

/// Of a rule that looks at space. `of`: what is used and free of what the rule is about. A rule that frees
/// nothing there is about all that fits.
pub fn due_by_space(rule: &Rule, of: Numbers) -> Due {
    let When::Space { above, until, .. } = &rule.when else { return Due::All };
    let whole = u128::from(of.used) + u128::from(of.available);
    let used = u128::from(of.used);
    if used * 100 <= whole * u128::from(*above) {
        return Due::Not(format!("{}% are used, not more than {above}%", of.percent()));
    }
    if !matches!(rule.action, Action::Purge | Action::Migrate { .. }) {
        return Due::All;
    }
    let kept = whole * u128::from(*until) / 100;
    Due::Bytes(u64::try_from(used.saturating_sub(kept)).unwrap_or(u64::MAX))
}

/// The files that a rule takes of those that it is shown, in any order.
pub struct Selection<'a> {
    rule: &'a Rule,
    due: &'a Due,
    now: i64,
    /// The last in the order is on top.
    heap: BinaryHeap<Ranked>,
    bytes: u64,
    /// Files that fit, and their space: all, and of each user.
    pub fitting: (u64, u64),
    pub users: BTreeMap<u32, (u64, u64)>,
    /// Some were left out because no more may be taken.
    is_cut: bool,
}

impl<'a> Selection<'a> {
    pub fn new(rule: &'a Rule, due: &'a Due, now: i64) -> Selection<'a> {
        let heap = BinaryHeap::new();
        Selection { rule, due, now, heap, bytes: 0, fitting: (0, 0), users: BTreeMap::new(), is_cut: false }
    }

    pub fn offer(&mut self, entry: Entry) {
        if !self.rule.fits(&entry, self.now) || matches!(self.due, Due::Users(u) if !u.contains(&entry.uid)) {
            return;
        }
        self.fitting.0 += 1;
        self.fitting.1 = self.fitting.1.saturating_add(entry.space);
        if self.users.len() < USERS_MAX || self.users.contains_key(&entry.uid) {
            let user = self.users.entry(entry.uid).or_default();
            *user = (user.0 + 1, user.1.saturating_add(entry.space));
        }
        self.bytes = self.bytes.saturating_add(entry.space);
        self.heap.push(Ranked { rank: rank(self.rule.order, &entry), entry });
        while let Some(last) = self.heap.peek() {
            let is_needed = match self.due {
                Due::Bytes(n) => self.bytes.saturating_sub(last.entry.space) < *n,
                _ => true,
            };
            if is_needed && self.heap.len() <= self.rule.limit {
                break;
            }
            self.is_cut |= is_needed;
            self.bytes = self.bytes.saturating_sub(last.entry.space);
            self.heap.pop();
        }
    }

    /// All that are still taken are at least so old by that time, whatever else comes; `None`: any may be.
    pub fn bound(&self) -> Option<(Time, i64)> {
        let Order::OldestFirst(time) = self.rule.order else { return None };
        let is_enough = matches!(self.due, Due::Bytes(n) if self.bytes >= *n);
        // Only then it is known that there are more than may be taken.
        let is_full = self.is_cut && self.heap.len() >= self.rule.limit;
        let last = self.heap.peek().filter(|_| is_enough || is_full)?;
        Some((time, last.entry.time(time)))
    }

    /// Whether more are needed than may be taken.
    pub fn has_more(&self) -> bool {
        self.is_cut && !matches!(self.due, Due::Bytes(n) if self.bytes >= *n)
    }

    /// In the rule's order.
    pub fn into_entries(self) -> Vec<Entry> {
        self.heap.into_sorted_vec().into_iter().map(|r| r.entry).collect()
    }
}
