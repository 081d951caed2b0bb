//! One file: what the page cache holds, what the disk holds, and the changes in between.

use super::{CrashMode, DiskCounters};
use crate::rng::Rng;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub(super) const PAGE_BYTES: u64 = 4096;
/// What a disk writes as one: a torn write keeps or loses whole sectors.
pub(super) const SECTOR_BYTES: u64 = 512;
/// Unflushed bytes of a file above which the oldest go to the disk by themselves, as a kernel's writeback.
const DIRTY_MAX_BYTES: usize = 32 << 20;

pub(super) const KEEP_SIZE: u32 = 0x01;
pub(super) const PUNCH_HOLE: u32 = 0x02;
pub(super) const ZERO_RANGE: u32 = 0x10;

type Page = [u8; PAGE_BYTES as usize];

/// Disjoint, non-adjacent ranges of page numbers, with the number of pages in all.
#[derive(Clone, Default, Debug)]
struct Ranges {
    by_start: BTreeMap<u64, u64>,
    pages: u64,
}

impl Ranges {
    /// How many pages of from..to are in it.
    fn within(&self, from: u64, to: u64) -> u64 {
        let first = self.by_start.range(..=from).next_back().map_or(from, |(&s, _)| s);
        self.by_start.range(first..to).map(|(&s, &e)| e.min(to).saturating_sub(s.max(from))).sum()
    }

    fn remove(&mut self, from: u64, to: u64) {
        if from >= to || self.pages == 0 {
            return;
        }
        let first =
            self.by_start.range(..=from).next_back().filter(|(_, e)| **e > from).map_or(from, |(&s, _)| s);
        let hit: Vec<(u64, u64)> = self.by_start.range(first..to).map(|(&s, &e)| (s, e)).collect();
        for (s, e) in hit {
            self.by_start.remove(&s);
            if s < from {
                self.by_start.insert(s, from);
            }
            if e > to {
                self.by_start.insert(to, e);
            }
            let gone = e.min(to) - s.max(from);
            assert!((1..=self.pages).contains(&gone), "what is taken out of the ranges was in them");
            self.pages -= gone;
        }
    }

    fn add(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        self.remove(from, to);
        let (mut start, mut end) = (from, to);
        if let Some((&s, &e)) = self.by_start.range(..from).next_back()
            && e == from
        {
            start = s;
            self.by_start.remove(&s);
        }
        if let Some(&e) = self.by_start.get(&to) {
            end = e;
            self.by_start.remove(&to);
        }
        self.by_start.insert(start, end);
        self.pages += to - from;
    }
}

/// Bytes of a file, sparse. Pages are shared between page cache, disk and snapshots until written.
#[derive(Clone, Default)]
pub(super) struct Content {
    pub(super) len: u64,
    pages: BTreeMap<u64, Arc<Page>>,
    /// Allocated but never written: space is held, content is zero.
    reserved: Ranges,
}

impl Content {
    pub(super) fn allocated_pages(&self) -> u64 {
        self.pages.len() as u64 + self.reserved.pages
    }

    /// Pages a write or an allocation there would newly take.
    pub(super) fn missing_pages(&self, off: u64, len: u64) -> u64 {
        let want = pages_of(off, len);
        let have = self.pages.range(want.clone()).count() as u64 + self.reserved.within(want.start, want.end);
        want.end - want.start - have
    }

    pub(super) fn read(&self, buf: &mut [u8], off: u64) -> usize {
        let n = self.len.saturating_sub(off).min(buf.len() as u64) as usize;
        for (p, at, part) in split(off, n) {
            match self.pages.get(&p) {
                Some(page) => buf[part.clone()].copy_from_slice(&page[at..at + part.len()]),
                None => buf[part].fill(0),
            }
        }
        n
    }

    pub(super) fn write(&mut self, off: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.put(off, data);
        self.len = self.len.max(off + data.len() as u64);
    }

