//! Bytes of one object that the client keeps, as byte ranges without any alignment: dirty (to be written),
//! flushing (being written) and clean (as the server has them). A pure data structure; who may look at what
//! is decided by the locks above it.

use bytes::Bytes;
use model::limits::SUM_BLOCK_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use wire::Bulk;

/// Small writes that follow each other are gathered up to this size.
const GATHER_MAX_BYTES: usize = 1 << 20;
/// When so much is gathered there will be more: memory for all of it.
const RESERVE_FROM_BYTES: usize = 128 << 10;
/// Writes of at least this size are kept as they came, without a copy.
const KEEP_MIN_BYTES: usize = 512 << 10;
const BLOCK_BYTES: u64 = SUM_BLOCK_BYTES as u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SegmentState {
    Clean,
    Dirty,
    /// Part of the write with this number.
    Flushing(u64),
}

#[derive(Debug)]
enum Store {
    Shared(Bytes),
    /// May still grow.
    Own(Vec<u8>),
}

impl Store {
    fn as_slice(&self) -> &[u8] {
        match self {
            Store::Shared(b) => b,
            Store::Own(v) => v,
        }
    }
}

#[derive(Debug)]
struct Segment {
    store: Store,
    state: SegmentState,
    /// Clean: age, for eviction. Otherwise: number of the first write that is in it.
    stamp: u64,
}

impl Segment {
    fn len(&self) -> u64 {
        self.store.as_slice().len() as u64
    }

    /// The bytes from `from` on, `len` of them, as a segment of their own.
    fn part(&self, from: usize, len: usize) -> Segment {
        let store = match &self.store {
            Store::Shared(b) => Store::Shared(b.slice(from..from + len)),
            Store::Own(v) => Store::Own(v[from..from + len].to_vec()),
        };
        Segment { store, state: self.state, stamp: self.stamp }
    }
}

/// Ends are exclusive.
#[derive(Default, Debug)]
pub(crate) struct Segments {
    map: BTreeMap<u64, Segment>,
    /// Starts of dirty segments.
    dirty: BTreeSet<u64>,
    /// Clean segments by age.
    ages: BTreeMap<u64, u64>,
    dirty_bytes: u64,
    flushing_bytes: u64,
    clean_bytes: u64,
    next_stamp: u64,
}

impl Segments {
    fn insert(&mut self, at: u64, s: Segment) {
        let len = s.len();
        assert!(len > 0, "segments hold bytes");
        match s.state {
            SegmentState::Dirty => {
                self.dirty.insert(at);
                self.dirty_bytes += len;
            }
            SegmentState::Flushing(_) => self.flushing_bytes += len,
            SegmentState::Clean => {
                self.ages.insert(s.stamp, at);
                self.clean_bytes += len;
            }
        }
        let old = self.map.insert(at, s);
        assert!(old.is_none(), "segments do not overlap");
    }

    fn remove(&mut self, at: u64) -> Segment {
        let s = self.map.remove(&at).expect("the segment is there");
        match s.state {
            SegmentState::Dirty => {
                let was = self.dirty.remove(&at);
                assert!(was && self.dirty_bytes >= s.len(), "dirty bytes are counted");
                self.dirty_bytes -= s.len();
            }
            SegmentState::Flushing(_) => {
                assert!(self.flushing_bytes >= s.len(), "bytes that are being written are counted");
                self.flushing_bytes -= s.len();
            }
            SegmentState::Clean => {
                assert!(self.clean_bytes >= s.len(), "clean bytes are counted");
                if self.ages.get(&s.stamp) == Some(&at) {
                    self.ages.remove(&s.stamp);
                }
                self.clean_bytes -= s.len();
            }
        }
        s
    }

    fn stamp(&mut self) -> u64 {
        self.next_stamp += 1;
        self.next_stamp
    }

    /// Puts a segment back that a cut left over; clean ones get an age of their own.
    fn put_back(&mut self, at: u64, mut s: Segment) {
        if s.state == SegmentState::Clean {
            s.stamp = self.stamp();
        }
        self.insert(at, s);
    }

    /// Starts of the segments that overlap a range.
    fn within(&self, start: u64, end: u64) -> Vec<u64> {
        if start >= end {
            return Vec::new();
        }
        let first =
            self.map.range(..start).next_back().filter(|(at, s)| *at + s.len() > start).map(|(at, _)| *at);
        first.into_iter().chain(self.map.range(start..end).map(|(at, _)| *at)).collect()
    }

