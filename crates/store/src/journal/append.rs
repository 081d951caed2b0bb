//! The writing end of the journal. Appends go to the page cache at once (they survive a killed process);
//! [`Journal::sync_set`] tells the committer what to flush so that they survive a power cut.

use super::Lsn;
use super::record::{self, RecordHeader};
use super::segment::{self, SEGMENT_HEADER_BYTES, SegmentHeader, Spare};
use crate::StoreError;
use crate::bytes::Writer;
use model::planted::{self, Bug};
use std::collections::VecDeque;
use std::sync::Arc;
use world::{DiskFile, World};

/// Spare segments kept for reuse: their blocks are written already, so a flush need not allocate.
const SPARES_KEPT: usize = 2;

/// Zeros are written ahead of small records, so many bytes at a time: the host then flushes such a record
/// without noting that its place is used from now on, which takes as long as the flush itself.
const AHEAD_BYTES: usize = 512 << 10;
/// Larger records are not slowed down by that, and would have their bytes written twice.
const AHEAD_RECORD_MAX_BYTES: u64 = 16 << 10;

struct Active {
    number: u64,
    salt: u64,
    file: Arc<dyn DiskFile>,
    path: String,
    /// Of the file; the last of them hold a copy of the header.
    bytes: u64,
    pos: u64,
    /// Up to here something was written, if zeros.
    written: u64,
    first_lsn: Lsn,
}

impl Active {
    /// Records end here.
    fn end(&self) -> u64 {
        self.bytes - SEGMENT_HEADER_BYTES as u64
    }

    /// Writes zeros where the next records will be. They are what was read there before.
    fn prepare(&mut self, need: u64) -> std::io::Result<()> {
        let end = self.pos + need;
        if end > self.written && need <= AHEAD_RECORD_MAX_BYTES {
            let from = self.written.max(self.pos);
            let to = (from + AHEAD_BYTES as u64).min(self.end());
            self.file.write_at(&vec![0; (to - from) as usize], from)?;
            self.written = to;
        }
        self.written = self.written.max(end);
        Ok(())
    }
}

impl Active {
    fn sealed(self, last_lsn: Lsn) -> Sealed {
        Sealed { path: self.path, last_lsn, spare: Some((self.file, self.bytes)) }
    }
}

/// A full segment that the table may still need.
struct Sealed {
    path: String,
    last_lsn: Lsn,
    /// To be used again; `None` for those of an earlier start.
    spare: Option<(Arc<dyn DiskFile>, u64)>,
}

/// What one flush has to cover.
pub(crate) struct SyncSet {
    /// Everything up to this record is durable once the flush succeeded.
    pub upto: Lsn,
    files: Vec<(String, Arc<dyn DiskFile>)>,
    dir: Option<String>,
}

impl SyncSet {
    /// Blocks until everything is on disk.
    pub fn run(&self, world: &World) -> Result<(), StoreError> {
        if planted::on(Bug::SkippedFlush) {
            return Ok(());
        }
        for (path, f) in &self.files {
            let flushed = f.sync_data().map_err(StoreError::io("cannot flush journal segment", path));
            if !planted::on(Bug::SwallowedError) {
                flushed?;
            }
        }
        if let Some(d) = &self.dir {
            world.disk.sync_dir(d).map_err(StoreError::io("cannot flush the folder", d))?;
        }
        Ok(())
    }
}

pub(crate) struct Journal {
    world: World,
    dir: String,
    epoch: u32,
    segment_bytes: u64,
    next_lsn: Lsn,
    next_number: u64,
    active: Option<Active>,
    sealed: VecDeque<Sealed>,
    spares: VecDeque<Spare>,
    /// Sealed since the last flush was begun.
    unflushed: Vec<(String, Arc<dyn DiskFile>)>,
    dir_changed: bool,
}

