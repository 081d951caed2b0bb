//! Read-ahead: which reads follow which, and what will be read next. Pure; offsets and sizes are of the file.

use crate::session::PAGE_BYTES;
use model::Timestamp;
use model::counters::{Counters, Samples};

/// Streams of one file that are told apart.
const STREAMS_MAX: usize = 8;
/// The first window of a stream.
const WINDOW_MIN: u64 = 1 << 20;
/// Reads of a stream may leave out, or come early by, so much.
const SLACK: u64 = 128 << 10;
/// Steps of a stride that are read ahead at most.
const STRIDE_STEPS: u64 = 16;
/// [`Stream::earn`] of a stream that finds what was read ahead for it, and at most.
const EARN_MIN: u32 = 2;
const EARN_MAX: u32 = 256;
/// Where what is read ahead ends: at full messages and full blocks of checksums, unless the window is
/// smaller.
const ALIGN: u64 = 4 << 20;

/// `llite.*.read_ahead_stats`, with Lustre's names; the unit is the page of 4 KiB.
pub(crate) struct AheadStats(Counters<Ahead>);

model::counters! {
    /// What is counted about reading ahead.
    pub(crate) enum Ahead {
        /// Pages of reads that were here when the read came, or on their way.
        Hits = "hits" in "pages",
        /// Pages that a read had to fetch.
        Misses = "misses" in "pages",
        /// Pages fetched before they were asked for.
        Fetched = "readahead pages" in "pages",
        /// Pages that were not, because the file ends before them.
        Eof = "read-ahead to EOF" in "pages",
        /// Pages that were not, because `max_read_ahead_mb` were under way.
        Max = "hit max r-a issue" in "pages",
        /// Pages that were not, because no lock covers them.
        Unlocked = "no lock" in "pages",
    }
}

impl AheadStats {
    pub(crate) fn new(now: Timestamp) -> AheadStats {
        AheadStats(Counters::of_set(now))
    }

    /// `bytes`, as pages, begun ones included.
    pub(crate) fn add(&self, what: Ahead, bytes: u64) {
        if bytes > 0 {
            self.0.count(what, bytes.div_ceil(PAGE_BYTES as u64));
        }
    }

    pub(crate) fn clear(&self, now: Timestamp) {
        self.0.clear(now);
    }

    pub(crate) fn read(&self, now: Timestamp) -> Samples {
        self.0.read(now)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Where the last read began and ended.
    start: u64,
    end: u64,
    /// Reads in a row, forward, backward, or by a stride.
    forward: u32,
    backward: u32,
    strides: u32,
    stride: i64,
    window: u64,
    /// Reads in a row it takes before something is read ahead.
    earn: u32,
    /// Read ahead up to (backward: down to) here.
    done: u64,
    used: u64,
}

/// The streams of reads in one file.
#[derive(Default, Debug)]
pub(crate) struct Streams {
    all: Vec<Stream>,
    clock: u64,
}

impl Streams {
    /// Notes a read of `len` bytes; returns the ranges to read ahead. `max`: the largest window, 0 for none.
    /// `missed`: some of it was neither here nor on its way.
    pub fn note(&mut self, off: u64, len: u64, max: u64, missed: bool) -> Vec<(u64, u64)> {
        if max == 0 || len == 0 {
            return Vec::new();
        }
        self.clock += 1;
        let end = off + len;
        let near = |s: &Stream| off + SLACK >= s.end && off <= s.end + SLACK && off > s.start;
        let exact = |s: &Stream| off == s.end;
        let found = self
            .all
            .iter()
            .position(exact)
            .or_else(|| self.all.iter().position(|s| s.forward > 1 && near(s)))
            .or_else(|| self.all.iter().position(|s| end == s.start))
            .or_else(|| {
                self.all.iter().position(|s| s.stride != 0 && off as i64 - s.start as i64 == s.stride)
            });
        match found {
            Some(i) => {
                let mut s = self.all[i];
                s.used = self.clock;
                let out = step(&mut s, off, end, max, missed);
                self.all[i] = s;
                out
            }
            None => self.begin(off, end, max),
        }
    }

