//! What is granted on one file of one kind, found by range, by owner and by id without looking at everything:
//! some programs hold a lock for each record of a large file.
//!
//! Ranges of different owners may lie upon each other (readers), so an order by the first byte does not find
//! all that reach into a range. [`Ranges`] is an interval tree over all 2^64 bytes: a range belongs to the
//! smallest aligned block of 2^n bytes that holds it, in whose middle it has a byte. Of a block at an end of
//! what is asked for, a range in it either ends behind the beginning or begins before the end: both are
//! orders.

use crate::posix::{Pieces, rest, splits};
use crate::table::Client;
use model::planted::{self, Bug};
use std::collections::{BTreeMap, BTreeSet, btree_map, btree_set};
use wire::msg::enqueue::{LockKind, LockMode, LockSpec};

/// Who excludes whom: owners of flocks and POSIX ranges; each extent is for itself.
pub(crate) type Who = (Client, u64);

pub(crate) fn who(client: Client, s: &LockSpec) -> Who {
    (client, if s.kind == LockKind::Extent { s.id } else { s.owner })
}

const LEVELS: usize = 65;
const FIRST: Who = ([0; 16], 0);
const LAST: Who = ([u8::MAX; 16], u64::MAX);

/// (block size as a power of two, number of the block, first or last byte of the range, whose)
type Key = (u8, u64, u64, Who);

#[derive(Default)]
struct Ranges {
    by_start: BTreeSet<Key>,
    /// To their first bytes.
    by_end: BTreeMap<Key, u64>,
    /// How many there are of each block size.
    levels: Vec<usize>,
}

fn block(level: u8, byte: u64) -> u64 {
    byte.checked_shr(u32::from(level)).unwrap_or(0)
}

/// The block of a range.
fn place(start: u64, end: u64) -> (u8, u64) {
    let level = (u64::BITS - (start ^ end).leading_zeros()) as u8;
    (level, block(level, start))
}

/// Whether a byte lies in the upper half of its block, which has more than one byte.
fn is_upper(level: u8, byte: u64) -> bool {
    byte >> (level - 1) & 1 == 1
}

impl Ranges {
    fn insert(&mut self, w: Who, start: u64, end: u64) {
        assert!(start <= end, "a range has a byte");
        let (level, block) = place(start, end);
        assert!(self.by_start.insert((level, block, start, w)), "a range is entered once");
        let other = self.by_end.insert((level, block, end, w), start);
        assert!(other.is_none(), "ranges of one owner have no end in common");
        self.levels.resize(LEVELS, 0);
        self.levels[usize::from(level)] += 1;
    }

    fn remove(&mut self, w: Who, start: u64, end: u64) {
        let (level, block) = place(start, end);
        assert!(self.by_start.remove(&(level, block, start, w)), "the range is there");
        let began = self.by_end.remove(&(level, block, end, w));
        assert_eq!(began, Some(start), "both orders hold the same ranges");
        self.levels[usize::from(level)] -= 1;
    }

    /// Whose ranges have a byte in `start..=end`, and where they begin.
    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (Who, u64)> {
        let used = (0u8..).zip(&self.levels).filter(|(_, n)| **n > 0).map(|(level, _)| level);
        used.flat_map(move |level| {
            let (first, last) = (block(level, start), block(level, end));
            // Those that end late enough, in the block where it begins; those that begin early enough, in the
            // others.
            let (mut ends, mut starts): (Option<btree_map::Range<'_, Key, u64>>, _) = (None, Some(first));
            if level > 0 && (first < last || is_upper(level, start)) {
                let from = (level, first, start, FIRST);
                ends = Some(self.by_end.range(from..=(level, first, u64::MAX, LAST)));
                starts = (first < last).then_some(first + 1);
            }
            let starts: Option<btree_set::Range<'_, Key>> =
                starts.map(|b| self.by_start.range((level, b, 0, FIRST)..=(level, last, end, LAST)));
            let ends = ends.into_iter().flatten().map(|(k, at)| (k.3, *at));
            ends.chain(starts.into_iter().flatten().map(|k| (k.3, k.2)))
        })
    }
}

#[derive(Default)]
pub(crate) struct Granted {
    of: BTreeMap<Who, Pieces>,
    reads: Ranges,
    writes: Ranges,
    /// (client, lock id, whose, first byte)
    ids: BTreeSet<(Client, u64, u64, u64)>,
}

impl Granted {
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Client, &LockSpec)> {
        self.of.iter().flat_map(|(w, p)| p.iter().map(|s| (w.0, s)))
    }

