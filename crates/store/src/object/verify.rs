//! Blocks are compared with their checksums.

use super::files::Files;
use super::location::{Location, ObjectRecord};
use super::sums::{BLOCK_BYTES, GROUP_BLOCKS, Group, ZERO_BLOCK_CRC, split, sums_key};
use crate::{Db, StoreError};
use model::mutex::Mutex;
use model::{ObjectId, limits};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use wire::checksum::ChecksumType;

/// Counted since the start.
#[derive(Default)]
pub struct Counters {
    /// Blocks whose checksum differed when they were read.
    pub checksum_errors: AtomicU64,
}

/// Ranges of blocks (from..to) that may be old or new, because a change failed half way and the target
/// stopped.
#[derive(Default)]
pub(crate) struct LeftOpen {
    map: BTreeMap<ObjectId, Vec<(u64, u64)>>,
}

impl LeftOpen {
    pub fn may_be_either(&self, id: ObjectId, block: u64) -> bool {
        self.map.get(&id).is_some_and(|l| l.iter().any(|(from, to)| *from <= block && block < *to))
    }

    /// Bytes `off..off + len`.
    pub fn either(&mut self, id: ObjectId, off: u64, len: u64) {
        let (from, to) = (off / BLOCK_BYTES, off.saturating_add(len).div_ceil(BLOCK_BYTES));
        assert!(from < to, "a change that failed half way concerns blocks");
        self.map.entry(id).or_default().push((from, to));
    }
}

/// A block that is not as stored.
pub(super) struct Differs {
    pub block: u64,
    pub want: u32,
    pub got: u32,
}

/// The checksums of all objects of one OST.
pub(super) struct Checksums {
    pub db: Arc<Db>,
    pub files: Arc<Files>,
    pub left_open: Mutex<LeftOpen>,
    counters: Arc<Counters>,
}

impl Checksums {
    pub fn new(db: &Arc<Db>, files: &Arc<Files>, counters: &Arc<Counters>) -> Checksums {
        Checksums {
            db: db.clone(),
            files: files.clone(),
            left_open: Mutex::default(),
            counters: counters.clone(),
        }
    }

    /// The checksums of a group of blocks, as stored.
    pub(super) fn group(&self, id: ObjectId, rec: &ObjectRecord, g: u64) -> Result<Group, StoreError> {
        if rec.location != Location::Own {
            return Ok(if g == 0 { rec.sums.clone() } else { Group::default() });
        }
        if rec.stale.is_some_and(|(from, to)| from <= g && g < to) {
            return Ok(Group::default());
        }
        let Some(v) = self.db.get(&sums_key(id, g))? else { return Ok(Group::default()) };
        Group::decode(&v).ok_or_else(|| {
            StoreError::damaged("checksums", &id.to_string(), format!("group {g} does not decode"))
        })
    }

    /// Checks blocks of an object: `bytes` begin with block `first` and end with a block, or with the object.
    /// Returns the checksums. A difference is counted, and said aloud. Blocks of an own file that have none
    /// become zeros: what the file holds there is of a write that never came to its record.
    pub(super) fn verify(
        &self,
        id: ObjectId,
        rec: &ObjectRecord,
        first: u64,
        bytes: &mut [u8],
    ) -> Result<Vec<u32>, StoreError> {
        let (crcs, differ) = self.compare(id, rec, first, bytes)?;
        let mut errors = differ.iter().map(|d| self.found(id, rec, d));
        match errors.next() {
            None => Ok(crcs),
            Some(e) => {
                errors.for_each(drop);
                Err(e)
            }
        }
    }

