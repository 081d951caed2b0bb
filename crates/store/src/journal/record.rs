//! One record: a 48-byte header and the encoded transaction, padded to 8 bytes.

use super::Lsn;
use crate::bytes::{Reader, Writer};
use crate::object::Redo;
use model::planted::{self, Bug};
use std::ops::Range;
use wire::frame::crc32c;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub const RECORD_MAGIC: u32 = 0x3252_434a; // "JCR2"
/// Of segments of version 1, whose records have no salt.
pub const RECORD_MAGIC_UNSALTED: u32 = 0x3152_434a; // "JCR1"
pub const RECORD_HEADER_BYTES: usize = 48;
/// Longest record, header included.
pub const RECORD_MAX_BYTES: usize = 64 << 20;
/// Records start at multiples of this.
pub const RECORD_ALIGN_BYTES: usize = 8;
/// Positions and segment numbers above this are not believed: no target lives so long.
pub const POSITION_MAX: u64 = 1 << 62;
/// Value length that means "delete the key".
const DELETED: u32 = u32::MAX;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    /// crc32c of everything behind this field, the payload included.
    crc: U32,
    payload_len: U32,
    epoch: U32,
    lsn: U64,
    committed: U64,
    segment: U64,
    salt: U64,
}
const _: () = assert!(size_of::<RawHeader>() == RECORD_HEADER_BYTES);

/// What a record's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    pub lsn: Lsn,
    pub epoch: u32,
    /// Every record up to this one was durable when this one was written.
    pub committed: Lsn,
    /// Number of the segment it was written to: a recycled file's older records do not count.
    pub segment: u64,
    /// The segment's, which nobody can know who has bytes stored: those that lie in a record are never taken
    /// for one. `None`: the segment is of version 1.
    pub salt: Option<u64>,
}

/// Bytes a record with this payload takes in a segment.
pub fn record_bytes(payload: usize) -> usize {
    (RECORD_HEADER_BYTES + payload).next_multiple_of(RECORD_ALIGN_BYTES)
}

/// Starts a record: room for the header, to be filled by [`seal`] when its place is known.
pub(crate) fn begin() -> Writer {
    Writer(vec![0; RECORD_HEADER_BYTES])
}

/// Fills the header in and pads the record.
pub(crate) fn seal(record: &mut Vec<u8>, h: RecordHeader) {
    let payload_len = record.len() - RECORD_HEADER_BYTES;
    // What a reader does not believe must not be written.
    assert!(record.len() <= RECORD_MAX_BYTES, "a record of {} bytes is longer than any", record.len());
    assert!(h.committed < h.lsn, "nothing was durable before it was written");
    assert!(h.lsn <= POSITION_MAX, "no target lives so long");
    let mut raw = RawHeader {
        magic: magic(h.salt).into(),
        crc: 0.into(),
        payload_len: u32::try_from(payload_len).expect("bounded by RECORD_MAX_BYTES").into(),
        epoch: h.epoch.into(),
        lsn: h.lsn.into(),
        committed: h.committed.into(),
        segment: h.segment.into(),
        salt: h.salt.unwrap_or(0).into(),
    };
    record[..RECORD_HEADER_BYTES].copy_from_slice(raw.as_bytes());
    raw.crc = crc32c(&record[8..]).into();
    record[..RECORD_HEADER_BYTES].copy_from_slice(raw.as_bytes());
    record.resize(record_bytes(payload_len), 0);
}

/// What records of a segment with that salt begin with.
pub(crate) fn magic(salt: Option<u64>) -> u32 {
    if salt.is_some() { RECORD_MAGIC } else { RECORD_MAGIC_UNSALTED }
}

/// What a record at the start of `bytes` has as its salt, if one begins there.
pub(crate) fn salt_of(bytes: &[u8]) -> Option<u64> {
    let raw = RawHeader::read_from_bytes(bytes.get(..RECORD_HEADER_BYTES)?).ok()?;
    (raw.magic.get() == RECORD_MAGIC).then(|| raw.salt.get())
}

