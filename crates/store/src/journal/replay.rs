//! The reading end: what of the journal counts after a restart.
//!
//! The log ends at the first record that is missing. That is a torn tail, unless something readable behind
//! it says that the missing record was durable once: then it is damage, and nothing is cut silently.
//!
//! What users store lies within records, so nothing that stands anywhere else than where a record must begin
//! is believed unless it has the segment's salt. Where there is none to compare with (segments of version 1,
//! lost headers) only the chain of records from the segment's beginning is looked at, or positions that the
//! segment can have.

use super::Lsn;
use super::record::{self, RECORD_ALIGN_BYTES, RECORD_HEADER_BYTES, RecordHeader, Span};
use super::segment::{self, Name, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::object::Redo;
use crate::table::{Batch, Entry};
use crate::txn::client_of_reply_key;
use crate::{StoreError, medium};
use bytes::Bytes;
use std::cmp::Ordering;
use world::{OpenMode, World};

/// The valid records above the table's position.
pub struct Replay {
    /// In order.
    writes: Vec<Write>,
    /// Of the segments that the writes are in.
    bytes: Vec<Bytes>,
    /// What is to be done again with the files of objects, by each record that has such entries, in order.
    pub redo: Vec<(Lsn, Vec<Redo>)>,
    /// Newest valid position; the table's if the journal holds nothing newer.
    pub last_lsn: Lsn,
    /// Every record up to this one is known to have been durable.
    pub durable: Lsn,
    /// Highest epoch of any segment, 0 if there is none.
    pub last_epoch: u32,
    /// Above every number used by a file name.
    pub next_number: u64,
    /// All files found.
    pub files: Vec<Found>,
    /// Bytes cut off as torn: how far into a segment the unusable tail began, for the log.
    pub torn: Option<(String, u64)>,
    /// The log ends where it is damaged, and what that loses. Only if that was allowed.
    pub damage: Option<Damage>,
}

/// A journal that does not reach as far as it once did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The segment, and what is wrong with it.
    pub path: String,
    pub why: String,
    /// The first transaction that is lost with everything behind it, if the log is to end here.
    pub from: Lsn,
    /// The newest that is known of.
    pub to: Lsn,
    /// How many of them can still be read, but build on what cannot.
    pub readable: u64,
    /// Clients whose answers are among those.
    pub clients: Vec<[u8; 16]>,
}

impl Damage {
    fn error(&self) -> StoreError {
        StoreError::damaged("journal segment", &self.path, self.why.clone())
    }
}

struct Write {
    lsn: Lsn,
    segment: u32,
    span: Span,
}

/// A file of the journal's folder.
pub struct Found {
    pub path: String,
    /// Position of its first record, if any of its records count.
    pub first_lsn: Option<Lsn>,
}

struct Segment {
    path: String,
    number: u64,
    /// `None`: unreadable, or of a file that got another number and whose new name did not survive.
    header: Option<SegmentHeader>,
    /// Without the header's copy at the end.
    bytes: Vec<u8>,
}

impl Segment {
    /// The record that begins so far into it.
    fn record_at(&self, pos: usize) -> Option<(RecordHeader, &[u8])> {
        let b = self.bytes.get(pos..)?;
        match self.header {
            Some(h) => record::parse(b, self.number, h.salt).filter(|(r, _)| h.may_hold(r, pos)),
            // Its first record says which salt there was; the place of that is no user's.
            None => record::parse(b, self.number, record::salt_of(&self.bytes[SEGMENT_HEADER_BYTES..])),
        }
    }

    /// All its intact records, wherever they lie; with no salt to tell them by, those of the chain from its
    /// beginning.
    fn records(&self) -> impl Iterator<Item = (RecordHeader, &[u8])> {
        let mut pos = SEGMENT_HEADER_BYTES;
        let search = self.header.is_some();
        std::iter::from_fn(move || {
            while pos + RECORD_HEADER_BYTES <= self.bytes.len() {
                if let Some((r, payload)) = self.record_at(pos) {
                    pos += record::record_bytes(payload.len());
                    return Some((r, payload));
                }
                if !search {
                    return None;
                }
                pos += RECORD_ALIGN_BYTES;
            }
            None
        })
    }
}