    /// The blocks' checksums, and those that are not as stored; see [`Objects::verify`].
    pub(super) fn compare(
        &self,
        id: ObjectId,
        rec: &ObjectRecord,
        first: u64,
        bytes: &mut [u8],
    ) -> Result<(Vec<u32>, Vec<Differs>), StoreError> {
        let whole = bytes.len().is_multiple_of(limits::SUM_BLOCK_BYTES);
        let at_end = first * BLOCK_BYTES + bytes.len() as u64 == rec.attr.size;
        assert!(whole || at_end, "whole blocks are compared, and the object's last one");
        let mut out = Vec::with_capacity(bytes.len().div_ceil(limits::SUM_BLOCK_BYTES));
        let mut differ = Vec::new();
        let mut group = (u64::MAX, Group::default());
        for (block, part) in (first..).zip(bytes.chunks_mut(limits::SUM_BLOCK_BYTES)) {
            let (g, i) = split(block);
            if group.0 != g {
                group = (g, self.group(id, rec, g)?);
            }
            if rec.summed && rec.location == Location::Own && group.1.get(i).is_none() {
                part.fill(0);
                out.push(ZERO_BLOCK_CRC);
                continue;
            }
            let got = ChecksumType::Crc32c.padded(part);
            let want = group.1.get(i).or(rec.summed.then_some(ZERO_BLOCK_CRC));
            if let Some(want) = want.filter(|w| *w != got)
                && !self.may_differ(id, block)
            {
                differ.push(Differs { block, want, got });
            }
            out.push(got);
        }
        Ok((out, differ))
    }

    /// A change that failed half way and could not be cleared up yet.
    fn may_differ(&self, id: ObjectId, block: u64) -> bool {
        self.left_open.lock().may_be_either(id, block)
            || model::planted::on(model::planted::Bug::SumUnverified)
    }

    /// Counts a difference and says it aloud; unless the target is another server's by now, and with it the
    /// bytes.
    pub(super) fn found(&self, id: ObjectId, rec: &ObjectRecord, d: &Differs) -> StoreError {
        let e = StoreError::Checksum {
            object: id,
            file: rec.file,
            offset: d.block * BLOCK_BYTES,
            path: self.files.place_name(id, rec),
            want: d.want,
            got: d.got,
        };
        let e = self.db.core().explained(e);
        if !matches!(e, StoreError::Checksum { .. }) {
            return e;
        }
        self.counters.checksum_errors.fetch_add(1, Relaxed);
        tracing::error!("target in '{}': {e}", self.db.dir());
        e
    }

    /// Whether any of blocks `from..to` has a checksum.
    fn any_sum(&self, id: ObjectId, rec: &ObjectRecord, from: u64, to: u64) -> Result<bool, StoreError> {
        Ok(!self.all_alike(id, rec, (from, to), false)?)
    }

    /// Whether all of blocks `from..to` have checksums.
    pub(super) fn all_sums(
        &self,
        id: ObjectId,
        rec: &ObjectRecord,
        from: u64,
        to: u64,
    ) -> Result<bool, StoreError> {
        self.all_alike(id, rec, (from, to), true)
    }

    /// Whether all of blocks `from..to` have checksums, or none has (`summed` false).
    fn all_alike(
        &self,
        id: ObjectId,
        rec: &ObjectRecord,
        (from, to): (u64, u64),
        summed: bool,
    ) -> Result<bool, StoreError> {
        let mut at = from;
        while at < to {
            let (g, first) = split(at);
            let next = ((g + 1) * GROUP_BLOCKS).min(to);
            let group = self.group(id, rec, g)?;
            if (first..first + (next - at) as usize).any(|i| group.get(i).is_some() != summed) {
                return Ok(false);
            }
            at = next;
        }
        Ok(true)
    }

    /// Whether any byte from `off` to `end` lies in a block of the object that has a checksum, or may count
    /// without one.
    pub(super) fn goes_over(
        &self,
        id: ObjectId,
        old: &ObjectRecord,
        off: u64,
        end: u64,
    ) -> Result<bool, StoreError> {
        let size = old.attr.size;
        Ok(off < size
            && (!old.summed
                || self.any_sum(id, old, off / BLOCK_BYTES, end.min(size).div_ceil(BLOCK_BYTES))?))
    }
}