    /// Forgets a range, whatever its state; returns how many dirty bytes were in it.
    pub fn cut(&mut self, start: u64, end: u64) -> u64 {
        self.cut_where(start, end, |_| true)
    }

    fn cut_where(&mut self, start: u64, end: u64, which: impl Fn(SegmentState) -> bool) -> u64 {
        assert!(start <= end, "a range ends behind its beginning");
        let before = self.dirty_bytes;
        for at in self.within(start, end) {
            if !which(self.map[&at].state) {
                continue;
            }
            let s = self.remove(at);
            let seg_end = at + s.len();
            if at < start {
                self.put_back(at, s.part(0, (start - at) as usize));
            }
            if seg_end > end {
                self.put_back(end, s.part((end - at) as usize, (seg_end - end) as usize));
            }
        }
        before - self.dirty_bytes
    }

    /// New bytes; returns how many dirty bytes they replace.
    pub fn write(&mut self, off: u64, data: Bytes) -> u64 {
        assert!(!data.is_empty(), "writes bring bytes");
        let end = off + data.len() as u64;
        if data.len() >= KEEP_MIN_BYTES {
            let gone = self.cut(off, end);
            let stamp = self.stamp();
            self.insert(off, Segment { store: Store::Shared(data), state: SegmentState::Dirty, stamp });
            return gone;
        }
        // Into, or behind, what is gathered already?
        if let Some((&at, s)) = self.map.range_mut(..=off).next_back()
            && s.state == SegmentState::Dirty
            && let Store::Own(v) = &mut s.store
        {
            let (from, old_len) = ((off - at) as usize, v.len());
            if from + data.len() <= old_len {
                v[from..from + data.len()].copy_from_slice(&data);
                return data.len() as u64;
            }
            // Up to the end of a block: what follows goes into the same message without being copied once
            // more.
            let room = (at + GATHER_MAX_BYTES as u64) / BLOCK_BYTES * BLOCK_BYTES;
            let now = data.len().min(room.saturating_sub(off) as usize);
            if from == old_len && now > 0 {
                let gone = self.cut(off, end);
                let Some(Segment { store: Store::Own(v), .. }) = self.map.get_mut(&at) else {
                    unreachable!("looked at just before, and the cut is behind it")
                };
                if old_len >= RESERVE_FROM_BYTES {
                    v.reserve_exact(GATHER_MAX_BYTES - old_len);
                }
                v.extend_from_slice(&data[..now]);
                self.dirty_bytes += now as u64;
                if now < data.len() {
                    self.insert_own(off + now as u64, &data[now..]);
                }
                return gone;
            }
        }
        let gone = self.cut(off, end);
        self.insert_own(off, &data);
        gone
    }

    /// Dirty bytes, where nothing is, that more may be added to.
    fn insert_own(&mut self, off: u64, data: &[u8]) {
        let stamp = self.stamp();
        self.insert(off, Segment { store: Store::Own(data.to_vec()), state: SegmentState::Dirty, stamp });
    }

    /// Bytes as the server has them, where nothing is known yet.
    pub fn fill(&mut self, off: u64, data: &Bytes) {
        for (start, end) in self.gaps(off, off + data.len() as u64) {
            let stamp = self.stamp();
            let part = data.slice((start - off) as usize..(end - off) as usize);
            self.insert(start, Segment { store: Store::Shared(part), state: SegmentState::Clean, stamp });
        }
    }

