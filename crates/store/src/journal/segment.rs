//! Segment files: `journal/NUMBER.log` in use, `journal/spare.NUMBER` prepared or waiting to be used again.

use super::Lsn;
use super::record::{POSITION_MAX, RECORD_HEADER_BYTES, RecordHeader};
use crate::StoreError;
use model::planted::{self, Bug};
use std::sync::Arc;
use wire::frame::crc32c;
use world::{DiskFile, OpenMode, World};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub const SEGMENT_MAGIC: [u8; 8] = *b"NACREJS1";
/// Records have a salt, and a copy of the header stands at the end.
pub const SEGMENT_VERSION: u32 = 2;
/// What v0.1.0 wrote; read until its records are in the table.
pub const SEGMENT_VERSION_UNSALTED: u32 = 1;
pub const SEGMENT_HEADER_BYTES: usize = 64;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    epoch: U32,
    number: U64,
    first_lsn: U64,
    committed: U64,
    salt: U64,
    reserved: [u8; 12],
    /// crc32c of the bytes before.
    crc: U32,
}
const _: () = assert!(size_of::<RawHeader>() == SEGMENT_HEADER_BYTES);

/// What a segment says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// All its records are of this epoch: each start begins a new segment.
    pub epoch: u32,
    pub number: u64,
    pub first_lsn: Lsn,
    /// Durable up to here when the segment was begun.
    pub committed: Lsn,
    /// Drawn when the segment was begun; each of its records carries it. `None`: of version 1.
    pub salt: Option<u64>,
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        // A reader takes a header that says otherwise for no header at all.
        assert!(self.committed < self.first_lsn, "a segment's records were not durable before it was begun");
        assert!(self.first_lsn <= POSITION_MAX, "no target lives so long");
        let mut raw = RawHeader {
            magic: SEGMENT_MAGIC,
            version: self.salt.map_or(SEGMENT_VERSION_UNSALTED, |_| SEGMENT_VERSION).into(),
            epoch: self.epoch.into(),
            number: self.number.into(),
            first_lsn: self.first_lsn.into(),
            committed: self.committed.into(),
            salt: self.salt.unwrap_or(0).into(),
            reserved: [0; 12],
            crc: 0.into(),
        };
        raw.crc = crc32c(&raw.as_bytes()[..SEGMENT_HEADER_BYTES - 4]).into();
        let mut out = [0; SEGMENT_HEADER_BYTES];
        out.copy_from_slice(raw.as_bytes());
        out
    }

    /// `Ok(None)`: no intact header; an error for a version this code does not know.
    pub fn decode(bytes: &[u8], path: &str) -> Result<Option<SegmentHeader>, StoreError> {
        let Some(Ok(raw)) = bytes.get(..SEGMENT_HEADER_BYTES).map(RawHeader::read_from_bytes) else {
            return Ok(None);
        };
        if raw.magic != SEGMENT_MAGIC || crc32c(&bytes[..SEGMENT_HEADER_BYTES - 4]) != raw.crc.get() {
            return Ok(None);
        }
        let salt = match raw.version.get() {
            SEGMENT_VERSION_UNSALTED => None,
            SEGMENT_VERSION => Some(raw.salt.get()),
            other => {
                return Err(StoreError::Refused(format!(
                    "journal segment '{path}' has format version {other}, this Nacre knows versions up to \
                     {SEGMENT_VERSION}: upgrade"
                )));
            }
        };
        if raw.first_lsn.get() > POSITION_MAX || raw.committed.get() >= raw.first_lsn.get() {
            return Ok(None);
        }
        Ok(Some(SegmentHeader {
            epoch: raw.epoch.get(),
            number: raw.number.get(),
            first_lsn: raw.first_lsn.get(),
            committed: raw.committed.get(),
            salt,
        }))
    }

    /// Of a whole segment with this number: the one at its beginning, or, if that is lost, the copy at its
    /// end.
    pub fn find(bytes: &[u8], number: u64, path: &str) -> Result<Option<SegmentHeader>, StoreError> {
        if let Some(h) = SegmentHeader::decode(bytes, path)?.filter(|h| h.number == number) {
            return Ok(Some(h));
        }
        let end = bytes.len().saturating_sub(SEGMENT_HEADER_BYTES);
        Ok(SegmentHeader::decode(&bytes[end..], path)?.filter(|h| h.number == number && h.salt.is_some()))
    }

    /// Whether a record that begins `pos` bytes into this segment can have this position and epoch.
    pub(crate) fn may_hold(&self, r: &RecordHeader, pos: usize) -> bool {
        let before = (pos.saturating_sub(SEGMENT_HEADER_BYTES) / RECORD_HEADER_BYTES) as u64;
        let plausible = r.lsn >= self.first_lsn && r.lsn - self.first_lsn <= before && r.epoch == self.epoch;
        plausible || planted::on(Bug::ForgedJournalBytes)
    }
}

pub(crate) fn log_path(dir: &str, number: u64) -> String {
    format!("{dir}/{number:016x}.log")
}

pub(crate) fn spare_path(dir: &str, number: u64) -> String {
    format!("{dir}/spare.{number:016x}")
}

/// What a name in the journal's folder is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    Log(u64),
    Spare(u64),
}

pub(crate) fn parse_name(name: &str) -> Option<Name> {
    let number = |s: &str| {
        (s.len() == 16).then(|| u64::from_str_radix(s, 16).ok()).flatten().filter(|n| *n <= POSITION_MAX)
    };
    match name.strip_prefix("spare.") {
        Some(n) => number(n).map(Name::Spare),
        None => number(name.strip_suffix(".log")?).map(Name::Log),
    }
}

/// A prepared file without a place in the log yet.
pub(crate) struct Spare {
    pub path: String,
    pub file: Arc<dyn DiskFile>,
    pub bytes: u64,
    /// It was a segment before: its blocks were written.
    pub used: bool,
}

impl Spare {
    /// Makes one with its space allocated.
    pub fn create(world: &World, dir: &str, number: u64, bytes: u64) -> Result<Spare, StoreError> {
        let path = spare_path(dir, number);
        let mode = OpenMode { truncate: true, ..OpenMode::CREATE };
        let file =
            world.disk.open(&path, mode).map_err(StoreError::io("cannot create journal segment", &path))?;
        if let Err(e) = file.allocate(0, 0, bytes) {
            let _ = world.disk.unlink(&path);
            return Err(StoreError::io("cannot allocate journal segment", &path)(e));
        }
        Ok(Spare { path, file, bytes, used: false })
    }
}

/// The whole file, zeros included.
pub(crate) fn read_all(file: &dyn DiskFile, path: &str) -> Result<Vec<u8>, StoreError> {
    let len = file.stat().map_err(StoreError::io("cannot read journal segment", path))?.len;
    let len = usize::try_from(len).ok().filter(|l| *l <= 4 * super::RECORD_MAX_BYTES).ok_or_else(|| {
        StoreError::damaged("journal segment", path, format!("it has {len} bytes, more than any segment"))
    })?;
    let mut buf = vec![0; len];
    let n = file.read_at(&mut buf, 0).map_err(StoreError::io("cannot read journal segment", path))?;
    buf.truncate(n);
    Ok(buf)
}
