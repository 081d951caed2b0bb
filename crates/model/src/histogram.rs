//! Histograms as Lustre's `rpc_stats`, `brw_stats` and `extents_stats` files print them.

use crate::Timestamp;
use crate::counters::times;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets of a histogram: the last one holds all that is larger.
const BUCKETS: usize = 32;

/// Counts by size. Whoever counts takes no lock.
#[derive(Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
}

/// What a histogram held when it was read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Buckets([u64; BUCKETS]);

impl Histogram {
    /// Counts `n` itself.
    pub fn add(&self, n: u64) {
        self.buckets[usize::try_from(n).unwrap_or(BUCKETS).min(BUCKETS - 1)].fetch_add(1, Relaxed);
    }

    /// Counts by powers of two, rounded up: 1, 2, 3 to 4, 5 to 8 ...
    pub fn add_log2(&self, n: u64) {
        let bits = if n <= 1 { 0 } else { 64 - (n - 1).leading_zeros() };
        self.add(u64::from(bits));
    }

    pub fn read(&self) -> Buckets {
        Buckets(std::array::from_fn(|i| self.buckets[i].load(Relaxed)))
    }

    pub fn clear(&self) {
        self.buckets.iter().for_each(|b| b.store(0, Relaxed));
    }
}

impl Buckets {
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// So many of them have an upper bound.
    pub const fn bounded(&self) -> usize {
        BUCKETS - 1
    }

    /// How many there are of each size, up to the largest that counts: what the bucket is called, and the
    /// number.
    pub fn counts(&self, scale: Scale) -> impl Iterator<Item = (u64, u64)> {
        let len = self.0.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
        (0..len).map(move |b| (scale.label(b), self.0[b]))
    }
}

fn percent(part: u64, of: u64) -> u64 {
    (u128::from(part) * 100 / u128::from(of.max(1))) as u64
}

/// Count, percent, cumulated percent.
type Share = (u64, u64, u64);

