//! What a session's requests come to: `osc.*.stats`, `osc.*.rpc_stats`, the estimates in `import`.

use crate::session::PAGE_BYTES;
use model::counters::{Counters, Histogram, Scale, modify_table, rpc_table, times};
use model::mutex::{Mutex, MutexGuard};
use model::{TargetKind, Timestamp};
use std::any::Any;
use std::fmt::Write as _;
use wire::verb::Named;
use wire::{Message, Op, msg};
use world::Instant;

/// Places in the table of counters before those of operations.
const WAIT: usize = 0;
const ACTIVE: usize = 1;
const READ_BYTES: usize = 2;
const WRITE_BYTES: usize = 3;
const FIRST_OP: usize = 4;

/// Reads, or writes.
#[derive(Default, Clone)]
struct Side {
    in_flight: u64,
    pages: Histogram,
    rpcs: Histogram,
    offsets: Histogram,
    bytes: u64,
    usecs: u64,
    count: u64,
}

impl Side {
    fn cleared(&self) -> Side {
        Side { in_flight: self.in_flight, ..Side::default() }
    }

    fn averages(&self, name: &str) -> String {
        if self.count == 0 {
            return String::new();
        }
        let per = |n: u64| n / self.count;
        let mb_per_s = if self.usecs == 0 { 0.0 } else { self.bytes as f64 / self.usecs as f64 };
        format!(
            "    {name}_data_averages:\n       bytes_per_rpc: {}\n       usec_per_rpc: {}\n       MB_per_sec: {mb_per_s:.2}\n",
            per(self.bytes),
            per(self.usecs)
        )
    }
}

#[derive(Default)]
struct Rpcs {
    since: Timestamp,
    read: Side,
    write: Side,
    modify_in_flight: u64,
    modify: Histogram,
    in_flight: u64,
}

/// Of one session.
pub(crate) struct Meter {
    stats: Counters,
    rpcs: Mutex<Rpcs>,
}