impl Replay {
    /// Reads the journal in `dir`. `applied` is what the table holds durably. `cut`: where it is damaged it
    /// ends ([`Replay::damage`]); else that is an error.
    pub fn read(world: &World, dir: &str, applied: Lsn, cut: bool) -> Result<Replay, StoreError> {
        let mut out = Replay {
            writes: Vec::new(),
            bytes: Vec::new(),
            redo: Vec::new(),
            last_lsn: applied,
            durable: applied,
            last_epoch: 0,
            next_number: 1,
            files: Vec::new(),
            torn: None,
            damage: None,
        };
        let mut segments = read_segments(world, dir, &mut out)?;
        out.last_epoch = segments.iter().filter_map(|s| s.header).map(|h| h.epoch).max().unwrap_or(0);
        // Earlier segments are left-overs of a trim that was not finished.
        let start =
            segments.iter().rposition(|s| s.header.is_some_and(|h| h.first_lsn <= applied + 1)).unwrap_or(0);
        let used = segments.split_off(start);
        out.collect(&used, applied);
        if let Some(d) = out.damage.as_ref().filter(|_| !cut) {
            return Err(d.error());
        }
        for f in &mut out.files {
            f.first_lsn = used.iter().find(|s| s.path == f.path).and_then(|s| s.header).map(|h| h.first_lsn);
        }
        out.bytes = used.into_iter().map(|s| s.bytes.into()).collect();
        Ok(out)
    }

    /// The log ends before this record.
    pub fn cut(&mut self, lsn: Lsn) {
        self.writes.truncate(self.writes.partition_point(|w| w.lsn < lsn));
        self.redo.truncate(self.redo.partition_point(|(l, _)| *l < lsn));
        self.last_lsn = self.last_lsn.min(lsn - 1);
    }

    /// The newest value of each key; values share the memory of the segments.
    pub fn newest(&self) -> Batch {
        let segment = |w: &Write| &self.bytes[w.segment as usize];
        let key = |i: u32| {
            let w = &self.writes[i as usize];
            w.span.key_of(segment(w))
        };
        let mut order: Vec<Place> = (0..).zip(&self.writes).map(|(i, _)| Place::new(key(i), i)).collect();
        order.sort_unstable_by(|a, b| a.by_key(b, key).then(a.index.cmp(&b.index)));
        let newest = order.chunk_by(|a, b| a.by_key(b, key).is_eq());
        let entry = |same: &[Place]| {
            let i = same.last().expect("chunks are not empty").index;
            let w = &self.writes[i as usize];
            let value = w.span.value_at().map(|place| segment(w).slice(place));
            (key(i).to_vec(), Entry { lsn: w.lsn, value })
        };
        newest.map(entry).collect()
    }