    /// Ranges of which nothing is known.
    pub fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let (mut out, mut at) = (Vec::new(), start);
        for s in self.within(start, end) {
            if s > at {
                out.push((at, s));
            }
            at = s + self.map[&s].len();
        }
        if at < end {
            out.push((at, end));
        }
        out
    }

    /// A range that lies in one piece, without a copy.
    pub fn slice(&self, start: u64, end: u64) -> Option<Bytes> {
        let (at, s) = self.map.range(..=start).next_back()?;
        match &s.store {
            Store::Shared(b) if *at + s.len() >= end => {
                Some(b.slice((start - at) as usize..(end - at) as usize))
            }
            _ => None,
        }
    }

    /// What is known of a range, with its place.
    pub fn known(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &[u8])> {
        self.within(start, end).into_iter().map(move |at| {
            let s = &self.map[&at];
            let (from, to) = (start.max(at), end.min(at + s.len()));
            (from, &s.store.as_slice()[(from - at) as usize..(to - at) as usize])
        })
    }

    /// The end of the last byte that is kept.
    pub fn end(&self) -> u64 {
        self.map.last_key_value().map_or(0, |(at, s)| at + s.len())
    }

    /// The end of the last byte that is not with the server yet.
    pub fn dirty_end(&self) -> u64 {
        let last = self.map.iter().rev().find(|(_, s)| s.state != SegmentState::Clean);
        last.map_or(0, |(at, s)| at + s.len())
    }

    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    /// Dirty and being written.
    pub fn unwritten_bytes(&self) -> u64 {
        self.dirty_bytes + self.flushing_bytes
    }

    pub fn clean_bytes(&self) -> u64 {
        self.clean_bytes
    }

    pub fn count(&self) -> usize {
        self.map.len()
    }

    /// Number of the newest write; [`Segments::is_written`] tells whether everything up to it is out.
    pub fn newest(&self) -> u64 {
        self.next_stamp
    }

    /// Nothing in the range waits to be written, or is, that was there when `upto` was the newest write.
    pub fn is_written(&self, start: u64, end: u64, upto: u64) -> bool {
        if self.dirty_bytes + self.flushing_bytes == 0 {
            return true;
        }
        !self.within(start, end).iter().any(|at| {
            let s = &self.map[at];
            s.state != SegmentState::Clean && s.stamp <= upto
        })
    }

    /// The next run of dirty bytes in `from..to` of at most `max` bytes that starts outside, and keeps clear,
    /// of the ranges in `busy`. It ends at a multiple of `max`, if the dirty bytes reach there. Only runs
    /// whose first bytes were there when `upto` was the newest write.
    pub fn next_dirty(
        &self,
        (from, to): (u64, u64),
        max: u64,
        busy: &[(u64, u64)],
        upto: u64,
    ) -> Option<(u64, u64)> {
        self.find_dirty((from, to), max, busy, upto, |_, _| true)
    }

    /// The next run of dirty bytes that is a message of `max` bytes or, where the dirty bytes begin, the
    /// greater part of one, with nothing to come behind it that would have fitted.
    pub fn next_full(&self, max: u64, busy: &[(u64, u64)]) -> Option<(u64, u64)> {
        let mut at = self.dirty.first().copied();
        while let Some(from) = at {
            // A message ends at the next multiple of `max`; without its last byte it is not full, so that
            // many records with gaps between them (those of other mounts) cost one look for each message they
            // are spread over.
            let end = (from / max + 1).checked_mul(max)?;
            let last = self.dirty.range(..end).next_back().expect("`from` is dirty");
            let reaches = last + self.map[last].len();
            if reaches >= end {
                let full = |start: u64, stop: u64| stop == end && end - start >= max / 2;
                let found = self.find_dirty((from / max * max, end), max, busy, u64::MAX, full);
                if found.is_some() {
                    return found;
                }
            }
            at = if reaches > end { Some(end) } else { self.dirty.range(end..).next().copied() };
        }
        None
    }

    /// The first of the runs of [`Segments::next_dirty`] that is `wanted`, by its start and end.
    fn find_dirty(
        &self,
        (from, to): (u64, u64),
        max: u64,
        busy: &[(u64, u64)],
        upto: u64,
        wanted: impl Fn(u64, u64) -> bool,
    ) -> Option<(u64, u64)> {
        let first =
            self.map.range(..from).next_back().filter(|(at, s)| *at + s.len() > from).map(|(at, _)| *at);
        let starts = first
            .filter(|at| self.dirty.contains(at))
            .into_iter()
            .chain(self.dirty.range(from..to.max(from)).copied());
        let mut skip_to = 0;
        for at in starts {
            if self.map[&at].stamp > upto {
                continue;
            }
            let seg_end = (at + self.map[&at].len()).min(to);
            let mut start = at.max(from).max(skip_to);
            while start < seg_end {
                if let Some((_, busy_end)) = busy.iter().find(|(a, b)| *a <= start && start < *b) {
                    start = *busy_end;
                    continue;
                }
                let limit = busy.iter().map(|b| b.0).filter(|b| *b > start).min().unwrap_or(u64::MAX).min(to);
                let mut end = seg_end.min(limit);
                while end < limit && end - start < max {
                    match self.map.get(&end) {
                        Some(s) if s.state == SegmentState::Dirty => end = (end + s.len()).min(limit),
                        _ => break,
                    }
                }
                let stop = end.min(start.saturating_add(max) / max * max);
                if wanted(start, stop) {
                    return Some((start, stop));
                }
                start = stop;
            }
            skip_to = start;
        }
        None
    }

    /// The next segment at or behind a place that is not with the server yet.
    pub fn next_unwritten(&self, from: u64) -> Option<(u64, u64)> {
        let found = self.map.range(from..).find(|(_, s)| s.state != SegmentState::Clean);
        found.map(|(at, s)| (*at, at + s.len()))
    }

    /// The dirty run around a place, looked at no further than `max` bytes to each side.
    pub fn run_around(&self, off: u64, max: u64) -> (u64, u64) {
        let (mut start, mut end) = (off, off);
        while off - start < max {
            match self.map.range(..start).next_back() {
                Some((at, s)) if s.state == SegmentState::Dirty && at + s.len() >= start && *at < start => {
                    start = *at
                }
                _ => break,
            }
        }
        while end - off < max {
            match self.map.range(..=end).next_back() {
                Some((at, s)) if s.state == SegmentState::Dirty && at + s.len() > end => end = at + s.len(),
                _ => break,
            }
        }
        (start, end)
    }

    /// Takes a run found by [`Segments::next_dirty`] for the write with this number: large pieces that meet
    /// at block boundaries as they are, others put together.
    pub fn take(&mut self, start: u64, end: u64, number: u64) -> Bulk {
        let (mut parts, mut first) = (Vec::new(), u64::MAX);
        for at in self.within(start, end) {
            let mut s = self.remove(at);
            assert!(s.state == SegmentState::Dirty, "the run is dirty");
            // Nothing is added to it any more: it can be shared.
            if let Store::Own(v) = s.store {
                s.store = Store::Shared(Bytes::from(v));
            }
            let seg_end = at + s.len();
            if at < start {
                self.insert(at, s.part(0, (start - at) as usize));
            }
            if seg_end > end {
                self.insert(end, s.part((end - at) as usize, (seg_end - end) as usize));
            }
            let (from, to) = (at.max(start), seg_end.min(end));
            let mut mid = s.part((from - at) as usize, (to - from) as usize);
            mid.state = SegmentState::Flushing(number);
            first = first.min(mid.stamp);
            let Store::Shared(b) = &mid.store else { unreachable!("made so above") };
            parts.push(b.clone());
            self.insert(from, mid);
        }
        assert!(parts.iter().map(|p| p.len() as u64).sum::<u64>() == end - start, "the run has no gaps");
        let mut seam = start;
        let as_they_are = parts.iter().all(|p: &Bytes| {
            let fits = p.len() >= KEEP_MIN_BYTES && (seam == start || seam.is_multiple_of(BLOCK_BYTES));
            seam += p.len() as u64;
            fits
        });
        if as_they_are || parts.len() == 1 {
            return Bulk::of_parts(parts);
        }
        let mut all = Vec::with_capacity((end - start) as usize);
        for p in &parts {
            all.extend_from_slice(p);
        }
        // From now on they are one: the message, which may be kept for long, and what is kept here share the
        // bytes.
        let all = Bytes::from(all);
        for at in self.within(start, end) {
            self.remove(at);
        }
        let (store, state) = (Store::Shared(all.clone()), SegmentState::Flushing(number));
        self.insert(start, Segment { store, state, stamp: first });
        all.into()
    }

    /// The write with this number ended: what is left of it is clean, or lost if it failed. Returns how many
    /// bytes were left.
    pub fn flushed(&mut self, start: u64, end: u64, number: u64, ok: bool) -> u64 {
        let before = self.flushing_bytes;
        for at in self.within(start, end) {
            if self.map[&at].state != SegmentState::Flushing(number) {
                continue;
            }
            let mut s = self.remove(at);
            if ok {
                s.state = SegmentState::Clean;
                s.stamp = self.stamp();
                self.insert(at, s);
            }
        }
        before - self.flushing_bytes
    }

    /// Forgets what is clean in a range.
    pub fn drop_clean(&mut self, start: u64, end: u64) {
        self.cut_where(start, end, |s| s == SegmentState::Clean);
    }

    /// Forgets the oldest clean segment; returns its size.
    pub fn evict_oldest(&mut self) -> Option<u64> {
        let (_, &at) = self.ages.first_key_value()?;
        Some(self.remove(at).len())
    }
}

#[cfg(test)]
#[path = "segments_tests.rs"]
mod tests;
