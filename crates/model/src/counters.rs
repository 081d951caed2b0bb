//! Counters and histograms as Lustre's `stats`, `rpc_stats`, `brw_stats` and `extents_stats` files print them.

use crate::Timestamp;
use crate::mutex::Mutex;
use std::borrow::Cow;
use std::fmt::Write as _;

/// Buckets of a histogram: the last one holds all that is larger.
const BUCKETS: usize = 32;

#[derive(Clone, Copy, Default)]
struct Counter {
    samples: u64,
    min: u64,
    max: u64,
    sum: u64,
    sum_of_squares: u128,
}

struct State {
    since: Timestamp,
    counters: Vec<Counter>,
}

/// A table of counters, each (name, unit): `usecs`, `bytes`, `reqs`.
pub struct Counters {
    table: Vec<(Cow<'static, str>, &'static str)>,
    state: Mutex<State>,
}

impl Counters {
    pub fn new(table: &[(&'static str, &'static str)], now: Timestamp) -> Counters {
        Counters::named(table.iter().map(|(n, u)| (Cow::Borrowed(*n), *u)).collect(), now)
    }

    /// With names that are made at run time.
    pub fn named(table: Vec<(Cow<'static, str>, &'static str)>, now: Timestamp) -> Counters {
        let counters = vec![Counter::default(); table.len()];
        Counters { table, state: Mutex::new(State { since: now, counters }) }
    }

    fn lock(&self) -> crate::mutex::MutexGuard<'_, State> {
        self.state.lock()
    }

    /// One sample for the counter at this place of the table, which must exist.
    pub fn add(&self, index: usize, value: u64) {
        let c = &mut self.lock().counters[index];
        c.min = if c.samples == 0 { value } else { c.min.min(value) };
        c.max = c.max.max(value);
        c.samples += 1;
        c.sum = c.sum.saturating_add(value);
        c.sum_of_squares = c.sum_of_squares.saturating_add(u128::from(value) * u128::from(value));
    }

    /// So many samples for the counter at this place of the table, which must exist: things that have no size.
    pub fn count(&self, index: usize, samples: u64) {
        self.lock().counters[index].samples += samples;
    }

    /// One sample for the counter of this name, which must exist.
    pub fn add_named(&self, name: &str, value: u64) {
        let i = self.table.iter().position(|(n, _)| *n == name);
        self.add(i.unwrap_or_else(|| unreachable!("counter {name} is not declared")), value);
    }

    /// (samples, sum) of a counter; zeros if there is none of this name.
    pub fn total(&self, name: &str) -> (u64, u64) {
        let i = self.table.iter().position(|(n, _)| *n == name);
        i.map_or((0, 0), |i| {
            let c = self.lock().counters[i];
            (c.samples, c.sum)
        })
    }

    pub fn clear(&self, now: Timestamp) {
        *self.lock() = State { since: now, counters: vec![Counter::default(); self.table.len()] };
    }

    /// Name, count, `samples`, unit, min, max, sum, sum of squares; counters that never counted are left out.
    pub fn text(&self, now: Timestamp) -> String {
        let s = self.lock();
        let mut out = String::new();
        times(&mut out, 25, now, s.since);
        for ((name, unit), c) in self.table.iter().zip(&s.counters).filter(|(_, c)| c.samples > 0) {
            let _ = write!(out, "{name:<25} {} samples [{unit}]", c.samples);
            // what has no size but happened
            if !matches!(*unit, "reqs" | "pages") {
                let _ = write!(out, " {} {} {} {}", c.min, c.max, c.sum, c.sum_of_squares);
            }
            out.push('\n');
        }
        out
    }
}

/// The lines every such file begins with, names `width` wide.
pub fn times(out: &mut String, width: usize, now: Timestamp, since: Timestamp) {
    let elapsed = Timestamp::from_nanos((now.as_nanos() - since.as_nanos()).max(0));
    for (name, t) in [("snapshot_time", now), ("start_time", since), ("elapsed_time", elapsed)] {
        let _ = writeln!(out, "{name:<width$} {}.{:09} secs.nsecs", t.sec, t.nsec);
    }
}

