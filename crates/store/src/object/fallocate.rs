//! fallocate: reserve, zero, punch.

use super::change::{Change, Done};
use super::files::FileKey;
use super::location::{INLINE_MAX_BYTES, Location, ObjectRecord};
use super::redo::Redo;
use super::submit::unless_fatal;
use super::zeros::allocate_or_zero;
use super::{FinishTxn, ObjectMeta, Objects};
use crate::{Lsn, StoreError};
use model::limits::FILE_SIZE_MAX_BYTES;
use model::{Errno, ObjectAttr, ObjectId};
use std::io;
use std::sync::Arc;
use wire::msg::fallocate::{FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE};
use world::DiskFile;

/// One request, checked.
#[derive(Clone, Copy)]
struct Range {
    mode: u32,
    off: u64,
    len: u64,
    /// Object size afterwards.
    size: u64,
}

impl Range {
    fn check(mode: u32, off: u64, len: u64, old_size: u64) -> Result<Range, Errno> {
        let zero_keep = FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE;
        let punch = FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE;
        if ![0, FALLOC_KEEP_SIZE, punch, FALLOC_ZERO_RANGE, zero_keep].contains(&mode) {
            return Err(Errno::EOPNOTSUPP);
        }
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let end = off.checked_add(len).filter(|e| *e <= FILE_SIZE_MAX_BYTES).ok_or(Errno::EFBIG)?;
        let size = if mode & FALLOC_KEEP_SIZE != 0 { old_size } else { old_size.max(end) };
        Ok(Range { mode, off, len, size })
    }

    fn end(&self) -> u64 {
        self.off + self.len
    }

    fn zeroes(&self) -> bool {
        self.mode & (FALLOC_PUNCH_HOLE | FALLOC_ZERO_RANGE) != 0
    }

    /// Whether the object must have a file of its own for it: space is to be reserved that its present
    /// place does not have.
    fn needs_own(&self, rec: &ObjectRecord) -> bool {
        let room = match &rec.location {
            Location::Inline(_) => INLINE_MAX_BYTES,
            Location::Packed(p) => p.slot_bytes(),
            Location::Own => return false,
        };
        self.mode & FALLOC_PUNCH_HOLE == 0 && (self.end() > room || self.size > room)
    }
}

impl Objects {
    /// `mode` as in fallocate(2): keep size 1, punch 2 (with keep size), zero 0x10; others give EOPNOTSUPP.
    pub fn fallocate(
        self: &Arc<Self>,
        id: ObjectId,
        mode: u32,
        off: u64,
        len: u64,
        meta: ObjectMeta,
        finish: FinishTxn,
    ) -> world::BoxFuture<Result<(ObjectAttr, Lsn), StoreError>> {
        let me = self.clone();
        Box::pin(async move {
            let (guard, old) = me.begin(id).await?;
            let r = Range::check(mode, off, len, old.attr.size).map_err(StoreError::Errno)?;
            me.files.drained(me.db.core(), id).await?;
            if r.zeroes() {
                me.files.settled(me.db.core(), id, r.off, r.end()).await?;
            }
            // Own files: the host may have a lot to do for a large range.
            let quick = old.location != Location::Own && !r.needs_own(&old);
            me.run(vec![guard], quick, move |o| o.fallocate_locked(Change::new(id, old), r, &meta, finish))
                .await
        })
    }

    fn fallocate_locked(
        &self,
        mut c: Change,
        r: Range,
        meta: &ObjectMeta,
        finish: FinishTxn,
    ) -> Result<Done<ObjectAttr>, StoreError> {
        assert!(r.size >= c.size(), "fallocate never makes an object shorter");
        if r.zeroes() {
            self.sums.of_zeros(&mut c.sums, &c.old, r.off, r.end())?;
        }
        match self.place_for_range(&mut c, r) {
            Ok(location) => self.submit(c, location, r.size, meta, r.off, finish),
            Err(e) => {
                self.data.give_up(&c);
                Err(unless_fatal(self, e))
            }
        }
    }

    fn place_for_range(&self, c: &mut Change, r: Range) -> Result<Location, StoreError> {
        if r.mode & FALLOC_PUNCH_HOLE == 0 {
            self.data.need_space(r.len)?;
        }
        if r.needs_own(&c.old) {
            let (file, _) = self.data.create_own(c)?;
            let size = c.size();
            file.set_len(size).map_err(|e| self.data.own_error(c, e))?;
            allocate_or_zero(&*file, r.mode, r.off, r.len).map_err(|e| self.data.own_error(c, e))?;
            file.set_len(r.size).map_err(|e| self.data.own_error(c, e))?;
            self.data.flush_new_own(c, &*file)?;
            return Ok(Location::Own);
        }
        match c.old.location.clone() {
            Location::Inline(b) => {
                let mut bytes = b.to_vec();
                if r.zeroes() {
                    zero_within(&mut bytes, r);
                }
                Ok(Location::Inline(bytes.into()))
            }
            Location::Packed(p) => {
                // What the object had is zeroed if asked for; what it gains is zeroed always.
                let size = c.size();
                let to = if r.size > size { r.size } else { r.end().min(size) };
                let (from, to) = if r.zeroes() { (r.off.min(size), to) } else { (size, r.size) };
                for (a, b) in [(from.min(size), to.min(size)), (from.max(size), to.max(size))] {
                    if a < b {
                        let zeros = vec![0; usize::try_from(b - a).expect("within a slot")];
                        self.data.write_slot(c, p, a, zeros.into())?;
                    }
                }
                Ok(Location::Packed(p))
            }
            Location::Own => {
                let file = self.data.own_file(c)?;
                let done = self.allocate_own(c, &*file, r);
                self.files.mark(FileKey::Own(c.id), file.clone());
                if let Err(e) = done {
                    if e.is_harmless() && file.stat().is_ok_and(|s| s.len > c.size()) {
                        file.set_len(c.size()).map_err(|e| self.data.own_error(c, e))?;
                        self.data.flush_own(c, &*file)?;
                    }
                    return Err(e);
                }
                Ok(Location::Own)
            }
        }
    }

    /// Before the record is submitted: more space shows nothing. Zeros come after the commit, when the
    /// record's checksums are durable; blocks for them are there then.
    fn allocate_own(&self, c: &mut Change, file: &dyn DiskFile, r: Range) -> Result<(), StoreError> {
        let fail = |e| self.data.own_error(c, e);
        if r.mode & FALLOC_PUNCH_HOLE == 0 {
            match file.allocate(r.mode & FALLOC_KEEP_SIZE, r.off, r.len) {
                Err(e) if r.zeroes() && e.kind() == io::ErrorKind::Unsupported => {}
                other => other.map_err(fail)?,
            }
        }
        let len = file.stat().map_err(fail)?.len;
        if len != r.size {
            file.set_len(r.size).map_err(fail)?;
        }
        c.redo.push(Redo::Allocate { object: c.id, mode: r.mode, offset: r.off, len: r.len });
        c.redo.push(Redo::Truncate { object: c.id, size: r.size });
        if r.zeroes() {
            c.after.zero = Some((c.id, r.mode | FALLOC_KEEP_SIZE, r.off, r.len));
        }
        Ok(())
    }
}

fn zero_within(bytes: &mut [u8], r: Range) {
    let clamp = |x: u64| usize::try_from(x).map_or(bytes.len(), |x| x.min(bytes.len()));
    let (from, to) = (clamp(r.off), clamp(r.end()));
    bytes[from..to].fill(0);
}
