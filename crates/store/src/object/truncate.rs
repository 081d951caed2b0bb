//! truncate: sets an object's size.

use super::change::{Change, Done};
use super::files::FileKey;
use super::location::{INLINE_MAX_BYTES, Location, ObjectRecord};
use super::redo::Redo;
use super::submit::unless_fatal;
use super::{FinishTxn, ObjectMeta, Objects};
use crate::{Lsn, StoreError};
use model::limits::FILE_SIZE_MAX_BYTES;
use model::{Errno, ObjectAttr, ObjectId};
use std::sync::Arc;

/// Whether growing to `size` needs a file of its own, so that what is not written takes no space.
fn outgrows(rec: &ObjectRecord, size: u64) -> bool {
    match &rec.location {
        Location::Inline(_) => size > INLINE_MAX_BYTES,
        Location::Packed(p) => size > p.slot_bytes(),
        Location::Own => false,
    }
}

impl Objects {
    /// New size; bytes that come into being read as zeros. The transaction is 0 if nothing had to be changed:
    /// `finish` is not called then. `EFBIG`: over what the host's files carry.
    pub fn truncate(
        self: &Arc<Self>,
        id: ObjectId,
        size: u64,
        meta: ObjectMeta,
        finish: FinishTxn,
    ) -> world::BoxFuture<Result<(ObjectAttr, Lsn), StoreError>> {
        let me = self.clone();
        Box::pin(async move {
            let (guard, old) = me.begin(id).await?;
            if size > FILE_SIZE_MAX_BYTES {
                return Err(StoreError::Errno(Errno::EFBIG));
            }
            me.files.drained(me.db.core(), id).await?;
            if size < old.attr.size {
                me.files.settled(me.db.core(), id, size, u64::MAX).await?;
            }
            let quick = !outgrows(&old, size);
            me.run(vec![guard], quick, move |o| o.truncate_locked(Change::new(id, old), size, &meta, finish))
                .await
        })
    }

    fn truncate_locked(
        &self,
        mut c: Change,
        size: u64,
        meta: &ObjectMeta,
        finish: FinishTxn,
    ) -> Result<Done<ObjectAttr>, StoreError> {
        if size == c.size() && meta.time.is_none() {
            return Ok(self.unchanged(&c));
        }
        if size < c.size() {
            self.sums.of_cut(&mut c.sums, &c.old, size)?;
        }
        match self.place_for_size(&mut c, size) {
            Ok(location) => self.submit(c, location, size, meta, 0, finish),
            Err(e) => {
                self.data.give_up(&c);
                Err(unless_fatal(self, e))
            }
        }
    }

    fn place_for_size(&self, c: &mut Change, size: u64) -> Result<Location, StoreError> {
        if outgrows(&c.old, size) {
            self.data.need_space(c.size())?;
            let (file, _) = self.data.create_own(c)?;
            file.set_len(size).map_err(|e| self.data.own_error(c, e))?;
            self.data.flush_new_own(c, &*file)?;
            return Ok(Location::Own);
        }
        match c.old.location.clone() {
            Location::Inline(b) => {
                let keep = usize::try_from(size).map_or(b.len(), |s| s.min(b.len()));
                Ok(Location::Inline(b.slice(..keep)))
            }
            // Nothing of the slot changes until somebody else takes it, after the commit.
            Location::Packed(_) if size <= INLINE_MAX_BYTES => {
                let mut bytes = vec![0; usize::try_from(size).expect("at most INLINE_MAX_BYTES")];
                self.files.read_raw(c.id, &c.old, 0, &mut bytes)?;
                Ok(Location::Inline(bytes.into()))
            }
            Location::Packed(p) => {
                let old = c.size();
                if size > old {
                    let zeros = vec![0; usize::try_from(size - old).expect("within a slot")];
                    self.data.write_slot(c, p, old, zeros.into())?;
                }
                c.after.shorter = size < old;
                Ok(Location::Packed(p))
            }
            Location::Own => {
                self.resize_own(c, size)?;
                Ok(Location::Own)
            }
        }
    }

    /// Growing happens at once (it shows nothing before the record does); cutting after the commit.
    fn resize_own(&self, c: &mut Change, size: u64) -> Result<(), StoreError> {
        if size < c.size() {
            c.redo.push(Redo::Truncate { object: c.id, size });
            c.after.cut = Some((c.id, size));
        } else if size > c.size() {
            let file = self.data.own_file(c)?;
            let grown = file.set_len(size);
            self.files.mark(FileKey::Own(c.id), file);
            grown.map_err(|e| self.data.own_error(c, e))?;
            c.redo.push(Redo::Truncate { object: c.id, size });
        }
        Ok(())
    }
}