    /// Bytes without moving the end of the file.
    fn put(&mut self, off: u64, data: &[u8]) {
        for (p, at, part) in split(off, data.len()) {
            let src = &data[part];
            if let Ok(whole) = <&Page>::try_from(src) {
                self.pages.insert(p, Arc::new(*whole));
            } else {
                let page = self.pages.entry(p).or_insert_with(|| Arc::new([0; PAGE_BYTES as usize]));
                Arc::make_mut(page)[at..at + src.len()].copy_from_slice(src);
            }
            self.reserved.remove(p, p + 1);
        }
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            let keep = len.div_ceil(PAGE_BYTES);
            self.pages.split_off(&keep);
            self.reserved.remove(keep, u64::MAX);
            self.zero_part(len, keep * PAGE_BYTES);
        }
        self.len = len;
    }

    /// Zeroes from..to, which lies in one page, if that page exists.
    fn zero_part(&mut self, from: u64, to: u64) {
        if from < to
            && let Some(page) = self.pages.get_mut(&(from / PAGE_BYTES))
        {
            let start = (from % PAGE_BYTES) as usize;
            Arc::make_mut(page)[start..start + (to - from) as usize].fill(0);
        }
    }

    /// The checks are the caller's.
    pub(super) fn allocate(&mut self, mode: u32, off: u64, len: u64) {
        let end = off + len;
        let (first, last) = (off.div_ceil(PAGE_BYTES), end / PAGE_BYTES);
        if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
            if first > last {
                self.zero_part(off, end);
            } else {
                self.zero_part(off, first * PAGE_BYTES);
                self.zero_part(last * PAGE_BYTES, end);
                let gone: Vec<u64> = self.pages.range(first..last).map(|(&p, _)| p).collect();
                for p in gone {
                    self.pages.remove(&p);
                }
                self.reserved.remove(first, last);
            }
        }
        if mode & PUNCH_HOLE == 0 {
            let (from, to) = (off / PAGE_BYTES, end.div_ceil(PAGE_BYTES));
            self.reserved.add(from, to);
            let written: Vec<u64> = self.pages.range(from..to).map(|(&p, _)| p).collect();
            for p in written {
                self.reserved.remove(p, p + 1);
            }
            if mode & KEEP_SIZE == 0 {
                self.len = self.len.max(end);
            }
        }
    }

    pub(super) fn seek_data(&self, off: u64) -> Option<u64> {
        if off >= self.len {
            return None;
        }
        let (&p, _) = self.pages.range(off / PAGE_BYTES..).next()?;
        let at = off.max(p * PAGE_BYTES);
        (at < self.len).then_some(at)
    }

    pub(super) fn seek_hole(&self, off: u64) -> Option<u64> {
        if off >= self.len {
            return None;
        }
        let mut p = off / PAGE_BYTES;
        for (&have, _) in self.pages.range(p..) {
            if have != p {
                break;
            }
            p += 1;
        }
        Some(off.max(p * PAGE_BYTES).min(self.len))
    }

    /// What makes an empty file to one with this content.
    pub(super) fn as_changes(&self) -> impl Iterator<Item = DataOp> {
        let page = |(&p, page): (&u64, &Arc<Page>)| DataOp::Write {
            off: p * PAGE_BYTES,
            data: Bytes::copy_from_slice(&page[..]),
        };
        self.pages.iter().map(page).chain([DataOp::SetLen(self.len)])
    }

    pub(super) fn flip(&mut self, off: u64, mask: u8) {
        if let Some(page) = self.pages.get_mut(&(off / PAGE_BYTES)) {
            Arc::make_mut(page)[(off % PAGE_BYTES) as usize] ^= mask;
        }
    }
}

fn pages_of(off: u64, len: u64) -> std::ops::Range<u64> {
    if len == 0 { 0..0 } else { off / PAGE_BYTES..(off + len).div_ceil(PAGE_BYTES) }
}

/// (page, offset in it, range of the buffer) for each page that off..off+len touches.
fn split(off: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < len).then(|| {
            let here = off + done as u64;
            let at = (here % PAGE_BYTES) as usize;
            let n = (len - done).min(PAGE_BYTES as usize - at);
            done += n;
            (here / PAGE_BYTES, at, done - n..done)
        })
    })
}

/// A change that a flush makes durable.
#[derive(Clone)]
pub(super) enum DataOp {
    Write { off: u64, data: Bytes },
    SetLen(u64),
    Allocate { mode: u32, off: u64, len: u64 },
}

#[derive(Clone, Default)]
pub(super) struct FileNode {
    /// The page cache: what every reader sees.
    pub(super) now: Content,
    disk: Content,
    pending: VecDeque<DataOp>,
    pending_bytes: usize,
}

impl FileNode {
    /// Does `op` in the page cache.
    pub(super) fn change(&mut self, op: DataOp) {
        match &op {
            DataOp::Write { off, data } => {
                self.now.write(*off, data);
                self.pending_bytes += data.len();
            }
            DataOp::SetLen(len) => self.now.set_len(*len),
            DataOp::Allocate { mode, off, len } => self.now.allocate(*mode, *off, *len),
        }
        self.pending.push_back(op);
        while self.pending_bytes > DIRTY_MAX_BYTES {
            self.write_back_oldest();
        }
    }

    fn write_back_oldest(&mut self) {
        match self.pending.pop_front() {
            Some(DataOp::Write { off, data }) => {
                assert!(self.pending_bytes >= data.len(), "bytes that wait for the disk are counted");
                self.pending_bytes -= data.len();
                self.disk.write(off, &data);
            }
            Some(DataOp::SetLen(len)) => self.disk.set_len(len),
            Some(DataOp::Allocate { mode, off, len }) => self.disk.allocate(mode, off, len),
            None => {}
        }
    }

