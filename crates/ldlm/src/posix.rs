//! POSIX ranges of one owner: setting and clearing parts, splitting what lies across.

use std::collections::BTreeMap;
use wire::msg::enqueue::LockSpec;

/// Whether the byte ranges `a..=b` and `c..=d` have a byte in common.
pub(crate) fn overlap(a: &LockSpec, start: u64, end: u64) -> bool {
    a.start <= end && start <= a.end
}

/// How many more pieces there are after cutting `start..=end` out: 1 if one piece lies across both ends.
pub(crate) fn splits(p: &LockSpec, start: u64, end: u64) -> bool {
    p.start < start && p.end > end
}

/// What is left of a piece when `start..=end` is cut out: shorter, split, or nothing.
pub(crate) fn rest(p: &LockSpec, start: u64, end: u64) -> impl Iterator<Item = LockSpec> {
    let head = (p.start < start).then(|| LockSpec { end: start - 1, ..p.clone() });
    let tail = (p.end > end).then(|| LockSpec { start: end + 1, ..p.clone() });
    head.into_iter().chain(tail)
}

/// Granted pieces of one owner in one file, which have no byte in common, by their first byte.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Pieces(BTreeMap<u64, LockSpec>);

impl Pieces {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &LockSpec> {
        self.0.values()
    }

    pub fn at(&self, start: u64) -> Option<&LockSpec> {
        self.0.get(&start)
    }

    /// Those with a byte in `start..=end`, in order.
    pub fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = &LockSpec> {
        let across = self.0.range(..start).next_back().map(|(_, p)| p).filter(|p| p.end >= start);
        across.into_iter().chain(self.0.range(start..=end).map(|(_, p)| p))
    }

    /// Adds a piece where there is none.
    pub fn insert(&mut self, p: LockSpec) {
        assert!(self.overlapping(p.start, p.end).next().is_none(), "pieces have no byte in common");
        self.0.insert(p.start, p);
    }

    pub fn remove(&mut self, start: u64) -> Option<LockSpec> {
        self.0.remove(&start)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&LockSpec) -> bool) {
        self.0.retain(|_, p| keep(p));
    }

    /// Cuts `start..=end` out. Returns the pieces that lay there as they were; what is left of each is its
    /// [`rest`].
    pub fn carve(&mut self, start: u64, end: u64) -> Vec<LockSpec> {
        let there: Vec<LockSpec> = self.overlapping(start, end).cloned().collect();
        for p in &there {
            self.0.remove(&p.start);
            for r in rest(p, start, end) {
                self.0.insert(r.start, r);
            }
        }
        there
    }

    /// The piece at `start` and its neighbours of the same mode as one: the view that fcntl(F_GETLK) gives.
    pub fn coalesced(&self, start: u64) -> Option<LockSpec> {
        let mut out = self.at(start)?.clone();
        for p in self.0.range(..start).rev().map(|(_, p)| p) {
            if p.mode != out.mode || p.end.checked_add(1) != Some(out.start) {
                break;
            }
            out.start = p.start;
        }
        for p in self.0.range(start..).skip(1).map(|(_, p)| p) {
            if p.mode != out.mode || out.end.checked_add(1) != Some(p.start) {
                break;
            }
            out.end = p.end;
        }
        Some(out)
    }
}