/// The record at the start of `bytes`, if a whole and undamaged one of `segment` with its `salt` is there.
pub(crate) fn parse(bytes: &[u8], segment: u64, salt: Option<u64>) -> Option<(RecordHeader, &[u8])> {
    let raw = RawHeader::read_from_bytes(bytes.get(..RECORD_HEADER_BYTES)?).ok()?;
    if raw.magic.get() != magic(salt) || raw.segment.get() != segment {
        return None;
    }
    if salt.is_some_and(|s| s != raw.salt.get()) && !planted::on(Bug::ForgedJournalBytes) {
        return None;
    }
    let len = raw.payload_len.get() as usize;
    if RECORD_HEADER_BYTES + len > RECORD_MAX_BYTES {
        return None;
    }
    let whole = bytes.get(..RECORD_HEADER_BYTES + len)?;
    if crc32c(&whole[8..]) != raw.crc.get() && !planted::on(Bug::TornTailAccepted) {
        return None;
    }
    let h = RecordHeader {
        lsn: raw.lsn.get(),
        epoch: raw.epoch.get(),
        committed: raw.committed.get(),
        segment: raw.segment.get(),
        salt,
    };
    // Nothing was durable before it was written.
    if h.lsn > POSITION_MAX || (h.committed >= h.lsn && !planted::on(Bug::ForgedJournalBytes)) {
        return None;
    }
    Some((h, &whole[RECORD_HEADER_BYTES..]))
}

/// Appends the payload of a transaction: keys, then redo entries of objects.
pub(crate) fn encode_txn(w: &mut Writer, writes: &[(Vec<u8>, Option<Vec<u8>>)], redo: &[Redo]) {
    w.u32(u32::try_from(writes.len()).expect("bounded by RECORD_MAX_BYTES"));
    for (k, v) in writes {
        w.u32(u32::try_from(k.len()).expect("bounded by RECORD_MAX_BYTES"));
        w.u32(v.as_ref().map_or(DELETED, |v| u32::try_from(v.len()).expect("bounded by RECORD_MAX_BYTES")));
        w.raw(k);
        w.raw(v.as_deref().unwrap_or_default());
    }
    w.u32(u32::try_from(redo.len()).expect("bounded by RECORD_MAX_BYTES"));
    for r in redo {
        r.encode(w);
    }
}

/// Upper bound of what [`encode_txn`] appends.
pub(crate) fn encoded_bytes(writes: &[(Vec<u8>, Option<Vec<u8>>)], redo: &[Redo]) -> usize {
    let keys: usize = writes.iter().map(|(k, v)| 8 + k.len() + v.as_ref().map_or(0, Vec::len)).sum();
    8 + keys + redo.iter().map(Redo::encoded_bytes).sum::<usize>()
}

/// A write, by where it lies in a payload: the key, and the value right behind it.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub at: u32,
    pub key: u32,
    /// `None`: the key is deleted.
    pub value: Option<u32>,
}

impl Span {
    pub fn key_of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.at as usize..][..self.key as usize]
    }

    /// Where the value lies.
    pub fn value_at(self) -> Option<Range<usize>> {
        let start = self.at as usize + self.key as usize;
        self.value.map(|n| start..start + n as usize)
    }
}

/// The inverse of [`encode_txn`]: writes are given to `each`, in order. `None` if the payload is no
/// transaction.
pub(crate) fn decode_txn(payload: &[u8], mut each: impl FnMut(Span)) -> Option<Vec<Redo>> {
    let mut r = Reader(payload);
    for _ in 0..r.u32()? {
        let key = r.u32()?;
        let value = Some(r.u32()?).filter(|n| *n != DELETED);
        let at = u32::try_from(payload.len() - r.0.len()).ok()?;
        r.raw(key as usize)?;
        r.raw(value.unwrap_or(0) as usize)?;
        each(Span { at, key, value });
    }
    let mut redo = Vec::new();
    for _ in 0..r.u32()? {
        redo.push(Redo::decode(&mut r)?);
    }
    Some(redo)
}
