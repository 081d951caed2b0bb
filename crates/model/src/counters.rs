//! Counters of operations as Lustre's `stats` files print them: how often, least, most, sum and sum of
//! squares.
//!
//! They are atomics in a row, found by an enum: a request that is counted takes no lock and looks for no
//! name.

use crate::Timestamp;
use crate::mutex::{Mutex, MutexGuard};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The place of a counter in its table.
pub trait Place: Copy {
    fn place(self) -> usize;
}

/// The one declaration of a counter: its name, and what its samples are: `usecs`, `bytes`, `reqs`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterDecl {
    pub name: Cow<'static, str>,
    pub unit: &'static str,
}

impl CounterDecl {
    pub const fn new(name: &'static str, unit: &'static str) -> CounterDecl {
        CounterDecl { name: Cow::Borrowed(name), unit }
    }

    /// Whether this is its name, which a constant has to ask.
    pub const fn is(&self, name: &str) -> bool {
        let Cow::Borrowed(mine) = &self.name else { return false };
        let (mine, name) = (mine.as_bytes(), name.as_bytes());
        let mut i = 0;
        while i < mine.len() && i < name.len() && mine[i] == name[i] {
            i += 1;
        }
        i == mine.len() && i == name.len()
    }

    /// Whether its samples have a size, of which least, most and sums are shown; the others only happen.
    pub fn has_size(&self) -> bool {
        !matches!(self.unit, "reqs" | "pages")
    }
}

/// An enum of counters, made by [`counters!`](crate::counters!).
pub trait CounterSet: Place + 'static {
    const ALL: &'static [Self];
    const TABLE: &'static [CounterDecl];
}

/// An enum of counters with the names and units they have in the text: `counters! { pub enum What { Read =
/// "read" in "usecs", } }`.
#[macro_export]
macro_rules! counters {
    ($(#[$m:meta])* $vis:vis enum $E:ident { $($(#[$vm:meta])* $V:ident = $name:literal in $unit:literal,)* }) => {
        $(#[$m])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $vis enum $E { $($(#[$vm])* $V,)* }

        impl $crate::counters::Place for $E {
            fn place(self) -> usize {
                self as usize
            }
        }

        impl $crate::counters::CounterSet for $E {
            const ALL: &'static [$E] = &[$($E::$V,)*];
            const TABLE: &'static [$crate::counters::CounterDecl] =
                &[$($crate::counters::CounterDecl::new($name, $unit),)*];
        }
    };
}

/// One counter: alone on its cache line, so that processors that count different things do not meet.
#[repr(align(64))]
struct Cell {
    samples: AtomicU64,
    /// `u64::MAX` until there is a sample.
    min: AtomicU64,
    max: AtomicU64,
    sum: AtomicU64,
    /// The sum of squares, lower and upper half.
    squares: AtomicU64,
    squares_high: AtomicU64,
}

/// `total` + `n`, or as much as fits.
fn add_saturating(total: &AtomicU64, n: u64) {
    if total.fetch_add(n, Relaxed).checked_add(n).is_none() {
        total.store(u64::MAX, Relaxed);
    }
}

impl Cell {
    const fn new() -> Cell {
        Cell {
            samples: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            squares: AtomicU64::new(0),
            squares_high: AtomicU64::new(0),
        }
    }

    fn add(&self, value: u64) {
        self.min.fetch_min(value, Relaxed);
        self.max.fetch_max(value, Relaxed);
        add_saturating(&self.sum, value);
        let square = u128::from(value) * u128::from(value);
        let (high, low) = ((square >> 64) as u64, square as u64);
        let carry = self.squares.fetch_add(low, Relaxed).checked_add(low).is_none();
        let more = high.saturating_add(u64::from(carry));
        if more > 0 {
            add_saturating(&self.squares_high, more);
        }
        self.samples.fetch_add(1, Relaxed);
    }

    fn read(&self) -> Sample {
        let (high, low) = (self.squares_high.load(Relaxed), self.squares.load(Relaxed));
        let (min, max) = (self.min.load(Relaxed), self.max.load(Relaxed));
        Sample {
            samples: self.samples.load(Relaxed),
            min: if max < min { 0 } else { min },
            max,
            sum: self.sum.load(Relaxed),
            // It came to its end.
            squares: if high == u64::MAX { u128::MAX } else { u128::from(high) << 64 | u128::from(low) },
        }
    }

    fn clear(&self) {
        self.samples.store(0, Relaxed);
        self.min.store(u64::MAX, Relaxed);
        for c in [&self.max, &self.sum, &self.squares, &self.squares_high] {
            c.store(0, Relaxed);
        }
    }
}

/// What a counter held when it was read. Samples that came meanwhile may be in some of the numbers only.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sample {
    pub samples: u64,
    pub min: u64,
    pub max: u64,
    pub sum: u64,
    pub squares: u128,
}

/// Counters, by an enum of them.
pub struct Counters<P> {
    table: Arc<[CounterDecl]>,
    cells: Box<[Cell]>,
    /// When they were cleared last: of no concern to those that count.
    since: Mutex<Timestamp>,
    by: PhantomData<fn(P)>,
}

impl<P: CounterSet> Counters<P> {
    /// Those of an enum.
    pub fn of_set(now: Timestamp) -> Counters<P> {
        Counters::new(P::TABLE, now)
    }
}

impl<P: Place> Counters<P> {
    pub fn new(table: impl Into<Arc<[CounterDecl]>>, now: Timestamp) -> Counters<P> {
        let table = table.into();
        let cells = table.iter().map(|_| Cell::new()).collect();
        Counters { table, cells, since: Mutex::new(now), by: PhantomData }
    }

    fn since(&self) -> MutexGuard<'_, Timestamp> {
        self.since.lock()
    }

    /// One sample.
    pub fn add(&self, what: P, value: u64) {
        self.cells[what.place()].add(value);
    }

    /// So many samples: things that have no size.
    pub fn count(&self, what: P, samples: u64) {
        self.cells[what.place()].samples.fetch_add(samples, Relaxed);
    }

    /// (samples, sum).
    pub fn total(&self, what: P) -> (u64, u64) {
        let c = self.cells[what.place()].read();
        (c.samples, c.sum)
    }

    /// The same of the one of this name, for those that look from outside; zeros if there is none.
    pub fn total_of(&self, name: &str) -> (u64, u64) {
        let place = self.table.iter().position(|d| d.name == name);
        place.map_or((0, 0), |i| {
            let c = self.cells[i].read();
            (c.samples, c.sum)
        })
    }

    pub fn clear(&self, now: Timestamp) {
        *self.since() = now;
        self.cells.iter().for_each(Cell::clear);
    }

    pub fn read(&self, now: Timestamp) -> Samples {
        let values = self.cells.iter().map(Cell::read).collect();
        Samples { now, since: *self.since(), table: self.table.clone(), values }
    }
}

