//! What a session's requests come to: `osc.*.stats`, `osc.*.rpc_stats`, the estimates in `import`.

use crate::session::PAGE_BYTES;
use model::counters::{CounterDecl, Counters, Place, Samples};
use model::histogram::{Buckets, Histogram, Histograms, Scale, Shape, Sides, Table};
use model::mutex::Mutex;
use model::{TargetKind, Timestamp};
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use wire::verb::Named;
use wire::{Message, Op, msg};
use world::Instant;

/// What is counted of a session's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Metered {
    Wait,
    Active,
    ReadBytes,
    WriteBytes,
    Of(Op),
}

/// Those that are not one of an operation each.
const WHOLE: [CounterDecl; 4] = [
    CounterDecl::new("req_waittime", "usecs"),
    CounterDecl::new("req_active", "requests"),
    CounterDecl::new("read_bytes", "bytes"),
    CounterDecl::new("write_bytes", "bytes"),
];

impl Place for Metered {
    fn place(self) -> usize {
        match self {
            Metered::Wait => 0,
            Metered::Active => 1,
            Metered::ReadBytes => 2,
            Metered::WriteBytes => 3,
            Metered::Of(op) => WHOLE.len() + op.index(),
        }
    }
}

/// Reads, or writes.
#[derive(Default)]
struct Side {
    in_flight: AtomicU64,
    pages: Histogram,
    rpcs: Histogram,
    offsets: Histogram,
    bytes: AtomicU64,
    usecs: AtomicU64,
    count: AtomicU64,
}

impl Side {
    /// All but what is in flight.
    fn clear(&self) {
        [&self.pages, &self.rpcs, &self.offsets].iter().for_each(|h| h.clear());
        [&self.bytes, &self.usecs, &self.count].iter().for_each(|n| n.store(0, Relaxed));
    }

    fn averages(&self, name: &str) -> String {
        let count = self.count.load(Relaxed);
        if count == 0 {
            return String::new();
        }
        let (bytes, usecs) = (self.bytes.load(Relaxed), self.usecs.load(Relaxed));
        let mb_per_s = if usecs == 0 { 0.0 } else { bytes as f64 / usecs as f64 };
        format!(
            "    {name}_data_averages:\n       bytes_per_rpc: {}\n       usec_per_rpc: {}\n       MB_per_sec: {mb_per_s:.2}\n",
            bytes / count,
            usecs / count
        )
    }
}

/// Of one session. Requests are counted without a lock.
pub(crate) struct Meter {
    stats: Counters<Metered>,
    /// When the histograms were cleared.
    since: Mutex<Timestamp>,
    read: Side,
    write: Side,
    modify_in_flight: AtomicU64,
    modify: Histogram,
    in_flight: AtomicU64,
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
    op: Op,
    what: What,
    modifies: bool,
    bytes: u64,
    start: Instant,
}

/// What a request moves, from which offset, and how much.
fn moved<M: Message>(m: &M, bulk: u64) -> (What, u64, u64) {
    let any = m as &dyn Any;
    if let Some(r) = any.downcast_ref::<msg::read::Read>() {
        (What::Read, r.offset, u64::from(r.len))
    } else if let Some(w) = any.downcast_ref::<msg::write::Write>() {
        (What::Write, w.offset, bulk)
    } else if let Some(w) = any.downcast_ref::<msg::writelist::Writelist>() {
        (What::Write, w.write.offset, bulk)
    } else {
        (What::Other, 0, 0)
    }
}

impl Meter {
    pub(crate) fn new(kind: TargetKind, now: Timestamp) -> Meter {
        let of = |op: &Op| CounterDecl { name: op_name(kind, *op).into(), unit: "usecs" };
        let table: Vec<CounterDecl> = WHOLE.into_iter().chain(Op::ALL.iter().map(of)).collect();
        Meter {
            stats: Counters::new(table, now),
            since: Mutex::new(now),
            read: Side::default(),
            write: Side::default(),
            modify_in_flight: AtomicU64::new(0),
            modify: Histogram::default(),
            in_flight: AtomicU64::new(0),
        }
    }

    fn side(&self, what: What) -> Option<&Side> {
        match what {
            What::Read => Some(&self.read),
            What::Write => Some(&self.write),
            What::Other => None,
        }
    }

