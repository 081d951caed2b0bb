//! Bulk reads and writes by size, number and time: `obdfilter.*.brw_stats`.

use model::Timestamp;
use model::counters::{Histogram, Scale, brw_table, times};
use model::mutex::{Mutex, MutexGuard};
use wire::Op;
use wire::verb::BulkSide;

const PAGE_BYTES: u64 = 4096;

#[derive(Default)]
struct Side {
    now: u64,
    pages: Histogram,
    in_flight: Histogram,
    millis: Histogram,
    size: Histogram,
}

#[derive(Default)]
struct State {
    since: Timestamp,
    read: Side,
    write: Side,
}

impl State {
    fn side(&mut self, write: bool) -> &mut Side {
        if write { &mut self.write } else { &mut self.read }
    }
}

pub struct BrwStats {
    state: Mutex<State>,
}

/// A bulk request that is being served; counted out when dropped.
pub struct Io<'a> {
    stats: &'a BrwStats,
    write: bool,
}

impl BrwStats {
    pub fn new(now: Timestamp) -> BrwStats {
        BrwStats { state: Mutex::new(State { since: now, ..State::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// `None` for what moves no data.
    pub fn enter(&self, op: Op) -> Option<Io<'_>> {
        let write = match op.verb().bulk {
            BulkSide::Reply => false,
            BulkSide::Request => true,
            BulkSide::None => return None,
        };
        let mut g = self.lock();
        let side = g.side(write);
        side.now += 1;
        side.in_flight.add(side.now);
        Some(Io { stats: self, write })
    }

    pub fn clear(&self, now: Timestamp) {
        let mut g = self.lock();
        let side = |s: &Side| Side { now: s.now, ..Side::default() };
        *g = State { since: now, read: side(&g.read), write: side(&g.write) };
    }

    pub fn text(&self, now: Timestamp) -> String {
        let g = self.lock();
        let (r, w) = (&g.read, &g.write);
        let mut s = String::new();
        times(&mut s, 25, now, g.since);
        brw_table(&mut s, "pages per bulk r/w", "rpcs", Scale::Log2, &r.pages, &w.pages);
        brw_table(&mut s, "disk I/Os in flight", "ios", Scale::Plain, &r.in_flight, &w.in_flight);
        brw_table(&mut s, "I/O time (1/1000s)", "ios", Scale::Log2, &r.millis, &w.millis);
        brw_table(&mut s, "disk I/O size", "ios", Scale::Log2, &r.size, &w.size);
        s
    }
}

impl Io<'_> {
    /// It was served: so many bytes in so much time.
    pub fn done(self, bytes: u64, micros: u64) {
        let mut g = self.stats.lock();
        let side = g.side(self.write);
        assert!(side.now > 0, "what is served is under way");
        side.pages.add_log2(bytes.div_ceil(PAGE_BYTES));
        side.millis.add_log2(micros.div_ceil(1000));
        side.size.add_log2(bytes);
    }
}

impl Drop for Io<'_> {
    fn drop(&mut self) {
        self.stats.lock().side(self.write).now -= 1;
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
        let text = b.text(Timestamp::ZERO);
        for row in [
            "pages per bulk r/w     rpcs  % cum % |  rpcs        % cum %",
            "16:\t\t         0   0   0   |    1  50 100",
            "disk I/Os in flight    ios   % cum % |  ios         % cum %",
            "64K:\t\t         0   0   0   |    1  50 100",
        ] {
            assert!(text.contains(row), "no '{row}' in\n{text}");
        }
        b.clear(Timestamp::ZERO);
        assert!(!b.text(Timestamp::ZERO).contains("64K"));
    }
}