impl Journal {
    /// A journal in `dir` that goes on with `next_lsn`. `next_number` is above every name in the folder.
    pub fn new(
        world: &World,
        dir: String,
        epoch: u32,
        segment_bytes: u64,
        next_lsn: Lsn,
        next_number: u64,
    ) -> Journal {
        Journal {
            world: world.clone(),
            dir,
            epoch,
            segment_bytes: segment_bytes.max(4096),
            next_lsn,
            next_number,
            active: None,
            sealed: VecDeque::new(),
            spares: VecDeque::new(),
            unflushed: Vec::new(),
            dir_changed: false,
        }
    }

    /// Segments of earlier epochs, in order, hold records up to the last one: they stay until the table has
    /// them.
    pub fn adopt(&mut self, paths: Vec<String>) {
        assert!(self.active.is_none() && self.sealed.is_empty(), "older segments stand before newer ones");
        let last_lsn = self.last_lsn();
        self.sealed.extend(paths.into_iter().map(|path| Sealed { path, last_lsn, spare: None }));
    }

    pub fn last_lsn(&self) -> Lsn {
        self.next_lsn - 1
    }

    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// Writes one record (begun with [`record::begin`]) to the page cache and gives it its place.
    ///
    /// An error that [`StoreError::is_harmless`] left everything as it was (no space for a new segment);
    /// after any other the journal must not be used again.
    pub fn append(&mut self, w: Writer, committed: Lsn) -> Result<Lsn, StoreError> {
        let mut rec = w.0;
        let need = record::record_bytes(rec.len() - record::RECORD_HEADER_BYTES) as u64;
        assert!(need <= record::RECORD_MAX_BYTES as u64 + 8, "record of {need} bytes");
        if self.active.as_ref().is_none_or(|a| a.pos + need > a.end()) {
            self.roll(need, committed)?;
        }
        let lsn = self.next_lsn;
        let active = self.active.as_mut().expect("rolled above");
        let salt = Some(active.salt);
        record::seal(
            &mut rec,
            RecordHeader { lsn, epoch: self.epoch, committed, segment: active.number, salt },
        );
        assert_eq!(rec.len() as u64, need, "a sealed record has the bytes that were reckoned for it");
        assert_eq!(
            active.pos % record::RECORD_ALIGN_BYTES as u64,
            0,
            "records begin where a start looks for them"
        );
        assert!(active.pos + need <= active.end(), "no record reaches into the copy of the segment's header");
        assert!(lsn >= active.first_lsn, "a segment holds nothing from before its first record");
        active.prepare(need).and_then(|()| active.file.write_at(&rec, active.pos)).map_err(|e| {
            StoreError::Stopped(format!("cannot write journal segment '{}': {e}", active.path))
        })?;
        active.pos += need;
        self.next_lsn += 1;
        Ok(lsn)
    }

    /// Seals the active segment and begins the next.
    fn roll(&mut self, need: u64, committed: Lsn) -> Result<(), StoreError> {
        let need = need + 2 * SEGMENT_HEADER_BYTES as u64;
        let number = self.next_number;
        let spare = match self.spares.iter().position(|s| s.bytes >= need) {
            Some(i) => self.spares.remove(i).expect("found just now"),
            None => {
                let bytes = self.segment_bytes.max(need).next_multiple_of(4096);
                let s = Spare::create(&self.world, &self.dir, number, bytes)?;
                self.next_number += 1;
                s
            }
        };
        let number = self.next_number;
        assert!(spare.bytes >= need, "a new segment has room for the record that it is begun for");
        assert!(self.active.as_ref().is_none_or(|a| a.number < number), "segments' numbers grow");
        let path = segment::log_path(&self.dir, number);
        let fatal = |what: &str, e: std::io::Error| {
            StoreError::Stopped(format!("cannot {what} journal segment '{path}': {e}"))
        };
        let salt = self.world.random_u64();
        let header = SegmentHeader {
            epoch: self.epoch,
            number,
            first_lsn: self.next_lsn,
            committed,
            salt: Some(salt),
        };
        let copy_at = spare.bytes - SEGMENT_HEADER_BYTES as u64;
        for at in [0, copy_at] {
            spare.file.write_at(&header.encode(), at).map_err(|e| fatal("write", e))?;
        }
        self.world.disk.rename(&spare.path, &path).map_err(|e| fatal("name", e))?;
        self.next_number += 1;
        self.dir_changed = true;
        let next = Active {
            number,
            salt,
            file: spare.file,
            path,
            bytes: spare.bytes,
            pos: SEGMENT_HEADER_BYTES as u64,
            written: if spare.used { spare.bytes } else { 0 },
            first_lsn: self.next_lsn,
        };
        if let Some(old) = self.active.replace(next) {
            let last = self.next_lsn - 1;
            assert!(self.sealed.back().is_none_or(|s| s.last_lsn <= last), "segments are sealed in order");
            self.unflushed.push((old.path.clone(), old.file.clone()));
            self.sealed.push_back(old.sealed(last));
        }
        Ok(())
    }

