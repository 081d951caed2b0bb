//! What a change does to the checksums of its object.

use super::location::{Location, ObjectRecord};
use super::sums::{BLOCK_BYTES, GROUP_BLOCKS, Group, split, sums_key};
use super::verify::Checksums;
use crate::{StoreError, Txn};
use model::{ObjectId, limits};
use std::collections::BTreeMap;
use wire::checksum::ChecksumType;
use wire::frame::crc32c;

/// A group in the making.
struct Edited {
    group: Group,
    was: bool,
}

/// What a change does to the object's checksums.
pub(super) struct Edit {
    id: ObjectId,
    groups: BTreeMap<u64, Edited>,
    /// Groups (from, to) that go; edited ones stay.
    gone: Option<(u64, u64)>,
}

impl Edit {
    /// Nothing yet.
    pub fn new(id: ObjectId) -> Edit {
        Edit { id, groups: BTreeMap::new(), gone: None }
    }
}

impl Checksums {
    /// The checksum of a block as the change leaves it so far.
    pub(super) fn sum(
        &self,
        edit: &mut Edit,
        old: &ObjectRecord,
        block: u64,
    ) -> Result<Option<u32>, StoreError> {
        let (g, i) = split(block);
        Ok(self.edited(edit, old, g)?.group.get(i))
    }

    pub(super) fn set_sum(
        &self,
        edit: &mut Edit,
        old: &ObjectRecord,
        block: u64,
        crc: Option<u32>,
    ) -> Result<(), StoreError> {
        let (g, i) = split(block);
        self.edited(edit, old, g)?.group.set(i, crc);
        Ok(())
    }

