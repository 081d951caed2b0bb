//! Directories that are not worth asking for: others use them.

use super::Wants;
use model::{Fid, Map, Set};
use std::time::Duration;
use world::Instant;

/// Directories remembered as contended.
const CONTENDED_MAX: usize = 4096;
/// How long a directory is left alone that could not be had.
const AFTER_REFUSAL: Duration = Duration::from_millis(500);
/// Directories to be left alone that are remembered.
const NOT_BEFORE_MAX: usize = 4096;

/// Directories that are left alone for a while.
#[derive(Default)]
pub(crate) struct LeftAlone {
    contended: Set<Fid>,
    /// Directories that cannot be had exclusively before that time.
    not_before: Map<Fid, Instant>,
}

impl LeftAlone {
    /// Others change this directory all the time: there is no use in asking for more than is needed now.
    pub(in crate::mdc) fn is_contended(&self, dir: Fid) -> bool {
        self.contended.contains(&dir)
    }

    pub(super) fn note_contended(&mut self, dir: Fid) {
        if self.contended.len() >= CONTENDED_MAX {
            self.contended.clear();
        }
        self.contended.insert(dir);
        assert!(self.contended.len() <= CONTENDED_MAX, "what is remembered of contention is bounded");
    }

    /// A lease on it was granted.
    pub(super) fn not_contended(&mut self, dir: Fid) {
        self.contended.remove(&dir);
    }

    /// The lease, and, if `names`, the names, unless the directory is left alone.
    pub(super) fn wants_lease(&self, dir: Fid, names: bool, now: Instant) -> Wants {
        let early = self.not_before.get(&dir).is_some_and(|t| now < *t);
        if early || self.contended.contains(&dir) { Wants::Never } else { Wants::Lease { names } }
    }

    pub(super) fn leave(&mut self, dir: Fid, now: Instant, for_: Duration) {
        if self.not_before.len() >= NOT_BEFORE_MAX {
            self.not_before.retain(|_, t| *t > now);
            if self.not_before.len() >= NOT_BEFORE_MAX {
                self.not_before.clear();
            }
        }
        self.not_before.insert(dir, now.plus(for_));
        assert!(self.not_before.len() <= NOT_BEFORE_MAX, "what is left alone is bounded");
    }

    /// A directory that could not be had.
    pub(in crate::mdc) fn refused(&mut self, dir: Fid, now: Instant) {
        self.leave(dir, now, AFTER_REFUSAL);
    }
}
