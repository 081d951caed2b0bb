//! What a journal record says has to be done again with the files of objects after a crash.

use super::location::Place;
use super::sums::BLOCK_BYTES;
use crate::bytes::{Reader, Writer};
use crate::journal::RECORD_MAX_BYTES;
use bytes::Bytes;
use model::ObjectId;

/// One entry of a record's redo list. Byte table: `docs/formats/objects.md`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Redo {
    /// Bytes of a slot of a container file, `offset` from the slot's beginning.
    WritePacked { object: ObjectId, place: Place, offset: u32, data: Bytes },
    /// Bytes of the object's own file.
    WriteOwn { object: ObjectId, offset: u64, data: Bytes },
    /// Length of the object's own file.
    Truncate { object: ObjectId, size: u64 },
    /// fallocate(2) of the object's own file.
    Allocate { object: ObjectId, mode: u32, offset: u64, len: u64 },
    /// Every earlier change of the object's own file, and its name, were durable before this record.
    Flushed { object: ObjectId },
    /// The object's own file goes.
    Unlink { object: ObjectId },
    /// Bytes of the object's own file that were flushed before this record was: nothing to do again, but
    /// whoever finds the record without knowing that it was durable has to look for them. `crcs`: of the
    /// pieces that block boundaries make.
    Ordered { object: ObjectId, offset: u64, len: u64, crcs: Vec<u32> },
}

impl Redo {
    /// Bytes that a record must carry for this entry, at most.
    pub(crate) fn encoded_bytes(&self) -> usize {
        64 + match self {
            Redo::WritePacked { data, .. } | Redo::WriteOwn { data, .. } => data.len(),
            Redo::Ordered { crcs, .. } => 4 * crcs.len(),
            _ => 0,
        }
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        let (kind, object) = match self {
            Redo::WritePacked { object, .. } => (1, object),
            Redo::WriteOwn { object, .. } => (2, object),
            Redo::Truncate { object, .. } => (3, object),
            Redo::Allocate { object, .. } => (4, object),
            Redo::Flushed { object } => (5, object),
            Redo::Unlink { object } => (6, object),
            Redo::Ordered { object, .. } => (7, object),
        };
        w.u8(kind);
        w.raw(&object.to_bytes());
        match self {
            Redo::WritePacked { place, offset, data, .. } => {
                place.encode(w);
                w.u32(*offset);
                w.bytes(data);
            }
            Redo::WriteOwn { offset, data, .. } => {
                w.u64(*offset);
                w.bytes(data);
            }
            Redo::Truncate { size, .. } => w.u64(*size),
            Redo::Allocate { mode, offset, len, .. } => {
                w.u32(*mode);
                w.u64(*offset);
                w.u64(*len);
            }
            Redo::Flushed { .. } | Redo::Unlink { .. } => {}
            Redo::Ordered { offset, len, crcs, .. } => {
                w.u64(*offset);
                w.u64(*len);
                crcs.iter().for_each(|c| w.u32(*c));
            }
        }
    }

    /// What a record's entries mean for later bytes of an own file that no journal carries: `true`, doing
    /// them again could take such bytes away; `false`, neither they nor earlier ones will be done again.
    pub(crate) fn rewrites_bytes(list: &[Redo]) -> Option<bool> {
        list.iter().rev().find_map(|r| match r {
            Redo::Truncate { .. } | Redo::Allocate { .. } => Some(true),
            Redo::Flushed { .. } => Some(false),
            _ => None,
        })
    }

    pub(crate) fn decode(r: &mut Reader) -> Option<Redo> {
        let kind = r.u8()?;
        let object = ObjectId::from_bytes(&r.array()?);
        Some(match kind {
            1 => {
                let place = Place::decode(r)?;
                let (offset, data) = (r.u32()?, Bytes::copy_from_slice(r.bytes()?));
                if u64::from(offset) + data.len() as u64 > place.slot_bytes() {
                    return None;
                }
                Redo::WritePacked { object, place, offset, data }
            }
            2 => Redo::WriteOwn { object, offset: r.u64()?, data: Bytes::copy_from_slice(r.bytes()?) },
            3 => Redo::Truncate { object, size: r.u64()? },
            4 => Redo::Allocate { object, mode: r.u32()?, offset: r.u64()?, len: r.u64()? },
            5 => Redo::Flushed { object },
            6 => Redo::Unlink { object },
            7 => {
                let (offset, len) = (r.u64()?, r.u64()?);
                let end = offset.checked_add(len)?;
                if len > RECORD_MAX_BYTES as u64 {
                    return None;
                }
                let n = end.div_ceil(BLOCK_BYTES) - offset / BLOCK_BYTES;
                let crcs = (0..n).map(|_| r.u32()).collect::<Option<_>>()?;
                Redo::Ordered { object, offset, len, crcs }
            }
            _ => return None,
        })
    }
}
