//! write: bytes into an object, wherever it lies, moving it when it outgrows its place.

use super::change::{Change, Done, unless_fatal};
use super::files::FileKey;
use super::location::{INLINE_MAX_BYTES, Location, ObjectRecord, PACKED_MAX_BYTES, class_for};
use super::pending::Waiting;
use super::redo::Redo;
use super::sums::BLOCK_BYTES;
use super::{FinishTxn, ObjectMeta, Objects};
use crate::{Lsn, StoreError};
use bytes::Bytes;
use model::limits::FILE_SIZE_MAX_BYTES;
use model::{Errno, ObjectAttr, ObjectId};
use std::sync::Arc;
use world::DiskFile;

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
        c.names_owner = true;
        let end = off + data.len() as u64;
        if end > c.size() || c.is_sparse() {
            self.need_space(data.len() as u64)?;
        }
        if c.sums.is_empty() {
            self.sums_of_write(&mut c, off, &data, crcs.as_deref())?;
        }
        let size = c.size().max(end);
        let placed = match target {
            Destination::Inline => self.write_inline(&c, off, &data),
            Destination::Slot => self.write_packed(&mut c, off, &data),
            Destination::NewSlot(class) => self.write_new_slot(&mut c, class, off, &data),
            Destination::Own | Destination::OwnFlushed => self.write_own(&mut c, target, off, &data),
            Destination::OwnInOrder => self.write_in_order(&mut c, off, &data),
            Destination::NewOwn => self.write_new_own(&mut c, off, &data),
        };
        match placed {
            Ok(location) => self.submit(c, location, size, &meta, off, finish),
            Err(e) => {
                self.give_up(&c);
                Err(unless_fatal(self, e))
            }
        }
    }

    fn write_inline(&self, c: &Change, off: u64, data: &[u8]) -> Result<Location, StoreError> {
        let mut bytes = self.small_content(c.id, &c.old)?;
        splice(&mut bytes, off, data);
        Ok(Location::Inline(bytes.into()))
    }

    fn write_packed(&self, c: &mut Change, off: u64, data: &Bytes) -> Result<Location, StoreError> {
        let Location::Packed(p) = c.old.location else { unreachable!("chosen for packed objects") };
        let size = c.size();
        if off <= size {
            self.write_slot(c, p, off, data.clone())?;
        } else {
            // The slot's bytes behind the object's end are not known to be zeros.
            let mut filled = vec![0; usize::try_from(off - size).expect("within a slot")];
            filled.extend_from_slice(data);
            self.write_slot(c, p, size, filled.into())?;
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
        let mut bytes = self.small_content(c.id, &c.old)?;
        bytes.resize(usize::try_from(c.size()).expect("a slot's size"), 0);
        splice(&mut bytes, off, data);
        let p = self.take_slot(c, class);
        self.write_slot(c, p, 0, bytes.into())?;
        Ok(Location::Packed(p))
    }

    fn write_own(
        &self,
        c: &mut Change,
        target: Destination,
        off: u64,
        data: &Bytes,
    ) -> Result<Location, StoreError> {
        let (file, fill) = (self.own_file(c)?, c.fill);
        if target == Destination::Own {
            self.write_journaled(c, &file, off, data, fill)?;
        } else {
            let (off, data) = filled(off, data, fill);
            self.written(c, &file, self.files.write_bulk(&*file, &data, off))?;
            self.flush_own(c, &*file)?;
        }
        Ok(Location::Own)
    }

    /// Bytes for the object's own file that the record carries, with zeros before and behind them. Over bytes
    /// that are there they go once the record is committed.
    pub(super) fn write_journaled(
        &self,
        c: &mut Change,
        file: &Arc<dyn DiskFile>,
        off: u64,
        data: &Bytes,
        fill: (u64, u64),
    ) -> Result<(), StoreError> {
        let (off, data) = filled(off, data, fill);
        c.redo.push(Redo::WriteOwn { object: c.id, offset: off, data: data.clone() });
        if off >= c.size() {
            return self.written(c, file, self.files.write_bulk(&**file, &data, off));
        }
        self.reserve(c, &**file, 0, off, data.len() as u64)?;
        c.put_off.push(Waiting { key: FileKey::Own(c.id), at: off, off, data });
        Ok(())
    }

    /// What came of writing to the object's own file at once. If it failed and nothing is the matter with the
    /// disk, the space of a part that was written behind the end is given back.
    pub(super) fn written(
        &self,
        c: &Change,
        file: &Arc<dyn DiskFile>,
        done: std::io::Result<()>,
    ) -> Result<(), StoreError> {
        self.files.mark(FileKey::Own(c.id), file.clone());
        let Err(e) = done else { return Ok(()) };
        let e = self.own_error(c, e);
        if e.is_harmless() {
            self.cut_now(c, &**file)?;
        }
        Err(e)
    }
}

/// The data with zeros before and behind it.
fn filled(off: u64, data: &Bytes, fill: (u64, u64)) -> (u64, Bytes) {
    if fill == (0, 0) {
        return (off, data.clone());
    }
    assert!(fill.0 < BLOCK_BYTES && fill.1 < BLOCK_BYTES, "zeros fill up no more than a block");
    let mut all = Vec::with_capacity(data.len() + (fill.0 + fill.1) as usize);
    all.resize(fill.0 as usize, 0);
    all.extend_from_slice(data);
    all.resize(all.len() + fill.1 as usize, 0);
    (off - fill.0, all.into())
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
