//! Checksums at rest: a crc32c for each block of 4 KiB of an object, in the same transaction as its bytes.
//!
//! A block's checksum is that of all its 4,096 bytes, those behind the object's end taken as zeros. A block
//! that was never written, or was punched, has none and reads as zeros. Layout and reasons:
//! `docs/formats/objects.md`.

use super::Objects;
use super::change::Change;
use super::location::{Location, ObjectRecord};
use crate::bytes::{Reader, Writer};
use crate::{StoreError, Txn};
use model::{ObjectId, limits};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use wire::checksum::ChecksumType;
use wire::frame::crc32c;

/// Key tag of groups of checksums.
pub const TAG_SUMS: u8 = b'S';
/// Bytes that one checksum covers.
pub const BLOCK_BYTES: u64 = limits::SUM_BLOCK_BYTES as u64;
/// Blocks whose checksums share a key.
pub const GROUP_BLOCKS: u64 = 64;
/// crc32c of a block of zeros.
pub const ZERO_BLOCK_CRC: u32 = 0x98f9_4189;
const GROUP_VERSION: u8 = 1;

/// Checksums of [`GROUP_BLOCKS`] blocks, some of which may have none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Group {
    mask: u64,
    /// As long as the highest block that has one; 0 where there is none.
    crcs: Vec<u32>,
}

impl Group {
    pub fn get(&self, i: usize) -> Option<u32> {
        (i < self.crcs.len() && self.mask >> i & 1 == 1).then(|| self.crcs[i])
    }

    pub fn set(&mut self, i: usize, crc: Option<u32>) {
        assert!(i < GROUP_BLOCKS as usize, "block {i} of a group");
        if let Some(c) = crc {
            self.mask |= 1 << i;
            if self.crcs.len() <= i {
                self.crcs.resize(i + 1, 0);
            }
            self.crcs[i] = c;
            return;
        }
        self.mask &= !(1 << i);
        if i < self.crcs.len() {
            self.crcs[i] = 0;
            self.crcs.truncate(64 - self.mask.leading_zeros() as usize);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.mask == 0
    }

    /// Version, zeros (3), mask, the checksums of the blocks in the mask.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer(Vec::with_capacity(12 + 4 * self.crcs.len()));
        w.u8(GROUP_VERSION);
        w.raw(&[0; 3]);
        w.u64(self.mask);
        (0..self.crcs.len()).filter_map(|i| self.get(i)).for_each(|c| w.u32(c));
        w.0
    }

    pub(crate) fn decode(v: &[u8]) -> Option<Group> {
        let mut r = Reader(v);
        if r.u8()? != GROUP_VERSION {
            return None;
        }
        r.raw(3)?;
        let mask = r.u64()?;
        let mut g = Group { mask, crcs: vec![0; 64 - mask.leading_zeros() as usize] };
        for i in 0..g.crcs.len() {
            if mask >> i & 1 == 1 {
                g.crcs[i] = r.u32()?;
            }
        }
        Some(g)
    }

    #[cfg(test)]
    pub fn of(crcs: &[Option<u32>]) -> Group {
        let mut g = Group::default();
        crcs.iter().enumerate().for_each(|(i, c)| g.set(i, *c));
        g
    }
}

/// A group in the making.
pub(super) struct Edited {
    group: Group,
    was: bool,
}

/// What a change does to the object's checksums.
#[derive(Default)]
pub(super) struct Edit {
    groups: BTreeMap<u64, Edited>,
    /// Groups (from, to) that go; edited ones stay.
    gone: Option<(u64, u64)>,
}

impl Edit {
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.gone.is_none()
    }
}

/// A block that is not as stored.
pub(super) struct Differs {
    pub block: u64,
    pub want: u32,
    pub got: u32,
}

/// Key of a group of an object in a file of its own.
pub fn sums_key(id: ObjectId, group: u64) -> Vec<u8> {
    let mut k = Vec::with_capacity(33);
    k.push(TAG_SUMS);
    k.extend_from_slice(&id.to_bytes());
    k.extend_from_slice(&group.to_be_bytes());
    k
}

/// (Object, group) of such a key.
pub fn id_of_sums_key(key: &[u8]) -> Option<(ObjectId, u64)> {
    let id = ObjectId::from_bytes(key.get(1..25)?.try_into().ok()?);
    Some((id, u64::from_be_bytes(key.get(25..)?.try_into().ok()?)))
}

fn split(block: u64) -> (u64, usize) {
    (block / GROUP_BLOCKS, (block % GROUP_BLOCKS) as usize)
}

