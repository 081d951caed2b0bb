//! write: bytes into an object, wherever it lies, moving it when it outgrows its place.

use super::change::{Change, Done};
use super::location::{INLINE_MAX_BYTES, Location, ObjectRecord, PACKED_MAX_BYTES, class_for};
use super::submit::unless_fatal;
use super::sums::BLOCK_BYTES;
use super::{FinishTxn, ObjectMeta, Objects};
use crate::{Lsn, StoreError};
use bytes::Bytes;
use model::limits::FILE_SIZE_MAX_BYTES;
use model::{Errno, ObjectAttr, ObjectId};
use std::sync::Arc;

/// One write, as the caller wants it.
pub(super) struct Write {
    pub off: u64,
    pub data: Bytes,
    pub crcs: Option<Vec<u32>>,
    pub meta: ObjectMeta,
    pub finish: FinishTxn,
}

/// Where a write leaves the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Destination {
    Inline,
    /// The slot it has.
    Slot,
    /// A slot of this class.
    NewSlot(u8),
    /// Its own file, with the bytes in the journal.
    Own,
    /// Its own file, where there are no checksums yet: flushed with the record …
    OwnInOrder,
    /// … or before it.
    OwnFlushed,
    NewOwn,
}

impl Destination {
    fn choose(rec: &ObjectRecord, off: u64, end: u64) -> Destination {
        let size = rec.attr.size;
        let new = size.max(end);
        match &rec.location {
            Location::Inline(_) if new <= INLINE_MAX_BYTES => Destination::Inline,
            Location::Packed(p) if new <= p.slot_bytes() => Destination::Slot,
            Location::Own => Destination::Own,
            // A hole of any size belongs into a file, which stores none.
            _ => match class_for(new) {
                Some(class) if off <= size.saturating_add(INLINE_MAX_BYTES) => Destination::NewSlot(class),
                _ => Destination::NewOwn,
            },
        }
    }
}

impl Objects {
    /// [`Objects::write_summed`] by a caller that has no checksums.
    pub fn write(
        self: &Arc<Self>,
        id: ObjectId,
        off: Option<u64>,
        data: Bytes,
        meta: ObjectMeta,
        finish: FinishTxn,
    ) -> world::BoxFuture<Result<(u64, ObjectAttr, Lsn), StoreError>> {
        self.write_summed(id, off, data, None, meta, finish)
    }

    /// Writes; `off` `None` appends at the object's end. Returns the offset written, the new attributes and
    /// the transaction to wait for. A payload above 64 KiB is in the journal only if it goes over bytes that
    /// are there.
    ///
    /// `crcs`: checksums of the pieces that block boundaries make of `data`, already compared with it; for
    /// appends they are only used if the end happens to be at a boundary.
    ///
    /// `ESTALE`: the object was destroyed. `EFBIG`: over what the host's files carry. `ENOSPC`: the object
    /// is as before, but bytes in the write's range may be new. [`StoreError::Checksum`]: a block of which a
    /// part is written is damaged.
    pub fn write_summed(
        self: &Arc<Self>,
        id: ObjectId,
        off: Option<u64>,
        data: Bytes,
        crcs: Option<Vec<u32>>,
        meta: ObjectMeta,
        finish: FinishTxn,
    ) -> world::BoxFuture<Result<(u64, ObjectAttr, Lsn), StoreError>> {
        let me = self.clone();
        Box::pin(async move {
            me.files.room(me.db.core()).await?;
            me.files.room_in_order(me.db.core()).await?;
            let (guard, old) = me.begin(id).await?;
            let crcs = crcs.filter(|_| off.is_some() || old.attr.size.is_multiple_of(BLOCK_BYTES));
            let off = off.unwrap_or(old.attr.size);
            let end = off.checked_add(data.len() as u64).filter(|e| *e <= FILE_SIZE_MAX_BYTES);
            let end = end.ok_or(StoreError::Errno(Errno::EFBIG))?;
            if let Some(c) = &crcs {
                let pieces = end.div_ceil(BLOCK_BYTES) - off / BLOCK_BYTES;
                assert_eq!(c.len() as u64, pieces, "the caller compared them");
            }
            let mut target = Destination::choose(&old, off, end);
            let small = data.len() as u64 <= PACKED_MAX_BYTES;
            if !small && target == Destination::Own {
                target = me.order_of(id, &old, off, end)?;
            }
            // What waits in memory goes to other bytes, or goes first.
            if !matches!(target, Destination::Slot | Destination::Own | Destination::OwnInOrder) {
                me.files.drained(me.db.core(), id).await?;
            }
            if target == Destination::Own {
                me.files.settled(me.db.core(), id, off, end).await?;
            }
            let w = Write { off, data, crcs, meta, finish };
            let quick = small && target != Destination::NewOwn;
            let (attr, lsn) =
                me.run(vec![guard], quick, move |o| o.write_locked(Change::new(id, old), target, w)).await?;
            Ok((off, attr, lsn))
        })
    }

