//! read: bytes of an object.

use super::Objects;
use super::load::load;
use super::location::{ObjectRecord, PACKED_MAX_BYTES};
use super::sums::BLOCK_BYTES;
use crate::{Lsn, StoreError};
use bytes::Bytes;
use model::ObjectId;
use std::sync::Arc;
use wire::frame::crc32c;
use world::buffer;

/// What a read found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Short at the object's end.
    pub data: Bytes,
    /// The object's size.
    pub size: u64,
    /// The transaction they depend on.
    pub seen: Lsn,
    /// For each block that `data` touches its stored checksum, if `data` has all of the block (up to the
    /// object's end); else that of the piece of it.
    pub crcs: Vec<u32>,
}

impl Objects {
    /// Bytes and checksums. `ESTALE`: the object was destroyed.
    /// A checksum that differs gives [`StoreError::Checksum`].
    pub fn read(
        self: &Arc<Self>,
        id: ObjectId,
        off: u64,
        len: u32,
    ) -> world::BoxFuture<Result<Found, StoreError>> {
        let me = self.clone();
        Box::pin(async move {
            let guard = me.locks.read(id).await;
            let (rec, lsn) = load(&me.db, id)?;
            let rec = rec.unwrap_or_else(ObjectRecord::empty);
            let size = rec.attr.size;
            let n = u64::from(len).min(size.saturating_sub(off)) as usize;
            let world = me.world.clone();
            let read = move || {
                let _guard = guard;
                me.read_locked(id, &rec, off, n)
            };
            let bytes = if n as u64 > PACKED_MAX_BYTES { world.blocking(read).await } else { read() };
            let (data, crcs) = bytes?;
            Ok(Found { data, size, seen: lsn, crcs })
        })
    }

    fn read_locked(
        &self,
        id: ObjectId,
        rec: &ObjectRecord,
        off: u64,
        n: usize,
    ) -> Result<(Bytes, Vec<u32>), StoreError> {
        if n == 0 {
            return Ok((Bytes::new(), Vec::new()));
        }
        let end = off + n as u64;
        assert!(end <= rec.attr.size, "nobody reads behind the object's end");
        let first = off / BLOCK_BYTES;
        let start = first * BLOCK_BYTES;
        let stop = end.next_multiple_of(BLOCK_BYTES).min(rec.attr.size);
        let mut buf = buffer::bulk((stop - start) as usize);
        // The reader gets an error; what else the disk holds may well be readable.
        self.files.read_raw(id, rec, start, &mut buf).inspect_err(|e| tracing::error!("object {id}: {e}"))?;
        let mut crcs = self.sums.verify(id, rec, first, &mut buf)?;
        assert_eq!(
            crcs.len() as u64,
            stop.div_ceil(BLOCK_BYTES) - first,
            "each block that was read has its checksum"
        );
        let data = buf.share((off - start) as usize..(end - start) as usize);
        if off > start {
            let piece = data.len().min((BLOCK_BYTES - (off - start)) as usize);
            crcs[0] = crc32c(&data[..piece]);
        }
        let tail = end / BLOCK_BYTES * BLOCK_BYTES;
        if end < stop && tail >= off {
            *crcs.last_mut().expect("at least one block") = crc32c(&data[(tail - off) as usize..]);
        }
        Ok((data, crcs))
    }
}