/// Lustre's word for an operation, as far as it has one.
fn op_name(kind: TargetKind, op: Op) -> String {
    let service = match kind {
        TargetKind::Ost => "ost",
        TargetKind::Mdt => "mds",
        TargetKind::Mgt => "mgs",
    };
    match op.verb().named {
        Named::Whole(name) => name.into(),
        Named::Word(word) => format!("{service}_{word}"),
        Named::Itself => format!("{service}_{}", format!("{op:?}").to_lowercase()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Read,
    Write,
    Other,
}

/// A request that is under way; counted out when dropped.
pub(crate) struct Sent<'a> {
    meter: &'a Meter,
    op: usize,
    what: What,
    modifies: bool,
    bytes: u64,
    start: Instant,
}

impl Meter {
    pub(crate) fn new(kind: TargetKind, now: Timestamp) -> Meter {
        let mut table = vec![
            ("req_waittime".into(), "usecs"),
            ("req_active".into(), "requests"),
            ("read_bytes".into(), "bytes"),
            ("write_bytes".into(), "bytes"),
        ];
        table.extend(Op::ALL.iter().map(|op| (op_name(kind, *op).into(), "usecs")));
        Meter { stats: Counters::named(table, now), rpcs: Mutex::new(Rpcs { since: now, ..Rpcs::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Rpcs> {
        self.rpcs.lock()
    }

    /// A request goes out. `counted`: it is one of those that `max_mod_rpcs_in_flight` bounds.
    pub(crate) fn begin<M: Message>(&self, m: &M, bulk: u64, counted: bool, now: Instant) -> Sent<'_> {
        // Lustre's word for both is ost_write.
        let named = if M::OP == Op::Writelist { Op::Write } else { M::OP };
        let op = FIRST_OP + Op::ALL.iter().position(|o| *o == named).expect("it is one of all");
        let any = m as &dyn Any;
        let (what, offset, len) = if let Some(r) = any.downcast_ref::<msg::read::Read>() {
            (What::Read, r.offset, u64::from(r.len))
        } else if let Some(w) = any.downcast_ref::<msg::write::Write>() {
            (What::Write, w.offset, bulk)
        } else if let Some(w) = any.downcast_ref::<msg::writelist::Writelist>() {
            (What::Write, w.write.offset, bulk)
        } else {
            (What::Other, 0, 0)
        };
        let mut g = self.lock();
        g.in_flight += 1;
        let active = g.in_flight;
        if counted {
            g.modify_in_flight += 1;
            let n = g.modify_in_flight;
            g.modify.add(n);
        }
        let side = match what {
            What::Read => Some(&mut g.read),
            What::Write => Some(&mut g.write),
            What::Other => None,
        };
        if let Some(s) = side {
            s.in_flight += 1;
            s.rpcs.add(s.in_flight);
            s.pages.add_log2(len.div_ceil(PAGE_BYTES as u64));
            s.offsets.add_log2(offset / PAGE_BYTES as u64 + 1);
        }
        drop(g);
        self.stats.add(ACTIVE, active);
        Sent { meter: self, op, what, modifies: counted, bytes: bulk, start: now }
    }

    pub(crate) fn stats_text(&self, now: Timestamp) -> String {
        self.stats.text(now)
    }

    pub(crate) fn clear_stats(&self, now: Timestamp) {
        self.stats.clear(now);
    }

    pub(crate) fn clear_rpcs(&self, now: Timestamp) {
        let mut g = self.lock();
        let (read, write) = (g.read.cleared(), g.write.cleared());
        *g = Rpcs {
            since: now,
            read,
            write,
            modify_in_flight: g.modify_in_flight,
            in_flight: g.in_flight,
            ..Rpcs::default()
        };
    }

    /// `osc.*.rpc_stats`.
    pub(crate) fn data_text(&self, now: Timestamp) -> String {
        let g = self.lock();
        let mut s = String::new();
        times(&mut s, 25, now, g.since);
        let _ = writeln!(s, "read RPCs in flight:  {}", g.read.in_flight);
        let _ = writeln!(s, "write RPCs in flight: {}", g.write.in_flight);
        let (r, w) = (&g.read, &g.write);
        rpc_table(&mut s, "pages per rpc", Scale::Log2, &r.pages, &w.pages);
        rpc_table(&mut s, "rpcs in flight", Scale::Plain, &r.rpcs, &w.rpcs);
        rpc_table(&mut s, "offset", Scale::Log2FromZero, &r.offsets, &w.offsets);
        s
    }

    /// `mdc.*.rpc_stats`.
    pub(crate) fn modify_text(&self, now: Timestamp) -> String {
        let g = self.lock();
        let mut s = String::new();
        times(&mut s, 25, now, g.since);
        let _ = writeln!(s, "modify_RPCs_in_flight:  {}", g.modify_in_flight);
        modify_table(&mut s, "rpcs in flight", &g.modify);
        s
    }

    /// Mean time from sending to the answer, in microseconds.
    pub(crate) fn mean_wait_us(&self) -> u64 {
        let (n, sum) = self.stats.total("req_waittime");
        sum / n.max(1)
    }

    /// The end of `import`.
    pub(crate) fn averages(&self) -> String {
        let g = self.lock();
        g.read.averages("read") + &g.write.averages("write")
    }
}

impl Sent<'_> {
    /// The answer came, with so much data.
    pub(crate) fn answered(self, bulk: u64, now: Instant) {
        let us = u64::try_from(now.since(self.start).as_micros()).unwrap_or(u64::MAX);
        self.meter.stats.add(WAIT, us);
        self.meter.stats.add(self.op, us);
        let mut g = self.meter.lock();
        let (index, bytes) = match self.what {
            What::Read => (READ_BYTES, bulk),
            What::Write => (WRITE_BYTES, self.bytes),
            What::Other => return,
        };
        self.meter.stats.add(index, bytes);
        let side = if self.what == What::Read { &mut g.read } else { &mut g.write };
        side.bytes = side.bytes.saturating_add(bytes);
        side.usecs = side.usecs.saturating_add(us);
        side.count += 1;
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let mut g = self.meter.lock();
        g.in_flight -= 1;
        if self.modifies {
            g.modify_in_flight -= 1;
        }
        match self.what {
            What::Read => g.read.in_flight -= 1,
            What::Write => g.write.in_flight -= 1,
            What::Other => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_in_and_out() {
        let m = Meter::new(TargetKind::Ost, Timestamp::ZERO);
        let read = msg::read::Read {
            object: model::ObjectId::from_bytes(&[0; 24]),
            offset: 1 << 20,
            len: 1 << 20,
            checksum: wire::checksum::ChecksumType::None,
            lock: 0,
        };
        let t0 = Instant::default();
        let a = m.begin(&read, 0, false, t0);
        let b = m.begin(&read, 0, false, t0);
        a.answered(1 << 20, Instant(t0.0 + 50_000));
        let text = m.data_text(Timestamp::ZERO);
        assert!(text.contains("read RPCs in flight:  1\n"), "{text}");
        assert!(text.contains("256:\t\t         2 100 100   |          0   0   0\n"), "{text}");
        assert!(text.contains("\n2:\t\t         1  50 100   |"), "two at a time: {text}");
        // given up: counted out, and no answer
        drop(b);
        assert!(m.data_text(Timestamp::ZERO).contains("read RPCs in flight:  0\n"));
        let stats = m.stats_text(Timestamp::ZERO);
        assert!(
            stats.contains("read_bytes                1 samples [bytes] 1048576 1048576 1048576"),
            "{stats}"
        );
        assert!(stats.contains("ost_read                  1 samples [usecs] 50 50 50 2500"), "{stats}");
        assert!(stats.contains("req_active                2 samples [requests] 1 2 3 5"), "{stats}");
        assert_eq!(m.mean_wait_us(), 50);
        assert!(m.averages().contains("bytes_per_rpc: 1048576"), "{}", m.averages());
        m.clear_rpcs(Timestamp::ZERO);
        m.clear_stats(Timestamp::ZERO);
        assert!(!m.stats_text(Timestamp::ZERO).contains("ost_read"));
        assert_eq!(m.averages(), "");
    }
}