/// Counts by size.
#[derive(Clone, Default)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
}

impl Histogram {
    /// Counts `n` itself.
    pub fn add(&mut self, n: u64) {
        self.buckets[(n as usize).min(BUCKETS - 1)] += 1;
    }

    /// Counts by powers of two, rounded up: 1, 2, 3 to 4, 5 to 8 ...
    pub fn add_log2(&mut self, n: u64) {
        let bits = if n <= 1 { 0 } else { 64 - (n - 1).leading_zeros() };
        self.add(u64::from(bits));
    }

    pub fn total(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

fn percent(part: u64, of: u64) -> u64 {
    (u128::from(part) * 100 / u128::from(of.max(1))) as u64
}

/// Count, percent, cumulated percent.
type Share = (u64, u64, u64);

/// Rows of histograms beside each other, from the first to the last that counts: the bucket, and each side's share.
fn rows<const N: usize>(sides: [&Histogram; N]) -> Vec<(usize, [Share; N])> {
    let totals = sides.map(Histogram::total);
    let mut sums = [0; N];
    let mut out = Vec::new();
    for b in 0..BUCKETS {
        let mut row = [(0, 0, 0); N];
        for i in 0..N {
            let n = sides[i].buckets[b];
            sums[i] += n;
            row[i] = (n, percent(n, totals[i]), percent(sums[i], totals[i]));
        }
        out.push((b, row));
        if sums == totals {
            break;
        }
    }
    out
}

/// How the rows of a table are called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// The number that was counted.
    Plain,
    /// Its power of two.
    Log2,
    /// The same, where zero was counted as one: 0, 1, 2, 4 ...
    Log2FromZero,
}

impl Scale {
    fn label(self, bucket: usize) -> u64 {
        match (self, bucket) {
            (Scale::Plain, b) => b as u64,
            (Scale::Log2, b) => 1 << b,
            (Scale::Log2FromZero, 0) => 0,
            (Scale::Log2FromZero, b) => 1 << (b - 1),
        }
    }