    pub(super) fn dirty(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Everything in the page cache is durable.
    pub(super) fn flush(&mut self) {
        let ops = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        for op in &ops {
            match op {
                DataOp::Write { .. } => {}
                DataOp::SetLen(len) => self.disk.set_len(*len),
                DataOp::Allocate { mode, off, len } => self.disk.allocate(*mode, *off, *len),
            }
        }
        // Shares the written pages instead of writing them twice.
        for op in &ops {
            let DataOp::Write { off, data } = op else { continue };
            for p in pages_of(*off, data.len() as u64) {
                match self.now.pages.get(&p) {
                    Some(page) => self.disk.pages.insert(p, page.clone()),
                    None => self.disk.pages.remove(&p),
                };
                self.disk.reserved.remove(p, p + 1);
            }
        }
        if self.disk.len != self.now.len {
            self.disk.set_len(self.now.len);
        }
        assert!(!self.dirty(), "nothing waits for the disk after a flush");
    }

    /// A flush failed, or the power: each pending change reaches the disk or not. The page cache stays.
    pub(super) fn lose_pending(&mut self, mode: CrashMode, rng: &mut Rng, count: &mut DiskCounters) {
        self.pending_bytes = 0;
        // The host may just have written all of one file and nothing of another.
        let whole = mode == CrashMode::Random && rng.below(4) == 0;
        for op in std::mem::take(&mut self.pending) {
            let keep = match mode {
                CrashMode::Random if whole => 1,
                CrashMode::Random => rng.below(3),
                CrashMode::LoseAll => 0,
                CrashMode::KeepAll => 1,
            };
            match (keep, op) {
                (0, _) => count.lost_writes += 1,
                (1, DataOp::Write { off, data }) => {
                    self.disk.write(off, &data);
                    count.kept_writes += 1;
                }
                (_, DataOp::Write { off, data }) => {
                    self.tear(off, &data, rng);
                    count.torn_writes += 1;
                }
                (_, DataOp::SetLen(len)) => {
                    self.disk.set_len(len);
                    count.kept_writes += 1;
                }
                (_, DataOp::Allocate { mode, off, len }) => {
                    self.disk.allocate(mode, off, len);
                    count.kept_writes += 1;
                }
            }
        }
    }

    /// Each sector by itself; the size may cover them all even if the last ones are lost.
    fn tear(&mut self, off: u64, data: &[u8], rng: &mut Rng) {
        let end = off + data.len() as u64;
        let mut at = off;
        while at < end {
            let next = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
            if rng.coin() {
                self.disk.write(at, &data[(at - off) as usize..(next - off) as usize]);
            }
            at = next;
        }
        if rng.coin() {
            self.disk.len = self.disk.len.max(end);
        }
    }

    /// The page cache gives up what is clean; how many pages of it the disk had never got. The size is no
    /// page: it stays what readers see until the power fails.
    pub(super) fn drop_clean(&mut self) -> u64 {
        let mut now = self.disk.clone();
        for op in &self.pending {
            match op {
                DataOp::Write { off, data } => now.write(*off, data),
                DataOp::SetLen(len) => now.set_len(*len),
                DataOp::Allocate { mode, off, len } => now.allocate(*mode, *off, *len),
            }
        }
        now.set_len(self.now.len);
        let zeros = Arc::new([0; PAGE_BYTES as usize]);
        let differs = |(p, page): (&u64, &Arc<Page>)| {
            let disk = now.pages.get(p).unwrap_or(&zeros);
            !Arc::ptr_eq(page, disk) && page != disk
        };
        let phantoms = self.now.pages.iter().filter(|p| differs(*p)).count() as u64;
        self.now = now;
        phantoms
    }

    /// After a crash: the page cache is what the disk holds.
    pub(super) fn reload(&mut self) {
        self.now = self.disk.clone();
    }

    /// Damage at rest: page cache and disk alike.
    pub(super) fn flip(&mut self, off: u64, mask: u8) {
        self.now.flip(off, mask);
        self.disk.flip(off, mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_agree_with_a_set_of_numbers() {
        let mut rng = Rng::new(5);
        let mut ranges = Ranges::default();
        let mut set = std::collections::BTreeSet::new();
        for _ in 0..3000 {
            let from = rng.below(60);
            let to = from + rng.below(12);
            if rng.coin() {
                ranges.add(from, to);
                set.extend(from..to);
            } else {
                ranges.remove(from, to);
                set.retain(|p| *p < from || *p >= to);
            }
            assert_eq!(ranges.pages, set.len() as u64);
            for p in 0..75 {
                let n = set.range(p..p + 9).count() as u64;
                assert_eq!(ranges.within(p, p + 9), n, "{p} in {ranges:?}");
            }
            let ends: Vec<(u64, u64)> = ranges.by_start.iter().map(|(&s, &e)| (s, e)).collect();
            assert!(ends.iter().all(|(s, e)| s < e) && ends.windows(2).all(|w| w[0].1 < w[1].0), "{ends:?}");
        }
    }
}