/// Rows of histograms beside each other, from the first to the last that counts: the bucket, and each side's
/// share.
fn rows<const N: usize>(sides: [&Buckets; N]) -> Vec<(usize, [Share; N])> {
    let totals = sides.map(Buckets::total);
    let mut sums = [0; N];
    let mut out = Vec::new();
    for b in 0..BUCKETS {
        let mut row = [(0, 0, 0); N];
        for i in 0..N {
            let n = sides[i].0[b];
            sums[i] += n;
            row[i] = (n, percent(n, totals[i]), percent(sums[i], totals[i]));
        }
        out.push((b, row));
        if sums == totals {
            break;
        }
    }
    assert_eq!(sums, totals, "the rows of a side come to all of it");
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
fn rpc_table(out: &mut String, what: &str, scale: Scale, read: &Buckets, write: &Buckets) {
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
fn modify_table(out: &mut String, what: &str, h: &Buckets) {
    let _ = writeln!(out, "\n\t\t\tmodify");
    let _ = writeln!(out, "{what:<22}rpcs   % cum %");
    for (b, [m]) in rows([h]) {
        let _ = writeln!(out, "{b}:\t\t{:>10} {:>3} {:>3}", m.0, m.1, m.2);
    }
}

/// A table of a server's `brw_stats`.
fn brw_table(out: &mut String, what: &str, unit: &str, scale: Scale, read: &Buckets, write: &Buckets) {
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

/// The table of `extents_stats`.
fn extents_table(out: &mut String, read: &Buckets, write: &Buckets) {
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

/// One table of a statistic: what is counted in which unit, and its sides (read and write, or one).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    pub what: &'static str,
    /// The word at the head of its columns.
    pub unit: &'static str,
    pub scale: Scale,
    pub sides: Sides,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sides {
    ReadWrite(Box<[Buckets; 2]>),
    Modify(Box<Buckets>),
}

/// How the tables of a statistic look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A client's `rpc_stats`.
    Rpc,
    /// A server's `brw_stats`.
    Brw,
    /// `extents_stats`: sizes of read(2) and write(2), from 4 KiB on, counted with [`Histogram::add_log2`] of
    /// the size in 4 KiB, rounded up.
    Extents,
}

/// What a statistic of histograms held when it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histograms {
    pub now: Timestamp,
    pub since: Timestamp,
    pub shape: Shape,
    /// What is under way now, by the words of its line.
    pub under_way: Vec<(&'static str, u64)>,
    pub tables: Vec<Table>,
}

impl std::fmt::Display for Histograms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut s = String::new();
        times(&mut s, 25, self.now, self.since);
        for (words, n) in &self.under_way {
            let _ = writeln!(s, "{words}{n}");
        }
        for t in &self.tables {
            match (&t.sides, self.shape) {
                (Sides::Modify(m), _) => modify_table(&mut s, t.what, m),
                (Sides::ReadWrite(rw), Shape::Rpc) => rpc_table(&mut s, t.what, t.scale, &rw[0], &rw[1]),
                (Sides::ReadWrite(rw), Shape::Brw) => {
                    brw_table(&mut s, t.what, t.unit, t.scale, &rw[0], &rw[1])
                }
                (Sides::ReadWrite(rw), Shape::Extents) => extents_table(&mut s, &rw[0], &rw[1]),
            }
        }
        f.write_str(&s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_have_percentages() {
        let (read, write) = (Histogram::default(), Histogram::default());
        for n in [1, 2, 3, 4, 256, u64::MAX] {
            read.add_log2(n);
        }
        write.add_log2(256);
        let mut out = String::new();
        rpc_table(&mut out, "pages per rpc", Scale::Log2, &read.read(), &write.read());
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[2], "pages per rpc         rpcs   % cum % |       rpcs   % cum %");
        assert_eq!(lines[3], "1:\t\t         1  16  16   |          0   0   0");
        assert_eq!(lines[5], "4:\t\t         2  33  66   |          0   0   0");
        assert_eq!(lines[11], "256:\t\t         1  16  83   |          1 100 100");
        assert_eq!(lines.len(), 3 + BUCKETS, "the last bucket has all that is larger");
        let mut out = String::new();
        brw_table(&mut out, "disk I/O size", "ios", Scale::Log2, &Buckets::default(), &write.read());
        assert!(out.ends_with("256:\t\t         0   0   0   |    1 100 100\n"), "{out}");
    }

    #[test]
    fn extents_are_ranges_of_sizes() {
        let (read, write) = (Histogram::default(), Histogram::default());
        for bytes in [1u64, 4096, 4097, 1 << 20] {
            read.add_log2(bytes.div_ceil(4096));
        }
        write.add_log2(1);
        let mut out = String::new();
        extents_table(&mut out, &read.read(), &write.read());
        let rows: Vec<Vec<&str>> = out.lines().skip(3).map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["0K", "-", "4K", ":", "2", "50", "50", "|", "1", "100", "100"]);
        assert_eq!(rows[1][..5], ["4K", "-", "8K", ":", "1"]);
        assert_eq!(rows[8][..7], ["512K", "-", "1M", ":", "1", "25", "100"]);
        assert_eq!(rows.len(), 9);
    }

    #[test]
    fn a_statistic_is_its_times_what_is_under_way_and_tables() {
        let read = Histogram::default();
        read.add(2);
        let t = Table {
            what: "rpcs in flight",
            unit: "rpcs",
            scale: Scale::Plain,
            sides: Sides::Modify(Box::new(read.read())),
        };
        let h = Histograms {
            now: Timestamp { sec: 2, nsec: 0 },
            since: Timestamp { sec: 1, nsec: 0 },
            shape: Shape::Rpc,
            under_way: vec![("modify_RPCs_in_flight:  ", 1)],
            tables: vec![t],
        };
        let text = h.to_string();
        assert!(text.starts_with("snapshot_time             2.000000000 secs.nsecs\n"), "{text}");
        assert!(text.contains("\nmodify_RPCs_in_flight:  1\n\n\t\t\tmodify\n"), "{text}");
        assert!(text.ends_with("2:\t\t         1 100 100\n"), "{text}");
        assert_eq!(read.read().counts(Scale::Plain).collect::<Vec<_>>(), [(0, 0), (1, 0), (2, 1)]);
        read.clear();
        assert_eq!(read.read().total(), 0);
    }
}