    /// What has to be flushed for all records appended so far. The caller runs it and stops the target if
    /// that fails: what was taken here is not offered again.
    pub fn sync_set(&mut self) -> SyncSet {
        let mut files = std::mem::take(&mut self.unflushed);
        if let Some(a) = &self.active {
            files.push((a.path.clone(), a.file.clone()));
        }
        let dir = std::mem::take(&mut self.dir_changed).then(|| self.dir.clone());
        SyncSet { upto: self.last_lsn(), files, dir }
    }

    pub fn half_full(&self) -> bool {
        self.active.as_ref().is_some_and(|a| a.pos > a.bytes / 2)
    }

    /// Number for a spare to be prepared elsewhere, if one is wanted.
    pub fn wants_spare(&mut self) -> Option<(String, u64, u64)> {
        if self.spares.iter().any(|s| s.bytes >= self.segment_bytes) {
            return None;
        }
        let n = self.next_number;
        self.next_number += 1;
        Some((self.dir.clone(), n, self.segment_bytes.next_multiple_of(4096)))
    }

    pub fn add_spare(&mut self, s: Spare) {
        self.spares.push_back(s);
        assert!(self.spares.len() <= SPARES_KEPT + 1, "spare segments take a bounded part of the disk");
    }

    /// Gives up segments that hold nothing above `applied`. The table must hold all of that durably.
    pub fn trim(&mut self, applied: Lsn) -> Result<(), StoreError> {
        assert!(applied < self.next_lsn, "the table holds nothing that the journal never held");
        while self.sealed.front().is_some_and(|s| s.last_lsn <= applied) {
            let s = self.sealed.pop_front().expect("looked at just now");
            self.retire(s)?;
        }
        Ok(())
    }

    /// After everything was applied: no segment stays.
    pub fn trim_all(&mut self) -> Result<(), StoreError> {
        self.trim(self.last_lsn())?;
        assert!(self.sealed.is_empty(), "every sealed segment ends before the next record");
        self.unflushed.clear();
        if let Some(a) = self.active.take() {
            assert!(a.first_lsn <= self.next_lsn, "a segment begins with a record that was given out");
            self.retire(a.sealed(self.next_lsn - 1))?;
        }
        Ok(())
    }

    fn retire(&mut self, s: Sealed) -> Result<(), StoreError> {
        self.dir_changed = true;
        let usual = self.segment_bytes.next_multiple_of(4096);
        if let Some((file, bytes)) = s.spare.filter(|(_, b)| self.spares.len() < SPARES_KEPT && *b == usual) {
            let path = segment::spare_path(&self.dir, self.next_number);
            self.next_number += 1;
            self.world
                .disk
                .rename(&s.path, &path)
                .map_err(StoreError::io("cannot rename journal segment", &s.path))?;
            self.spares.push_back(Spare { path, file, bytes, used: true });
        } else {
            self.world
                .disk
                .unlink(&s.path)
                .map_err(StoreError::io("cannot remove journal segment", &s.path))?;
        }
        Ok(())
    }
}
