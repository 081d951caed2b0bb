//! read: bytes of an object.

use super::Objects;
use super::change::read_padded;
use super::files::FileKey;
use super::location::{Location, ObjectRecord, PACKED_MAX_BYTES};
use crate::{Lsn, StoreError};
use model::ObjectId;
use std::sync::Arc;

/// Bytes, object size, and the transaction they depend on.
pub type ReadResult = Result<(Vec<u8>, u64, Lsn), StoreError>;

impl Objects {
    /// Bytes (short at the object's end), the object's size, and what they depend on. `ESTALE`: the object
    /// was destroyed.
    pub fn read(self: &Arc<Self>, id: ObjectId, off: u64, len: u32) -> world::BoxFuture<ReadResult> {
        let me = self.clone();
        Box::pin(async move {
            let guard = me.locks.read(id).await;
            let (rec, lsn) = me.load(id)?;
            let rec = rec.unwrap_or_else(ObjectRecord::empty);
            let size = rec.attr.size;
            let n = u64::from(len).min(size.saturating_sub(off)) as usize;
            let world = me.world.clone();
            let read = move || {
                let _guard = guard;
                me.read_locked(id, &rec, off, n)
            };
            let bytes = if n as u64 > PACKED_MAX_BYTES { world.blocking(read).await } else { read() };
            Ok((bytes?, size, lsn))
        })
    }

    fn read_locked(
        &self,
        id: ObjectId,
        rec: &ObjectRecord,
        off: u64,
        n: usize,
    ) -> Result<Vec<u8>, StoreError> {
        let mut buf = vec![0; n];
        if n == 0 {
            return Ok(buf);
        }
        let read = match &rec.location {
            Location::Inline(b) => {
                let from = usize::try_from(off).map_or(b.len(), |o| o.min(b.len()));
                let have = &b[from..b.len().min(from + n)];
                buf[..have.len()].copy_from_slice(have);
                Ok(())
            }
            Location::Packed(p) => self.read_slot(*p, off, &mut buf),
            Location::Own => {
                let key = FileKey::Own(id);
                self.files.get(key).and_then(|f| {
                    read_padded(&*f, &mut buf, off)
                        .map_err(StoreError::io("cannot read object file", &self.files.path(key)))
                })
            }
        };
        // The reader gets an error; what else the disk holds may well be readable.
        read.inspect_err(|e| tracing::error!("object {id}: {e}"))?;
        Ok(buf)
    }
}