impl Objects {
    fn group(&self, id: ObjectId, rec: &ObjectRecord, g: u64) -> Result<Group, StoreError> {
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

    /// Counts a difference and says it aloud.
    pub(super) fn found(&self, id: ObjectId, rec: &ObjectRecord, d: &Differs) -> StoreError {
        let e = StoreError::Checksum {
            object: id,
            file: rec.file,
            offset: d.block * BLOCK_BYTES,
            path: self.place_name(id, rec),
            want: d.want,
            got: d.got,
        };
        self.counters.checksum_errors.fetch_add(1, Relaxed);
        tracing::error!("target in '{}': {e}", self.dir);
        e
    }

    /// Whether any of blocks `from..to` has a checksum.
    pub(super) fn any_sum(
        &self,
        id: ObjectId,
        rec: &ObjectRecord,
        from: u64,
        to: u64,
    ) -> Result<bool, StoreError> {
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

    /// The checksum of a block after the changes of `c` so far.
    pub(super) fn sum(&self, c: &mut Change, block: u64) -> Result<Option<u32>, StoreError> {
        let (g, i) = split(block);
        Ok(self.edited(c, g)?.group.get(i))
    }

    pub(super) fn set_sum(&self, c: &mut Change, block: u64, crc: Option<u32>) -> Result<(), StoreError> {
        let (g, i) = split(block);
        self.edited(c, g)?.group.set(i, crc);
        Ok(())
    }

    fn edited<'a>(&self, c: &'a mut Change, g: u64) -> Result<&'a mut Edited, StoreError> {
        use std::collections::btree_map::Entry;
        Ok(match c.sums.groups.entry(g) {
            Entry::Occupied(e) => e.into_mut(),
            Entry::Vacant(e) => {
                let group = self.group(c.id, &c.old, g)?;
                let was = !group.is_empty();
                e.insert(Edited { group, was })
            }
        })
    }

    /// The block's present bytes up to the object's end, checked.
    fn old_block(&self, c: &Change, block: u64) -> Result<Vec<u8>, StoreError> {
        let from = block * BLOCK_BYTES;
        let n = c.size().saturating_sub(from).min(BLOCK_BYTES) as usize;
        let mut bytes = vec![0; n];
        self.read_raw(c.id, &c.old, from, &mut bytes)?;
        self.verify(c.id, &c.old, block, &mut bytes)?;
        Ok(bytes)
    }

