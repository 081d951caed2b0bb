//! The reading end: what of the journal counts after a restart.
//!
//! The log ends at the first record that is missing. That is a torn tail, unless something readable behind
//! it says that the missing record was durable once: then it is damage, and nothing is cut silently.

use super::record::{self, RECORD_ALIGN_BYTES, RECORD_HEADER_BYTES, RECORD_MAGIC};
use super::segment::{self, Name, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::db::Lsn;
use crate::{StoreError, Txn};
use world::{OpenMode, World};

/// The valid records above the table's position, in order.
pub struct Replay {
    pub records: Vec<(Lsn, Txn)>,
    /// Newest valid position; the table's if the journal holds nothing newer.
    pub last_lsn: Lsn,
    /// Every record up to this one is known to have been durable.
    pub durable: Lsn,
    /// Highest epoch of any segment, 0 if there is none.
    pub last_epoch: u32,
    /// Above every number used by a file name.
    pub next_number: u64,
    /// All files found, to be removed once the table holds everything.
    pub files: Vec<String>,
    /// Bytes cut off as torn: how far into a segment the unusable tail began, for the log.
    pub torn: Option<(String, u64)>,
}

struct Segment {
    path: String,
    number: u64,
    /// `None`: unreadable, or of a file that got another number and whose new name did not survive.
    header: Option<SegmentHeader>,
    bytes: Vec<u8>,
}

impl Replay {
    /// Reads the journal in `dir`. `applied` is what the table holds durably.
    pub fn read(world: &World, dir: &str, applied: Lsn) -> Result<Replay, StoreError> {
        let mut out = Replay {
            records: Vec::new(),
            last_lsn: applied,
            durable: applied,
            last_epoch: 0,
            next_number: 1,
            files: Vec::new(),
            torn: None,
        };
        let segments = read_segments(world, dir, &mut out)?;
        out.last_epoch = segments.iter().filter_map(|s| s.header).map(|h| h.epoch).max().unwrap_or(0);
        // Earlier segments are left-overs of a trim that was not finished.
        let start =
            segments.iter().rposition(|s| s.header.is_some_and(|h| h.first_lsn <= applied + 1)).unwrap_or(0);
        out.collect(&segments[start..], applied)?;
        Ok(out)
    }

    fn collect(&mut self, segments: &[Segment], applied: Lsn) -> Result<(), StoreError> {
        let mut expect = None;
        for (i, s) in segments.iter().enumerate() {
            let Some(h) = s.header else { continue };
            let want = expect.unwrap_or(applied + 1);
            if h.first_lsn > want {
                // Records want..first_lsn are missing.
                return self.end(segments, want, applied);
            }
            if expect.is_some() && h.first_lsn < want {
                // A later start decided that the log ends before what the older segment still holds.
                if segments[..i].iter().rev().find_map(|o| o.header).is_some_and(|o| o.epoch >= h.epoch) {
                    let why = format!("it begins with record {} but {want} is next", h.first_lsn);
                    return Err(StoreError::damaged("journal segment", &s.path, why));
                }
                self.records.retain(|(lsn, _)| *lsn < h.first_lsn);
            }
            expect = Some(self.take_segment(s, h, applied)?);
        }
        self.end(segments, expect.unwrap_or(applied + 1), applied)
    }

    /// Collects a segment's records; returns the position that comes next.
    fn take_segment(&mut self, s: &Segment, h: SegmentHeader, applied: Lsn) -> Result<Lsn, StoreError> {
        let mut pos = SEGMENT_HEADER_BYTES;
        let mut next = h.first_lsn;
        while let Some((r, payload)) = s.bytes.get(pos..).and_then(|b| record::parse(b, s.number)) {
            if r.lsn != next || r.epoch != h.epoch {
                break;
            }
            if r.lsn > applied {
                let txn = record::decode_txn(payload).ok_or_else(|| {
                    let why =
                        format!("record {} at byte {pos} has a good checksum but does not decode", r.lsn);
                    StoreError::damaged("journal segment", &s.path, why)
                })?;
                self.records.push((r.lsn, txn));
            }
            next += 1;
            pos += record::record_bytes(payload.len());
        }
        let rest = s.bytes.get(pos..pos + RECORD_HEADER_BYTES);
        self.torn = rest.filter(|b| b.iter().any(|x| *x != 0)).map(|_| (s.path.clone(), pos as u64));
        Ok(next)
    }

    /// The log ends before `missing`; is that a torn tail?
    fn end(&mut self, segments: &[Segment], missing: Lsn, applied: Lsn) -> Result<(), StoreError> {
        // Records that the table holds were durable, so one that is unreadable in front of newer ones of its
        // segment is damage. (Whole segments may be missing: they were given up.)
        if missing <= applied
            && let Some(s) = segments.first()
            && newest(s).lsn > applied
        {
            let why = format!("record {missing} is unreadable, though newer ones follow");
            return Err(StoreError::damaged("journal segment", &s.path, why));
        }
        let missing = missing.max(applied + 1);
        self.last_lsn = missing - 1;
        for s in segments {
            let committed = s.header.map_or(0, |h| h.committed).max(newest(s).committed);
            self.durable = self.durable.max(committed);
            if committed >= missing {
                let why = format!(
                    "record {missing} is missing or unreadable, though records up to {committed} were durable"
                );
                return Err(StoreError::damaged("journal segment", &s.path, why));
            }
        }
        Ok(())
    }
}

fn read_segments(world: &World, dir: &str, out: &mut Replay) -> Result<Vec<Segment>, StoreError> {
    let mut segments = Vec::new();
    for name in world.disk.list(dir).map_err(StoreError::io("cannot list", dir))? {
        let Some(kind) = segment::parse_name(&name) else { continue };
        let path = format!("{dir}/{name}");
        out.files.push(path.clone());
        let number = match kind {
            Name::Spare(n) => {
                out.next_number = out.next_number.max(n.saturating_add(1));
                continue;
            }
            Name::Log(n) => n,
        };
        out.next_number = out.next_number.max(number.saturating_add(1));
        let file = world
            .disk
            .open(&path, OpenMode::WRITE)
            .map_err(StoreError::io("cannot open journal segment", &path))?;
        let bytes = segment::read_all(&*file, &path)?;
        // What is read here may so far be in the page cache only (a killed process): it counts from now
        // on, so it must not get lost any more.
        file.sync_data().map_err(StoreError::io("cannot flush journal segment", &path))?;
        let header = SegmentHeader::decode(&bytes, &path)?.filter(|h| h.number == number);
        segments.push(Segment { path, number, header, bytes });
    }
    segments.sort_by_key(|s| s.number);
    Ok(segments)
}

struct Newest {
    committed: Lsn,
    lsn: Lsn,
}

/// The highest positions in any intact record of a segment, wherever it lies.
fn newest(s: &Segment) -> Newest {
    let mut newest = Newest { committed: 0, lsn: 0 };
    let mut pos = SEGMENT_HEADER_BYTES;
    let magic = RECORD_MAGIC.to_le_bytes();
    while let Some(b) = s.bytes.get(pos..).filter(|b| b.len() >= RECORD_HEADER_BYTES) {
        match b.starts_with(&magic).then(|| record::parse(b, s.number)).flatten() {
            Some((r, payload)) => {
                newest.committed = newest.committed.max(r.committed);
                newest.lsn = newest.lsn.max(r.lsn);
                pos += record::record_bytes(payload.len());
            }
            None => pos += RECORD_ALIGN_BYTES,
        }
    }
    newest
}