/// What counters held when they were read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Samples {
    pub now: Timestamp,
    pub since: Timestamp,
    table: Arc<[CounterDecl]>,
    values: Vec<Sample>,
}

impl Samples {
    /// All of them, in the order of their table.
    pub fn all(&self) -> impl Iterator<Item = (&CounterDecl, &Sample)> {
        self.table.iter().zip(&self.values)
    }

    /// Those that ever counted.
    pub fn counted(&self) -> impl Iterator<Item = (&CounterDecl, &Sample)> {
        self.all().filter(|(_, s)| s.samples > 0)
    }
}

impl std::fmt::Display for Samples {
    /// Name, count, `samples`, unit, min, max, sum, sum of squares; counters that never counted are left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut head = String::new();
        times(&mut head, 25, self.now, self.since);
        f.write_str(&head)?;
        for (d, c) in self.counted() {
            write!(f, "{:<25} {} samples [{}]", d.name, c.samples, d.unit)?;
            if d.has_size() {
                write!(f, " {} {} {} {}", c.min, c.max, c.sum, c.squares)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// The lines every such file begins with, names `width` wide.
pub fn times(out: &mut String, width: usize, now: Timestamp, since: Timestamp) {
    use std::fmt::Write as _;
    let elapsed = Timestamp::from_nanos((now.as_nanos() - since.as_nanos()).max(0));
    for (name, t) in [("snapshot_time", now), ("start_time", since), ("elapsed_time", elapsed)] {
        let _ = writeln!(out, "{name:<width$} {}.{:09} secs.nsecs", t.sec, t.nsec);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { sec: 101, nsec: 5 };

    crate::counters! {
        enum What { Open = "open" in "usecs", ReadBytes = "read_bytes" in "bytes", Connect = "connect" in "reqs", }
    }

    fn counters() -> Counters<What> {
        Counters::of_set(Timestamp { sec: 100, nsec: 0 })
    }

    #[test]
    fn counts_are_printed_as_lustre_prints_them() {
        let c = counters();
        for n in [10, 900] {
            c.add(What::Open, n);
        }
        c.add(What::Connect, 1);
        assert_eq!(
            c.read(NOW).to_string(),
            "snapshot_time             101.000000005 secs.nsecs\n\
             start_time                100.000000000 secs.nsecs\n\
             elapsed_time              1.000000005 secs.nsecs\n\
             open                      2 samples [usecs] 10 900 910 810100\n\
             connect                   1 samples [reqs]\n"
        );
        assert_eq!(
            (c.total(What::Open), c.total_of("open"), c.total_of("close")),
            ((2, 910), (2, 910), (0, 0))
        );
        assert_eq!(What::ALL.iter().map(|w| w.place()).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(What::TABLE[0].is("open") && !What::TABLE[0].is("opens") && !What::TABLE[0].is("ope"));
        c.clear(NOW);
        assert!(!c.read(NOW).to_string().contains("open"));
        c.add(What::Open, 7);
        assert!(c.read(NOW).to_string().ends_with("open                      1 samples [usecs] 7 7 7 49\n"));
    }

    #[test]
    fn what_does_not_fit_stays_at_the_most() {
        let c = counters();
        for _ in 0..3 {
            c.add(What::ReadBytes, u64::MAX);
        }
        c.count(What::Connect, 5);
        let all = c.read(NOW);
        let (_, most) = all.counted().next().unwrap();
        let is = Sample { samples: 3, min: u64::MAX, max: u64::MAX, sum: u64::MAX, squares: u128::MAX };
        assert_eq!(*most, is);
        // Squares beyond 64 bits carry over.
        c.clear(NOW);
        for _ in 0..3 {
            c.add(What::ReadBytes, 1 << 32 | 1);
            c.add(What::ReadBytes, u64::from(u32::MAX));
        }
        let n = [(1u128 << 32) | 1, u128::from(u32::MAX)].map(|n| n * n * 3);
        assert_eq!(c.read(NOW).counted().next().unwrap().1.squares, n[0] + n[1]);
    }
}