    /// Notes the checksums of what a write at `off` leaves, and how many bytes before and behind it must be
    /// written as zeros: the rest of blocks without a checksum, whatever their file holds. To be called
    /// before any byte changes. `given`: those of the pieces of `data` that block boundaries make, already
    /// compared with the bytes.
    pub(super) fn sums_of_write(
        &self,
        c: &mut Change,
        off: u64,
        data: &[u8],
        given: Option<&[u32]>,
    ) -> Result<(), StoreError> {
        let end = off + data.len() as u64;
        let blocks = end.div_ceil(BLOCK_BYTES) - off / BLOCK_BYTES;
        assert!(
            given.is_none_or(|g| g.len() as u64 == blocks),
            "there is a checksum for each piece of the data"
        );
        for (n, block) in (off / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)).enumerate() {
            let start = block * BLOCK_BYTES;
            let (from, to) = (off.max(start), end.min(start + BLOCK_BYTES));
            let piece = &data[(from - off) as usize..(to - off) as usize];
            let hole = piece.len() < limits::SUM_BLOCK_BYTES
                && c.old.summed
                && c.old.location == Location::Own
                && start < c.size()
                && self.sum(c, block)?.is_none();
            if hole {
                // Up to the object's end: behind it the file holds nothing.
                c.fill.0 += from - start;
                c.fill.1 += (start + BLOCK_BYTES).min(c.size()).saturating_sub(to);
            }
            let crc = if piece.len() == limits::SUM_BLOCK_BYTES {
                given.map_or_else(|| crc32c(piece), |g| g[n])
            } else {
                let old_end = c.size().min(start + BLOCK_BYTES);
                if start < old_end && (from > start || to < old_end) {
                    let mut bytes = self.old_block(c, block)?;
                    if model::planted::on(model::planted::Bug::SumOfPartForgotten) {
                        continue;
                    }
                    let (a, b) = ((from - start) as usize, (to - start) as usize);
                    if bytes.len() < b {
                        bytes.resize(b, 0);
                    }
                    bytes[a..b].copy_from_slice(piece);
                    ChecksumType::Crc32c.padded(&bytes)
                } else {
                    let mut bytes = vec![0; (to - start) as usize];
                    bytes[(from - start) as usize..].copy_from_slice(piece);
                    ChecksumType::Crc32c.padded(&bytes)
                }
            };
            self.set_sum(c, block, Some(crc))?;
        }
        Ok(())
    }

    /// Notes the checksums of an object cut to `size`.
    pub(super) fn sums_of_cut(&self, c: &mut Change, size: u64) -> Result<(), StoreError> {
        if !size.is_multiple_of(BLOCK_BYTES) {
            self.zero_part(c, size / BLOCK_BYTES, size, u64::MAX)?;
        }
        self.drop_sums(c, size.div_ceil(BLOCK_BYTES), u64::MAX)
    }

    /// Notes the checksums of an object whose bytes `from..to` become zeros.
    pub(super) fn sums_of_zeros(&self, c: &mut Change, from: u64, to: u64) -> Result<(), StoreError> {
        let to = to.min(c.size());
        if from >= to {
            return Ok(());
        }
        // What is zeroed to the object's end is zeros to the block's.
        let first_whole = from.div_ceil(BLOCK_BYTES);
        let end_whole = if to == c.size() { to.div_ceil(BLOCK_BYTES) } else { to / BLOCK_BYTES };
        if !from.is_multiple_of(BLOCK_BYTES) {
            self.zero_part(c, from / BLOCK_BYTES, from, to)?;
        }
        if end_whole * BLOCK_BYTES < to && to / BLOCK_BYTES >= first_whole {
            self.zero_part(c, to / BLOCK_BYTES, from, to)?;
        }
        if first_whole < end_whole { self.drop_sums(c, first_whole, end_whole) } else { Ok(()) }
    }

    fn zero_part(&self, c: &mut Change, block: u64, from: u64, to: u64) -> Result<(), StoreError> {
        let start = block * BLOCK_BYTES;
        if start >= c.size() || self.sum(c, block)?.is_none() {
            // No checksum before, none now: it was zeros, or comes from a time before there were any.
            return Ok(());
        }
        let mut bytes = self.old_block(c, block)?;
        let within = |x: u64| (x.saturating_sub(start).min(bytes.len() as u64)) as usize;
        let (a, b) = (within(from), within(to));
        bytes[a..b].fill(0);
        self.set_sum(c, block, Some(ChecksumType::Crc32c.padded(&bytes)))
    }

    /// Blocks `from..to` have no checksum any more.
    fn drop_sums(&self, c: &mut Change, from: u64, to: u64) -> Result<(), StoreError> {
        let to = to.min(c.size().div_ceil(BLOCK_BYTES));
        if from >= to {
            return Ok(());
        }
        let (first, last) = (from / GROUP_BLOCKS, to / GROUP_BLOCKS);
        let whole = (from.div_ceil(GROUP_BLOCKS), last);
        for g in [first, last] {
            let inside = whole.0 <= g && g < whole.1;
            if inside || g * GROUP_BLOCKS >= to {
                continue;
            }
            let e = self.edited(c, g)?;
            for i in 0..GROUP_BLOCKS {
                let b = g * GROUP_BLOCKS + i;
                if from <= b && b < to {
                    e.group.set(i as usize, None);
                }
            }
        }
        if whole.0 < whole.1 {
            assert!(c.sums.gone.is_none(), "one range a change");
            c.sums.gone = Some(whole);
        }
        Ok(())
    }

    /// Puts what the change did to the checksums into its transaction and the object's new record.
    pub(super) fn store_sums(
        &self,
        c: &mut Change,
        rec: &mut ObjectRecord,
        txn: &mut Txn,
    ) -> Result<(), StoreError> {
        let mut edit = std::mem::take(&mut c.sums);
        if rec.location != Location::Own {
            assert!(edit.groups.keys().all(|g| *g == 0), "a small object has one group");
            assert!(edit.gone.is_none(), "a small object keeps its group");
            if let Some(e) = edit.groups.remove(&0) {
                rec.sums = e.group;
            }
            return Ok(());
        }
        if c.old.location != Location::Own {
            // The file is new: nothing of the object is in the table yet.
            let moved = std::mem::take(&mut rec.sums);
            if !moved.is_empty() {
                edit.groups.entry(0).or_insert(Edited { group: moved, was: false });
            }
            edit.groups.values_mut().for_each(|e| e.was = false);
            edit.gone = None;
        }
        for (g, e) in edit.groups {
            if !e.group.is_empty() {
                txn.put(sums_key(c.id, g), e.group.encode());
            } else if e.was {
                txn.delete(sums_key(c.id, g));
            }
        }
        if let Some((from, to)) = edit.gone {
            rec.stale = self.drop_groups(c.id, from, to, txn)?;
            c.after.stale = rec.stale.map(|_| c.id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_go_there_and_back() {
        assert_eq!(crc32c(&[0; 4096]), ZERO_BLOCK_CRC);
        let mut g = Group::default();
        assert!(g.is_empty() && g.get(63).is_none());
        g.set(63, Some(7));
        g.set(2, Some(0));
        assert_eq!(Group::decode(&g.encode()), Some(g.clone()));
        assert_eq!((g.get(2), g.get(3), g.get(63)), (Some(0), None, Some(7)));
        g.set(63, None);
        assert_eq!(g, Group::of(&[None, None, Some(0)]));
        for n in 0..g.encode().len() {
            assert_eq!(Group::decode(&g.encode()[..n]), None);
        }
        let id = ObjectId { origin: model::Fid::new(7, 8, 9), component: 1, stripe: 2 };
        assert_eq!(id_of_sums_key(&sums_key(id, 77)), Some((id, 77)));
    }
}