    /// Whose there are.
    pub fn owners(&self) -> impl ExactSizeIterator<Item = &Who> {
        self.of.keys()
    }

    pub fn has_any(&self, w: &Who) -> bool {
        self.of.contains_key(w)
    }

    pub fn has_id(&self, client: Client, id: u64) -> bool {
        self.ids.range((client, id, 0, 0)..=(client, id, u64::MAX, u64::MAX)).next().is_some()
    }

    /// Whose locks exclude this one, and where they begin; once for each lock.
    pub fn conflicts(&self, client: Client, s: &LockSpec) -> impl Iterator<Item = (Who, u64)> {
        let me = who(client, s);
        let reads = (s.mode == LockMode::Write).then(|| self.reads.overlapping(s.start, s.end));
        let all = self.writes.overlapping(s.start, s.end).chain(reads.into_iter().flatten());
        let posix = s.kind == LockKind::Posix;
        all.filter(move |(w, _)| *w != me && !(posix && planted::on(Bug::RecordLockShared)))
    }

    pub fn pieces(&self, w: &Who) -> Option<&Pieces> {
        self.of.get(w)
    }

    /// Whether cutting `start..=end` out makes one piece more.
    pub fn would_split(&self, w: &Who, start: u64, end: u64) -> bool {
        self.of.get(w).is_some_and(|p| p.overlapping(start, end).any(|s| splits(s, start, end)))
    }

    fn ranges(&mut self, mode: LockMode) -> &mut Ranges {
        match mode {
            LockMode::Read => &mut self.reads,
            LockMode::Write => &mut self.writes,
        }
    }

    fn index(&mut self, w: Who, s: &LockSpec) {
        self.ranges(s.mode).insert(w, s.start, s.end);
        assert!(self.ids.insert((w.0, s.id, w.1, s.start)), "a lock is granted once");
    }

    fn forget(&mut self, w: Who, s: &LockSpec) {
        self.ranges(s.mode).remove(w, s.start, s.end);
        assert!(self.ids.remove(&(w.0, s.id, w.1, s.start)), "a granted lock is found by its id");
    }

    /// Enters a lock, where its owner has none.
    pub fn insert(&mut self, client: Client, s: LockSpec) {
        let w = who(client, &s);
        self.index(w, &s);
        self.of.entry(w).or_default().insert(s);
    }

    /// Cuts `start..=end` out of what somebody has; false: there was nothing.
    pub fn carve(&mut self, w: Who, start: u64, end: u64) -> bool {
        let Some(p) = self.of.get_mut(&w) else { return false };
        let cut = p.carve(start, end);
        if p.is_empty() {
            self.of.remove(&w);
        }
        for s in &cut {
            self.forget(w, s);
            rest(s, start, end).for_each(|r| self.index(w, &r));
        }
        !cut.is_empty()
    }

    /// Everything of one owner goes.
    pub fn remove_all(&mut self, w: Who) -> Vec<LockSpec> {
        let Some(p) = self.of.remove(&w) else { return Vec::new() };
        p.iter().for_each(|s| self.forget(w, s));
        p.iter().cloned().collect()
    }

    /// What was granted under an id goes.
    pub fn remove_id(&mut self, client: Client, id: u64) {
        let ids = self.ids.range((client, id, 0, 0)..=(client, id, u64::MAX, u64::MAX));
        let of_id: Vec<(u64, u64)> = ids.map(|i| (i.2, i.3)).collect();
        for (owner, start) in of_id {
            let w = (client, owner);
            let p = self.of.get_mut(&w).expect("what has an id is there");
            let s = p.remove(start).expect("what has an id is there");
            if p.is_empty() {
                self.of.remove(&w);
            }
            self.forget(w, &s);
        }
    }

    /// Everything of a client goes.
    pub fn remove_client(&mut self, client: Client) {
        let owners: Vec<Who> = self.of.range((client, 0)..=(client, u64::MAX)).map(|(w, _)| *w).collect();
        for w in owners {
            self.remove_all(w);
        }
        let left = self.ids.range((client, 0, 0, 0)..=(client, u64::MAX, u64::MAX, u64::MAX)).next();
        assert!(left.is_none(), "a client that is gone holds no lock");
    }
}

#[cfg(test)]
#[path = "granted_tests.rs"]
mod tests;