    fn collect(&mut self, segments: &[Segment], applied: Lsn) {
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
                    return self.damaged(segments, s, why, h.first_lsn.max(applied + 1));
                }
                self.cut(h.first_lsn);
            }
            match self.take_segment(i, s, h, applied) {
                Ok(next) => expect = Some(next),
                Err((record, why)) => {
                    return self.damaged(segments, s, why, record.max(applied + 1));
                }
            }
        }
        self.end(segments, expect.unwrap_or(applied + 1), applied);
    }

    /// Collects the records of segment `i`; returns the position that comes next, or a record that makes no
    /// sense, and why.
    fn take_segment(
        &mut self,
        i: usize,
        s: &Segment,
        h: SegmentHeader,
        applied: Lsn,
    ) -> Result<Lsn, (Lsn, String)> {
        let segment = u32::try_from(i).expect("fewer files than that");
        let mut pos = SEGMENT_HEADER_BYTES;
        let mut next = h.first_lsn;
        while let Some((r, payload)) = s.record_at(pos) {
            if r.lsn != next || r.epoch != h.epoch {
                break;
            }
            if r.lsn > applied {
                let start = u32::try_from(pos + RECORD_HEADER_BYTES).expect("segments are shorter");
                let redo = record::decode_txn(payload, |span| {
                    let span = Span { at: start + span.at, ..span };
                    self.writes.push(Write { lsn: r.lsn, segment, span });
                });
                let redo = redo.ok_or_else(|| {
                    let why =
                        format!("record {} at byte {pos} has a good checksum but does not decode", r.lsn);
                    (r.lsn, why)
                })?;
                if !redo.is_empty() {
                    self.redo.push((r.lsn, redo));
                }
            }
            next += 1;
            pos += record::record_bytes(payload.len());
        }
        let rest = s.bytes.get(pos..pos + RECORD_HEADER_BYTES);
        self.torn = rest.filter(|b| b.iter().any(|x| *x != 0)).map(|_| (s.path.clone(), pos as u64));
        Ok(next)
    }

    /// The log ends before `missing`; is that a torn tail?
    fn end(&mut self, segments: &[Segment], missing: Lsn, applied: Lsn) {
        // Records that the table holds were durable, so one that is unreadable in front of newer ones of its
        // segment is damage. (Whole segments may be missing: they were given up.)
        if missing <= applied
            && let Some(s) = segments.first()
            && s.records().any(|(r, _)| r.lsn > applied)
        {
            let why = format!("record {missing} is unreadable, though newer ones follow");
            return self.damaged(segments, s, why, applied + 1);
        }
        let missing = missing.max(applied + 1);
        self.last_lsn = missing - 1;
        for s in segments {
            let told = s.records().map(|(r, _)| r.committed).max().unwrap_or(0);
            let committed = s.header.map_or(0, |h| h.committed).max(told);
            if committed >= missing {
                let why = format!(
                    "record {missing} is missing or unreadable, though records up to {committed} were durable"
                );
                return self.damaged(segments, s, why, missing);
            }
            self.durable = self.durable.max(committed);
        }
    }

    /// The log ends before `from`, and that loses something.
    fn damaged(&mut self, segments: &[Segment], at: &Segment, why: String, from: Lsn) {
        self.cut(from);
        self.last_lsn = from - 1;
        self.durable = self.durable.min(from - 1);
        let mut d = Damage { path: at.path.clone(), why, from, to: from, readable: 0, clients: Vec::new() };
        for s in segments {
            d.to = d.to.max(s.header.map_or(0, |h| h.committed));
            for (r, payload) in s.records() {
                d.to = d.to.max(r.committed);
                if r.lsn < from {
                    continue;
                }
                d.to = d.to.max(r.lsn);
                d.readable += 1;
                let mut client = |span: Span| d.clients.extend(client_of_reply_key(span.key_of(payload)));
                // One that does not decode tells nothing.
                let _ = record::decode_txn(payload, &mut client);
            }
        }
        d.clients.sort_unstable();
        d.clients.dedup();
        self.damage = Some(d);
    }
}

/// So much of a key is compared without a look at its segment.
const BEGINNING_BYTES: usize = 24;

/// A write in the order of keys.
struct Place {
    /// The key's first bytes as numbers, zeros behind a shorter one.
    beginning: [u64; BEGINNING_BYTES / 8],
    len: u32,
    /// Among the writes.
    index: u32,
}

impl Place {
    fn new(key: &[u8], index: u32) -> Place {
        let mut b = [0; BEGINNING_BYTES];
        let n = key.len().min(BEGINNING_BYTES);
        b[..n].copy_from_slice(&key[..n]);
        let number = |i: usize| u64::from_be_bytes(b[8 * i..8 * i + 8].try_into().expect("eight bytes"));
        Place { beginning: std::array::from_fn(number), len: key.len() as u32, index }
    }

    fn by_key<'a>(&self, other: &Place, key: impl Fn(u32) -> &'a [u8]) -> Ordering {
        self.beginning.cmp(&other.beginning).then_with(|| {
            if self.len.max(other.len) as usize <= BEGINNING_BYTES {
                self.len.cmp(&other.len)
            } else {
                key(self.index).cmp(key(other.index))
            }
        })
    }
}

fn read_segments(world: &World, dir: &str, out: &mut Replay) -> Result<Vec<Segment>, StoreError> {
    let mut segments = Vec::new();
    for name in world.disk.list(dir).map_err(StoreError::io("cannot list", dir))? {
        let Some(kind) = segment::parse_name(&name) else { continue };
        let path = format!("{dir}/{name}");
        out.files.push(Found { path: path.clone(), first_lsn: None });
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
        // What the page cache has may be nowhere else: of a killed process it is written now, and what a
        // failed flush left there is not believed. What is read counts from now on, so it must not get lost
        // any more.
        medium::show(&*file, &path)?;
        let mut bytes = segment::read_all(&*file, &path)?;
        let header = SegmentHeader::find(&bytes, number, &path)?;
        if header.is_some_and(|h| h.salt.is_some()) {
            bytes.truncate(bytes.len() - SEGMENT_HEADER_BYTES);
        }
        segments.push(Segment { path, number, header, bytes });
    }
    segments.sort_by_key(|s| s.number);
    Ok(segments)
}