    /// `4K`, `1M`.
    fn short(self, bucket: usize) -> String {
        match self.label(bucket) {
            n if self == Scale::Plain || n < 1 << 10 => n.to_string(),
            n if n < 1 << 20 => format!("{}K", n >> 10),
            n => format!("{}M", n >> 20),
        }
    }
}

/// A table of a client's `rpc_stats`.
pub fn rpc_table(out: &mut String, what: &str, scale: Scale, read: &Histogram, write: &Histogram) {
    let _ = writeln!(out, "\n\t\t\tread\t\t\twrite");
    let _ = writeln!(out, "{what:<22}rpcs   % cum % |       rpcs   % cum %");
    for (b, [r, w]) in rows([read, write]) {
        let label = scale.label(b);
        let _ = writeln!(
            out,
            "{label}:\t\t{:>10} {:>3} {:>3}   | {:>10} {:>3} {:>3}",
            r.0, r.1, r.2, w.0, w.1, w.2
        );
    }
}

/// The one of requests that change names.
pub fn modify_table(out: &mut String, what: &str, h: &Histogram) {
    let _ = writeln!(out, "\n\t\t\tmodify");
    let _ = writeln!(out, "{what:<22}rpcs   % cum %");
    for (b, [m]) in rows([h]) {
        let _ = writeln!(out, "{b}:\t\t{:>10} {:>3} {:>3}", m.0, m.1, m.2);
    }
}

/// A table of a server's `brw_stats`.
pub fn brw_table(
    out: &mut String,
    what: &str,
    unit: &str,
    scale: Scale,
    read: &Histogram,
    write: &Histogram,
) {
    let _ = writeln!(out, "\n{:26} read      |     write", "");
    let _ = writeln!(out, "{what:<22} {unit:<5} % cum % |  {unit:<11} % cum %");
    for (b, [r, w]) in rows([read, write]) {
        if r.2 > 0 || w.2 > 0 {
            let label = scale.short(b);
            let _ = writeln!(
                out,
                "{label}:\t\t{:>10} {:>3} {:>3}   | {:>4} {:>3} {:>3}",
                r.0, r.1, r.2, w.0, w.1, w.2
            );
        }
    }
}

/// The table of `extents_stats`: sizes of read(2) and write(2), from 4 KiB on, counted with
/// [`Histogram::add_log2`] of the size in 4 KiB, rounded up.
pub fn extents_table(out: &mut String, read: &Histogram, write: &Histogram) {
    let _ = writeln!(out, "\n{:28} read       |                write", "");
    let _ = writeln!(
        out,
        "{:>13} {:>14} {:>4} {:>4}  | {:>14} {:>4} {:>4}",
        "extents", "calls", "%", "cum%", "calls", "%", "cum%"
    );

    for (b, [r, w]) in rows([read, write]) {
        let (from, to) = (if b == 0 { "0K".to_string() } else { kib(2u64 << b) }, kib(4u64 << b));
        let _ = writeln!(
            out,
            "{from:>5} - {to:>5} : {:>14} {:>4} {:>4}  | {:>14} {:>4} {:>4}",
            r.0, r.1, r.2, w.0, w.1, w.2
        );
    }
}

/// `4K`, `1M`, `2G`.
fn kib(n: u64) -> String {
    match n {
        n if n < 1 << 10 => format!("{n}K"),
        n if n < 1 << 20 => format!("{}M", n >> 10),
        n => format!("{}G", n >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { sec: 101, nsec: 5 };

    #[test]
    fn counts_are_printed_as_lustre_prints_them() {
        let c = Counters::new(
            &[("open", "usecs"), ("read_bytes", "bytes"), ("connect", "reqs")],
            Timestamp { sec: 100, nsec: 0 },
        );
        for n in [10, 900] {
            c.add_named("open", n);
        }
        c.add(2, 1);
        assert_eq!(
            c.text(NOW),
            "snapshot_time             101.000000005 secs.nsecs\n\
             start_time                100.000000000 secs.nsecs\n\
             elapsed_time              1.000000005 secs.nsecs\n\
             open                      2 samples [usecs] 10 900 910 810100\n\
             connect                   1 samples [reqs]\n"
        );
        assert_eq!((c.total("open"), c.total("close")), ((2, 910), (0, 0)));
        c.clear(NOW);
        assert!(!c.text(NOW).contains("open"));
    }

    #[test]
    fn histograms_have_percentages() {
        let (mut read, mut write) = (Histogram::default(), Histogram::default());
        for n in [1, 2, 3, 4, 256, u64::MAX] {
            read.add_log2(n);
        }
        write.add_log2(256);
        let mut out = String::new();
        rpc_table(&mut out, "pages per rpc", Scale::Log2, &read, &write);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[2], "pages per rpc         rpcs   % cum % |       rpcs   % cum %");
        assert_eq!(lines[3], "1:\t\t         1  16  16   |          0   0   0");
        assert_eq!(lines[5], "4:\t\t         2  33  66   |          0   0   0");
        assert_eq!(lines[11], "256:\t\t         1  16  83   |          1 100 100");
        assert_eq!(lines.len(), 3 + BUCKETS, "the last bucket has all that is larger");
        let mut out = String::new();
        brw_table(&mut out, "disk I/O size", "ios", Scale::Log2, &Histogram::default(), &write);
        assert!(out.ends_with("256:\t\t         0   0   0   |    1 100 100\n"), "{out}");
    }

    #[test]
    fn extents_are_ranges_of_sizes() {
        let (mut read, mut write) = (Histogram::default(), Histogram::default());
        for bytes in [1u64, 4096, 4097, 1 << 20] {
            read.add_log2(bytes.div_ceil(4096));
        }
        write.add_log2(1);
        let mut out = String::new();
        extents_table(&mut out, &read, &write);
        let rows: Vec<Vec<&str>> = out.lines().skip(3).map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["0K", "-", "4K", ":", "2", "50", "50", "|", "1", "100", "100"]);
        assert_eq!(rows[1][..5], ["4K", "-", "8K", ":", "1"]);
        assert_eq!(rows[8][..7], ["512K", "-", "1M", ":", "1", "25", "100"]);
        assert_eq!(rows.len(), 9);
    }
}