    /// A request goes out. `counted`: it is one of those that `max_mod_rpcs_in_flight` bounds.
    pub(crate) fn begin<M: Message>(&self, m: &M, bulk: u64, counted: bool, now: Instant) -> Sent<'_> {
        // Lustre's word for both is ost_write.
        let op = if M::OP == Op::Writelist { Op::Write } else { M::OP };
        let (what, offset, len) = moved(m, bulk);
        self.stats.add(Metered::Active, self.in_flight.fetch_add(1, Relaxed) + 1);
        if counted {
            self.modify.add(self.modify_in_flight.fetch_add(1, Relaxed) + 1);
        }
        if let Some(s) = self.side(what) {
            s.rpcs.add(s.in_flight.fetch_add(1, Relaxed) + 1);
            s.pages.add_log2(len.div_ceil(PAGE_BYTES as u64));
            s.offsets.add_log2(offset / PAGE_BYTES as u64 + 1);
        }
        Sent { meter: self, op, what, modifies: counted, bytes: bulk, start: now }
    }

    pub(crate) fn stats(&self, now: Timestamp) -> Samples {
        self.stats.read(now)
    }

    pub(crate) fn clear_stats(&self, now: Timestamp) {
        self.stats.clear(now);
    }

    pub(crate) fn clear_rpcs(&self, now: Timestamp) {
        *self.since.lock() = now;
        self.read.clear();
        self.write.clear();
        self.modify.clear();
    }

    fn histograms(
        &self,
        now: Timestamp,
        under_way: Vec<(&'static str, u64)>,
        tables: Vec<Table>,
    ) -> Histograms {
        let since = *self.since.lock();
        Histograms { now, since, shape: Shape::Rpc, under_way, tables }
    }

    /// `osc.*.rpc_stats`.
    pub(crate) fn data(&self, now: Timestamp) -> Histograms {
        let (r, w) = (&self.read, &self.write);
        let table = |what, scale, read: Buckets, write| Table {
            what,
            unit: "rpcs",
            scale,
            sides: Sides::ReadWrite(Box::new([read, write])),
        };
        let under_way = vec![
            ("read RPCs in flight:  ", r.in_flight.load(Relaxed)),
            ("write RPCs in flight: ", w.in_flight.load(Relaxed)),
        ];
        let tables = vec![
            table("pages per rpc", Scale::Log2, r.pages.read(), w.pages.read()),
            table("rpcs in flight", Scale::Plain, r.rpcs.read(), w.rpcs.read()),
            table("offset", Scale::Log2FromZero, r.offsets.read(), w.offsets.read()),
        ];
        self.histograms(now, under_way, tables)
    }

    /// `mdc.*.rpc_stats`.
    pub(crate) fn modifying(&self, now: Timestamp) -> Histograms {
        let sides = Sides::Modify(Box::new(self.modify.read()));
        let table = Table { what: "rpcs in flight", unit: "rpcs", scale: Scale::Plain, sides };
        let under_way = vec![("modify_RPCs_in_flight:  ", self.modify_in_flight.load(Relaxed))];
        self.histograms(now, under_way, vec![table])
    }

    /// Mean time from sending to the answer, in microseconds.
    pub(crate) fn mean_wait_us(&self) -> u64 {
        let (n, sum) = self.stats.total(Metered::Wait);
        sum / n.max(1)
    }

    /// The end of `import`.
    pub(crate) fn averages(&self) -> String {
        self.read.averages("read") + &self.write.averages("write")
    }
}

impl Sent<'_> {
    /// The answer came, with so much data.
    pub(crate) fn answered(self, bulk: u64, now: Instant) {
        let us = u64::try_from(now.since(self.start).as_micros()).unwrap_or(u64::MAX);
        let m = self.meter;
        m.stats.add(Metered::Wait, us);
        m.stats.add(Metered::Of(self.op), us);
        let (counter, bytes) = match self.what {
            What::Read => (Metered::ReadBytes, bulk),
            What::Write => (Metered::WriteBytes, self.bytes),
            What::Other => return,
        };
        m.stats.add(counter, bytes);
        if let Some(side) = m.side(self.what) {
            side.bytes.fetch_add(bytes, Relaxed);
            side.usecs.fetch_add(us, Relaxed);
            side.count.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let m = self.meter;
        m.in_flight.fetch_sub(1, Relaxed);
        if self.modifies {
            m.modify_in_flight.fetch_sub(1, Relaxed);
        }
        if let Some(side) = m.side(self.what) {
            side.in_flight.fetch_sub(1, Relaxed);
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
        let text = m.data(Timestamp::ZERO).to_string();
        assert!(text.contains("read RPCs in flight:  1\n"), "{text}");
        assert!(text.contains("256:\t\t         2 100 100   |          0   0   0\n"), "{text}");
        assert!(text.contains("\n2:\t\t         1  50 100   |"), "two at a time: {text}");
        // given up: counted out, and no answer
        drop(b);
        assert!(m.data(Timestamp::ZERO).to_string().contains("read RPCs in flight:  0\n"));
        let stats = m.stats(Timestamp::ZERO).to_string();
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
        assert!(!m.stats(Timestamp::ZERO).to_string().contains("ost_read"));
        assert_eq!(m.averages(), "");
    }
}