    pub(super) fn write_locked(
        &self,
        mut c: Change,
        target: Destination,
        w: Write,
    ) -> Result<Done<ObjectAttr>, StoreError> {
        let Write { off, data, crcs, meta, finish } = w;
        assert!(!data.is_empty(), "a write has bytes");
        let end = off + data.len() as u64;
        if end > c.size() || c.is_sparse() {
            self.data.need_space(data.len() as u64)?;
        }
        c.fill = self.sums.of_write(&mut c.sums, &c.old, off, &data, crcs.as_deref())?;
        let size = c.size().max(end);
        let placed = match target {
            Destination::Inline => self.write_inline(&c, off, &data),
            Destination::Slot => self.write_packed(&mut c, off, &data),
            Destination::NewSlot(class) => self.write_new_slot(&mut c, class, off, &data),
            Destination::Own | Destination::OwnFlushed => self.write_own(&mut c, target, off, &data),
            Destination::OwnInOrder => self.data.write_in_order(&mut c, off, &data),
            Destination::NewOwn => self.data.write_new_own(&mut c, off, &data),
        };
        match placed {
            Ok(location) => self.submit(c, location, size, &meta, off, finish),
            Err(e) => {
                self.data.give_up(&c);
                Err(unless_fatal(self, e))
            }
        }
    }

    /// How a large write to the object's own file goes: over no byte that has a checksum it goes to the page
    /// cache, and is flushed with its record, or before it if a start might do something else with the file
    /// behind its back.
    pub(super) fn order_of(
        &self,
        id: ObjectId,
        old: &ObjectRecord,
        off: u64,
        end: u64,
    ) -> Result<Destination, StoreError> {
        if self.sums.goes_over(id, old, off, end)? {
            return Ok(Destination::Own);
        }
        let applied = self.db.core().state.borrow().applied;
        Ok(if self.files.is_shaken(id, applied) { Destination::OwnFlushed } else { Destination::OwnInOrder })
    }

    fn write_inline(&self, c: &Change, off: u64, data: &[u8]) -> Result<Location, StoreError> {
        let mut bytes = self.files.small_content(c.id, &c.old)?;
        splice(&mut bytes, off, data);
        Ok(Location::Inline(bytes.into()))
    }

    fn write_packed(&self, c: &mut Change, off: u64, data: &Bytes) -> Result<Location, StoreError> {
        let Location::Packed(p) = c.old.location else { unreachable!("chosen for packed objects") };
        let size = c.size();
        if off <= size {
            self.data.write_slot(c, p, off, data.clone())?;
        } else {
            // The slot's bytes behind the object's end are not known to be zeros.
            let mut filled = vec![0; usize::try_from(off - size).expect("within a slot")];
            filled.extend_from_slice(data);
            self.data.write_slot(c, p, size, filled.into())?;
        }
        Ok(Location::Packed(p))
    }

    fn write_new_slot(
        &self,
        c: &mut Change,
        class: u8,
        off: u64,
        data: &[u8],
    ) -> Result<Location, StoreError> {
        let mut bytes = self.files.small_content(c.id, &c.old)?;
        bytes.resize(usize::try_from(c.size()).expect("a slot's size"), 0);
        splice(&mut bytes, off, data);
        let p = self.data.take_slot(c, class);
        self.data.write_slot(c, p, 0, bytes.into())?;
        Ok(Location::Packed(p))
    }

    fn write_own(
        &self,
        c: &mut Change,
        target: Destination,
        off: u64,
        data: &Bytes,
    ) -> Result<Location, StoreError> {
        let (file, fill) = (self.data.own_file(c)?, c.fill);
        if target == Destination::Own {
            self.data.write_journaled(c, &file, off, data, fill)?;
        } else {
            self.data.write_flushed(c, &file, off, data, fill)?;
        }
        Ok(Location::Own)
    }
}

/// Puts `data` at `off`, zeros before it if the bytes were shorter.
fn splice(bytes: &mut Vec<u8>, off: u64, data: &[u8]) {
    let off = usize::try_from(off).expect("small objects only");
    let end = off + data.len();
    assert!(end as u64 <= PACKED_MAX_BYTES, "only small objects are put together in memory");
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[off..end].copy_from_slice(data);
}