    fn begin(&mut self, off: u64, end: u64, max: u64) -> Vec<(u64, u64)> {
        // A read at a new place: perhaps the second step of a stride of the newest stream.
        let last = self.all.iter().max_by_key(|s| s.used).copied();
        let (forward, earn) = (1, EARN_MIN);
        let mut s =
            Stream { start: off, end, forward, earn, used: self.clock, done: end, ..Stream::default() };
        if let Some(l) = last
            && l.end - l.start == end - off
        {
            s.stride = off as i64 - l.start as i64;
            s.strides = 1;
        }
        let mut out = Vec::new();
        if off == 0 {
            // Most files are read from their start to their end.
            s.window = WINDOW_MIN.min(max);
            let to = end + s.window;
            s.done = (to - to % PAGE_BYTES as u64).max(end);
            out.push((end, s.done));
        }
        if self.all.len() >= STREAMS_MAX {
            let oldest = (0..self.all.len()).min_by_key(|i| self.all[*i].used).expect("there are some");
            self.all.swap_remove(oldest);
        }
        self.all.push(s);
        out
    }
}

fn step(s: &mut Stream, off: u64, end: u64, max: u64, missed: bool) -> Vec<(u64, u64)> {
    let (old_start, old_end) = (s.start, s.end);
    (s.start, s.end) = (off, end);
    if end == old_start && off < old_start {
        (s.forward, s.strides) = (0, 0);
        s.backward += 1;
        if s.backward < 2 {
            s.done = off;
            return Vec::new();
        }
        s.window = (s.window * 2).clamp(WINDOW_MIN, max.max(1));
        let from = off.saturating_sub(s.window);
        let to = s.done.min(off);
        if to <= from || (to - from) * 2 < s.window {
            return Vec::new();
        }
        s.done = from;
        return vec![(from, to)];
    }
    s.backward = 0;
    if off + SLACK >= old_end && off <= old_end + SLACK {
        s.strides = 0;
        s.forward += 1;
        return forward(s, end, end - off, max, missed);
    }
    s.forward = 0;
    s.strides += 1;
    if s.strides < 3 || s.stride <= 0 {
        return Vec::new();
    }
    let (stride, len) = (s.stride as u64, end - off);
    let steps = (max / len.max(1)).min(STRIDE_STEPS).min(u64::from(s.strides));
    let mut out = Vec::new();
    for i in 1..=steps {
        let at = off + i * stride;
        if at + len > s.done || s.strides == 3 {
            out.push((at, at + len));
            s.done = s.done.max(at + len);
        }
    }
    out
}

/// The next part of a stream, in large steps: half a window at a time.
fn forward(s: &mut Stream, end: u64, len: u64, max: u64, missed: bool) -> Vec<(u64, u64)> {
    if s.done > end {
        if missed {
            // What was foreseen is not here: it was not fetched (no lock, too much under way), or is gone
            // again because more is read ahead than can be kept, or others write here. Once more from here,
            // but less of it, and later.
            (s.done, s.forward) = (end, 1);
            s.window /= 4;
            s.earn = (s.earn * 2).min(EARN_MAX);
        } else {
            s.earn = EARN_MIN;
        }
    }
    if s.forward < s.earn {
        return Vec::new();
    }
    let window = (s.window * 2).max(len * 4).max(WINDOW_MIN / 8).min(max);
    let from = s.done.max(end);
    let mut to = end + window;
    if to <= from || (to - from) * 2 < window {
        return Vec::new();
    }
    let align = if window >= 2 * ALIGN { ALIGN } else { PAGE_BYTES as u64 };
    to -= to % align;
    if to <= from {
        return Vec::new();
    }
    (s.window, s.done) = (window, to);
    vec![(from, to)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 32 << 20;

    #[test]
    fn a_sequential_reader_is_always_ahead_and_the_window_grows_to_its_limit() {
        let mut s = Streams::default();
        let (mut covered, mut at, mut widest) = (0, 0, 0);
        for _ in 0..200 {
            for (a, b) in s.note(at, 1 << 20, MAX, false) {
                assert!(a >= at && b > a && b <= at + (1 << 20) + MAX);
                covered = covered.max(b);
                widest = widest.max(b - a);
            }
            at += 1 << 20;
            assert!(covered >= at, "{at}");
        }
        assert!(widest <= MAX && covered >= at + MAX / 2);
    }

    #[test]
    fn what_was_foreseen_and_is_not_there_is_foreseen_again() {
        let mut s = Streams::default();
        let mut foreseen: Vec<(u64, u64)> = Vec::new();
        let (len, mut missed) = (47_008, 0);
        for i in 0..4_000u64 {
            let (off, end) = (i * len, (i + 1) * len);
            let here = |at: u64| foreseen.iter().any(|(a, b)| (*a..*b).contains(&at));
            // What lies around 50 MiB does not come at the first time.
            let miss = !here(off) || !here(end - 1);
            missed += u32::from(miss);
            for r in s.note(off, len, MAX, miss) {
                let lost = r.0 < 50 << 20 && 50 << 20 < r.1 && missed < 8;
                foreseen.extend((!lost).then_some(r));
            }
        }
        assert!((2..16).contains(&missed), "{missed}");
    }

    #[test]
    fn what_never_can_be_kept_is_hardly_read_ahead() {
        let mut s = Streams::default();
        let mut ahead = 0;
        for i in 0..20_000u64 {
            ahead += s.note(i * 4096, 4096, MAX, true).iter().map(|(a, b)| b - a).sum::<u64>();
        }
        assert!(ahead < 2 * 20_000 * 4096, "{ahead}");
    }

    #[test]
    fn large_windows_end_at_full_messages() {
        let mut s = Streams::default();
        let mut ends = Vec::new();
        for i in 0..4_000u64 {
            ends.extend(s.note(i * 47_008, 47_008, MAX, false).iter().map(|(_, b)| *b));
        }
        let full = ends.iter().filter(|b| *b % ALIGN == 0).count();
        assert!(full > 4 && ends.iter().all(|b| b % 4096 == 0), "{ends:?}");
    }

    #[test]
    fn random_reads_bring_nothing() {
        let mut s = Streams::default();
        let mut x = 88_172_645_463_325_252u64;
        let mut ahead = 0;
        for _ in 0..10_000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let off = (x % (1 << 18)) * 4096 + 4096;
            ahead += s.note(off, 4096, MAX, true).iter().map(|(a, b)| b - a).sum::<u64>();
        }
        assert!(ahead < 10_000 * 4096 / 50, "{ahead}");
    }

    #[test]
    fn backward_strides_and_several_streams_are_seen() {
        let mut s = Streams::default();
        let mut back = 0;
        for i in (0..64u64).rev() {
            back += s.note(1 << 30 | i << 16, 1 << 16, MAX, false).len();
        }
        assert!(back > 0);
        let mut s = Streams::default();
        let hits: Vec<(u64, u64)> =
            (1..40u64).flat_map(|i| s.note(i * 1_000_000, 8192, MAX, false)).collect();
        assert!(
            !hits.is_empty() && hits.iter().all(|(a, b)| a % 1_000_000 == 0 && b - a == 8192),
            "{hits:?}"
        );
        let mut s = Streams::default();
        let mut ahead = [0u64; 4];
        for i in 0..50u64 {
            for (n, a) in ahead.iter_mut().enumerate() {
                let base = [1u64, 3, 9, 30][n] << 32;
                for (x, y) in s.note(base + i * 65536, 65536, MAX, false) {
                    assert!(x >= base && y < base + (1 << 32));
                    *a += y - x;
                }
            }
        }
        assert!(ahead.iter().all(|a| *a > 0), "{ahead:?}");
    }
}