    fn edited<'a>(
        &self,
        edit: &'a mut Edit,
        old: &ObjectRecord,
        g: u64,
    ) -> Result<&'a mut Edited, StoreError> {
        use std::collections::btree_map::Entry;
        Ok(match edit.groups.entry(g) {
            Entry::Occupied(e) => e.into_mut(),
            Entry::Vacant(e) => {
                let group = self.group(edit.id, old, g)?;
                let was = !group.is_empty();
                e.insert(Edited { group, was })
            }
        })
    }

    /// The block's present bytes up to the object's end, checked.
    fn old_block(&self, id: ObjectId, old: &ObjectRecord, block: u64) -> Result<Vec<u8>, StoreError> {
        let from = block * BLOCK_BYTES;
        let n = old.attr.size.saturating_sub(from).min(BLOCK_BYTES) as usize;
        let mut bytes = vec![0; n];
        self.files.read_raw(id, old, from, &mut bytes)?;
        self.verify(id, old, block, &mut bytes)?;
        Ok(bytes)
    }

    /// Notes the checksums of what a write at `off` leaves; returns how many bytes before and behind it must
    /// be written as zeros: the rest of blocks without a checksum, whatever their file holds. To be called
    /// before any byte changes. `given`: those of the pieces of `data` that block boundaries make, already
    /// compared with the bytes.
    pub(super) fn of_write(
        &self,
        edit: &mut Edit,
        old: &ObjectRecord,
        off: u64,
        data: &[u8],
        given: Option<&[u32]>,
    ) -> Result<(u64, u64), StoreError> {
        let end = off + data.len() as u64;
        let mut fill = (0, 0);
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
                && old.summed
                && old.location == Location::Own
                && start < old.attr.size
                && self.sum(edit, old, block)?.is_none();
            if hole {
                // Up to the object's end: behind it the file holds nothing.
                fill.0 += from - start;
                fill.1 += (start + BLOCK_BYTES).min(old.attr.size).saturating_sub(to);
            }
            let crc = if piece.len() == limits::SUM_BLOCK_BYTES {
                given.map_or_else(|| crc32c(piece), |g| g[n])
            } else {
                let old_end = old.attr.size.min(start + BLOCK_BYTES);
                if start < old_end && (from > start || to < old_end) {
                    let mut bytes = self.old_block(edit.id, old, block)?;
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
            self.set_sum(edit, old, block, Some(crc))?;
        }
        Ok(fill)
    }

    /// Notes the checksums of an object cut to `size`.
    pub(super) fn of_cut(&self, edit: &mut Edit, old: &ObjectRecord, size: u64) -> Result<(), StoreError> {
        if !size.is_multiple_of(BLOCK_BYTES) {
            self.zero_part(edit, old, size / BLOCK_BYTES, size, u64::MAX)?;
        }
        self.drop_sums(edit, old, size.div_ceil(BLOCK_BYTES), u64::MAX)
    }

    /// Notes the checksums of an object whose bytes `from..to` become zeros.
    pub(super) fn of_zeros(
        &self,
        edit: &mut Edit,
        old: &ObjectRecord,
        from: u64,
        to: u64,
    ) -> Result<(), StoreError> {
        let to = to.min(old.attr.size);
        if from >= to {
            return Ok(());
        }
        // What is zeroed to the object's end is zeros to the block's.
        let first_whole = from.div_ceil(BLOCK_BYTES);
        let end_whole = if to == old.attr.size { to.div_ceil(BLOCK_BYTES) } else { to / BLOCK_BYTES };
        if !from.is_multiple_of(BLOCK_BYTES) {
            self.zero_part(edit, old, from / BLOCK_BYTES, from, to)?;
        }
        if end_whole * BLOCK_BYTES < to && to / BLOCK_BYTES >= first_whole {
            self.zero_part(edit, old, to / BLOCK_BYTES, from, to)?;
        }
        if first_whole < end_whole { self.drop_sums(edit, old, first_whole, end_whole) } else { Ok(()) }
    }

    fn zero_part(
        &self,
        edit: &mut Edit,
        old: &ObjectRecord,
        block: u64,
        from: u64,
        to: u64,
    ) -> Result<(), StoreError> {
        let start = block * BLOCK_BYTES;
        if start >= old.attr.size || self.sum(edit, old, block)?.is_none() {
            // No checksum before, none now: it was zeros, or comes from a time before there were any.
            return Ok(());
        }
        let mut bytes = self.old_block(edit.id, old, block)?;
        let within = |x: u64| (x.saturating_sub(start).min(bytes.len() as u64)) as usize;
        let (a, b) = (within(from), within(to));
        bytes[a..b].fill(0);
        self.set_sum(edit, old, block, Some(ChecksumType::Crc32c.padded(&bytes)))
    }

    /// Blocks `from..to` have no checksum any more.
    fn drop_sums(&self, edit: &mut Edit, old: &ObjectRecord, from: u64, to: u64) -> Result<(), StoreError> {
        let to = to.min(old.attr.size.div_ceil(BLOCK_BYTES));
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
            let e = self.edited(edit, old, g)?;
            for i in 0..GROUP_BLOCKS {
                let b = g * GROUP_BLOCKS + i;
                if from <= b && b < to {
                    e.group.set(i as usize, None);
                }
            }
        }
        if whole.0 < whole.1 {
            assert!(edit.gone.is_none(), "one range a change");
            edit.gone = Some(whole);
        }
        Ok(())
    }

    /// Puts what the change did to the checksums into its transaction and the object's new record. True:
    /// groups are left, which the record says, to be dropped once that is committed.
    pub(super) fn store(
        &self,
        edit: &mut Edit,
        old: &ObjectRecord,
        rec: &mut ObjectRecord,
        txn: &mut Txn,
    ) -> Result<bool, StoreError> {
        let (mut groups, mut gone) = (std::mem::take(&mut edit.groups), edit.gone.take());
        if rec.location != Location::Own {
            assert!(groups.keys().all(|g| *g == 0), "a small object has one group");
            assert!(gone.is_none(), "a small object keeps its group");
            if let Some(e) = groups.remove(&0) {
                rec.sums = e.group;
            }
            return Ok(false);
        }
        if old.location != Location::Own {
            // The file is new: nothing of the object is in the table yet.
            let moved = std::mem::take(&mut rec.sums);
            if !moved.is_empty() {
                groups.entry(0).or_insert(Edited { group: moved, was: false });
            }
            groups.values_mut().for_each(|e| e.was = false);
            gone = None;
        }
        for (g, e) in groups {
            if !e.group.is_empty() {
                txn.put(sums_key(edit.id, g), e.group.encode());
            } else if e.was {
                txn.delete(sums_key(edit.id, g));
            }
        }
        let Some((from, to)) = gone else { return Ok(false) };
        rec.stale = self.drop_groups(edit.id, from, to, txn)?;
        Ok(rec.stale.is_some())
    }
}
