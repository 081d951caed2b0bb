//! write_list: several ranges of an object at once, most of them in one transaction, and as far as that can
//! be without a second copy in the journal.

use super::change::{Change, Done};
use super::files::FileKey;
use super::location::{Location, ObjectRecord, PACKED_MAX_BYTES};
use super::ordered::Relied;
use super::submit::unless_fatal;
use super::sums::BLOCK_BYTES;
use super::{FinishTxn, ObjectMeta, Objects};
use crate::{Lsn, StoreError};
use bytes::Bytes;
use model::limits::FILE_SIZE_MAX_BYTES;
use model::{Errno, ObjectAttr, ObjectId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Whole blocks of at least so many bytes go past the journal where that can be: they are many that go to the
/// disk together. With less, flushing the file costs more than writing twice.
const IN_ORDER_MIN_BYTES: u64 = 32 << 10;
/// A transaction takes no further ranges when it has so many bytes for the journal, …
const JOURNALED_MAX_BYTES: usize = 1 << 20;
/// … or so many in all.
const BATCH_MAX_BYTES: usize = 8 << 20;

/// One of several writes.
pub struct ListPart {
    pub off: u64,
    pub data: Bytes,
    /// As in [`Objects::write_summed`].
    pub crcs: Option<Vec<u32>>,
}

impl ListPart {
    fn end(&self) -> u64 {
        self.off + self.data.len() as u64
    }

    /// Its bytes up to `a`, up to `b`, and behind, as far as there are any; both at boundaries of blocks.
    fn cut(&self, a: u64, b: u64) -> Vec<ListPart> {
        assert!(
            a.is_multiple_of(BLOCK_BYTES) && b.is_multiple_of(BLOCK_BYTES),
            "parts are cut between blocks"
        );
        assert!(self.off <= a && a <= b && b <= self.end(), "a part is cut within itself");
        let first = self.off / BLOCK_BYTES;
        let of = |&(from, to): &(u64, u64)| {
            let data = self.data.slice((from - self.off) as usize..(to - self.off) as usize);
            let blocks = (from / BLOCK_BYTES - first) as usize..(to.div_ceil(BLOCK_BYTES) - first) as usize;
            ListPart { off: from, data, crcs: self.crcs.as_ref().map(|c| c[blocks].to_vec()) }
        };
        [(self.off, a), (a, b), (b, self.end())].iter().filter(|(from, to)| from < to).map(of).collect()
    }
}

/// A part, or a piece of one, and how it goes to the object's file.
struct Piece {
    part: ListPart,
    /// Flushed with the record, not in the journal: it goes over nothing that has a checksum.
    in_order: bool,
}

impl Objects {
    /// Writes to several places, in order and apart, in as few transactions as that takes: in all but the
    /// last `each` adds the caller's part. Returns what [`Objects::write_summed`] returns of the last part.
    /// Errors as there; what was written before stays. A call whose future is dropped has done some of the
    /// parts, from the first on.
    pub async fn write_list(
        self: &Arc<Self>,
        id: ObjectId,
        parts: Vec<ListPart>,
        meta: ObjectMeta,
        each: impl Fn() -> FinishTxn,
        finish: FinishTxn,
    ) -> Result<(u64, ObjectAttr, Lsn), StoreError> {
        assert!(parts.is_sorted_by(|a, b| a.end() <= b.off), "the caller compared them");
        let mut parts = VecDeque::from(parts);
        let last = parts.back().expect("a list has parts").off;
        let mut finish = Some(finish);
        loop {
            self.files.room(self.db.core()).await?;
            self.files.room_in_order(self.db.core()).await?;
            let (guard, old) = self.begin(id).await?;
            let (attr, lsn) = if old.location == Location::Own && old.summed {
                let batch = self.next_batch(id, &old, &mut parts)?;
                for p in batch.iter().filter(|p| !p.in_order) {
                    self.files.settled(self.db.core(), id, p.part.off, p.part.end()).await?;
                }
                let finish = if parts.is_empty() { finish.take().expect("once") } else { each() };
                let (quick, meta) = (bytes_of(&batch) as u64 <= PACKED_MAX_BYTES, meta.clone());
                let write = move |o: &Objects| o.write_batch(Change::new(id, old), batch, &meta, finish);
                self.clone().run(vec![guard], quick, write).await?
            } else {
                // Where it lies is for that one to see to.
                drop(guard);
                let p = parts.pop_front().expect("the loop ends with the last one");
                let finish = if parts.is_empty() { finish.take().expect("once") } else { each() };
                let done = self.write_summed(id, Some(p.off), p.data, p.crcs, meta.clone(), finish).await?;
                (done.1, done.2)
            };
            if parts.is_empty() {
                return Ok((last, attr, lsn));
            }
        }
    }

    /// What the next transaction takes: no two pieces in the same block, of which each would see the bytes
    /// from before.
    fn next_batch(
        &self,
        id: ObjectId,
        old: &ObjectRecord,
        parts: &mut VecDeque<ListPart>,
    ) -> Result<Vec<Piece>, StoreError> {
        let mut out: Vec<Piece> = Vec::new();
        let (mut journaled, mut all, mut end) = (0, 0, 0u64);
        while let Some(p) = parts.pop_front_if(|p| {
            let apart = end.div_ceil(BLOCK_BYTES) <= p.off / BLOCK_BYTES;
            apart && journaled < JOURNALED_MAX_BYTES && all < BATCH_MAX_BYTES
        }) {
            if p.end() > FILE_SIZE_MAX_BYTES {
                return Err(StoreError::Errno(Errno::EFBIG));
            }
            end = p.end();
            for p in self.pieces_of(id, old, p)? {
                all += p.part.data.len();
                journaled += if p.in_order { 0 } else { p.part.data.len() };
                out.push(p);
            }
        }
        assert!(!out.is_empty(), "the first part always fits");
        Ok(out)
    }

    /// How a part goes to the file: at once, or its whole blocks by themselves, if only its ends go over
    /// bytes that have checksums.
    fn pieces_of(&self, id: ObjectId, old: &ObjectRecord, p: ListPart) -> Result<Vec<Piece>, StoreError> {
        let (first, end) = (p.off.div_ceil(BLOCK_BYTES) * BLOCK_BYTES, p.end() / BLOCK_BYTES * BLOCK_BYTES);
        let applied = self.db.core().state.borrow().applied;
        if first + IN_ORDER_MIN_BYTES > end
            || self.files.is_shaken(id, applied)
            || self.sums.goes_over(id, old, first, end)?
        {
            return Ok(vec![Piece { part: p, in_order: false }]);
        }
        if !self.sums.goes_over(id, old, p.off, p.end())? {
            return Ok(vec![Piece { part: p, in_order: true }]);
        }
        let cut = p.cut(first, end).into_iter();
        Ok(cut.map(|part| Piece { in_order: part.off == first, part }).collect())
    }

    fn write_batch(
        &self,
        mut c: Change,
        batch: Vec<Piece>,
        meta: &ObjectMeta,
        finish: FinishTxn,
    ) -> Result<Done<ObjectAttr>, StoreError> {
        assert!(
            c.old.location == Location::Own && c.old.summed,
            "a batch goes to a file whose holes are known"
        );
        let apart = batch.is_sorted_by(|a, b| a.part.end() <= b.part.off);
        assert!(apart, "the pieces of a batch do not overlap");
        let last = batch.last().expect("made so").part.off;
        let size = c.size().max(batch.last().expect("made so").part.end());
        if size > c.size() || c.is_sparse() {
            self.data.need_space(bytes_of(&batch) as u64)?;
        }
        let mut fills = Vec::with_capacity(batch.len());
        for Piece { part, .. } in &batch {
            let given = part.crcs.as_deref();
            fills.push(self.sums.of_write(&mut c.sums, &c.old, part.off, &part.data, given)?);
        }
        match self.place_batch(&mut c, &batch, &fills) {
            Ok(()) => self.submit(c, Location::Own, size, meta, last, finish),
            Err(e) => {
                self.data.give_up(&c);
                Err(unless_fatal(self, e))
            }
        }
    }

    /// Brings the pieces to the object's own file, or on their way. `fills`: zeros before and behind each.
    fn place_batch(&self, c: &mut Change, batch: &[Piece], fills: &[(u64, u64)]) -> Result<(), StoreError> {
        let file = if batch.iter().any(|p| p.in_order) {
            self.data.file_in_order(c)?
        } else {
            self.data.own_file(c)?
        };
        let mut ranges = Vec::new();
        for (Piece { part, in_order }, &fill) in batch.iter().zip(fills) {
            if *in_order {
                ranges.push(self.data.write_ordered(c, &file, part.off, &part.data, fill)?);
            } else {
                self.data.write_journaled(c, &file, part.off, &part.data, fill)?;
            }
        }
        if !ranges.is_empty() {
            c.relied = Some(Relied { key: FileKey::Own(c.id), file, dir: None, ranges });
        }
        Ok(())
    }
}

fn bytes_of(batch: &[Piece]) -> usize {
    batch.iter().map(|p| p.part.data.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_cut_at_boundaries_of_blocks_with_its_checksums() {
        let data = Bytes::from((0..10_000u32).map(|i| i as u8).collect::<Vec<_>>());
        let of = |p: &ListPart| (p.off, p.data.len(), p.crcs.clone().unwrap());
        let p = ListPart { off: 4000, data: data.clone(), crcs: Some(vec![1, 2, 3, 4]) };
        let all: Vec<_> = p.cut(4096, 12_288).iter().map(of).collect();
        assert_eq!(all, [(4000, 96, vec![1]), (4096, 8192, vec![2, 3]), (12_288, 1712, vec![4])]);
        let p = ListPart { off: 8192, data: data.slice(..8192), crcs: Some(vec![1, 2]) };
        assert_eq!(p.cut(8192, 16_384).iter().map(of).collect::<Vec<_>>(), [(8192, 8192, vec![1, 2])]);
    }
}
