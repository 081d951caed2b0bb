//! Bulk reads and writes by size, number and time: `obdfilter.*.brw_stats`.

use model::Timestamp;
use model::histogram::{Histogram, Histograms, Scale, Shape, Sides, Table};
use model::mutex::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use wire::Op;
use wire::verb::BulkSide;

const PAGE_BYTES: u64 = 4096;

#[derive(Default)]
struct Side {
    now: AtomicU64,
    pages: Histogram,
    in_flight: Histogram,
    millis: Histogram,
    size: Histogram,
}

impl Side {
    fn histograms(&self) -> [&Histogram; 4] {
        [&self.pages, &self.in_flight, &self.millis, &self.size]
    }
}

/// Whoever is served takes no lock to be counted.
pub struct BrwStats {
    since: Mutex<Timestamp>,
    read: Side,
    write: Side,
}

/// A bulk request that is being served; counted out when dropped.
pub struct Io<'a> {
    side: &'a Side,
}

impl BrwStats {
    pub fn new(now: Timestamp) -> BrwStats {
        BrwStats { since: Mutex::new(now), read: Side::default(), write: Side::default() }
    }

    /// `None` for what moves no data.
    pub fn enter(&self, op: Op) -> Option<Io<'_>> {
        let side = match op.verb().bulk {
            BulkSide::Reply => &self.read,
            BulkSide::Request => &self.write,
            BulkSide::None => return None,
        };
        side.in_flight.add(side.now.fetch_add(1, Relaxed) + 1);
        Some(Io { side })
    }

    pub fn clear(&self, now: Timestamp) {
        *self.since.lock() = now;
        let both = [self.read.histograms(), self.write.histograms()];
        both.iter().flatten().for_each(|h| h.clear());
    }

    pub fn histograms(&self, now: Timestamp) -> Histograms {
        let since = *self.since.lock();
        let read = self.read.histograms().map(Histogram::read);
        let write = self.write.histograms().map(Histogram::read);
        let table = |i: usize, what, unit, scale| Table {
            what,
            unit,
            scale,
            sides: Sides::ReadWrite(Box::new([read[i], write[i]])),
        };
        let tables = vec![
            table(0, "pages per bulk r/w", "rpcs", Scale::Log2),
            table(1, "disk I/Os in flight", "ios", Scale::Plain),
            table(2, "I/O time (1/1000s)", "ios", Scale::Log2),
            table(3, "disk I/O size", "ios", Scale::Log2),
        ];
        Histograms { now, since, shape: Shape::Brw, under_way: Vec::new(), tables }
    }
}

impl Io<'_> {
    /// It was served: so many bytes in so much time.
    pub fn done(self, bytes: u64, micros: u64) {
        let side = self.side;
        assert!(side.now.load(Relaxed) > 0, "what is served is under way");
        side.pages.add_log2(bytes.div_ceil(PAGE_BYTES));
        side.millis.add_log2(micros.div_ceil(1000));
        side.size.add_log2(bytes);
    }
}

impl Drop for Io<'_> {
    fn drop(&mut self) {
        self.side.now.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_is_counted_by_size_and_company() {
        let b = BrwStats::new(Timestamp::ZERO);
        let one = b.enter(Op::Write).unwrap();
        b.enter(Op::Write).unwrap().done(65536, 1500);
        one.done(4096, 10);
        drop(b.enter(Op::Read));
        assert!(b.enter(Op::Sync).is_none());
        let text = b.histograms(Timestamp::ZERO).to_string();
        for row in [
            "pages per bulk r/w     rpcs  % cum % |  rpcs        % cum %",
            "16:\t\t         0   0   0   |    1  50 100",
            "disk I/Os in flight    ios   % cum % |  ios         % cum %",
            "64K:\t\t         0   0   0   |    1  50 100",
        ] {
            assert!(text.contains(row), "no '{row}' in\n{text}");
        }
        b.clear(Timestamp::ZERO);
        assert!(!b.histograms(Timestamp::ZERO).to_string().contains("64K"));
    }
}
