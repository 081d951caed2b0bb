//! What a metadata target counts: `mdt.*.md_stats`, `mdt.*.exports.NID.stats`.

use model::Timestamp;
use model::counters::Counters;
use model::exports::Exports;
use rpc::Principal;
use std::borrow::Cow;
use wire::Op;

type Table = Vec<(Cow<'static, str>, &'static str)>;

/// A counter of time for each kind of message, under its name.
fn table() -> Table {
    Op::ALL.iter().map(|op| (format!("{op:?}").to_lowercase().into(), "usecs")).collect()
}

pub struct Stats {
    pub all: Counters,
    /// The same by the clients' addresses.
    pub exports: Exports,
}

impl Stats {
    pub fn new(now: Timestamp) -> Stats {
        Stats { all: Counters::named(table(), now), exports: Exports::named(table()) }
    }

    /// A request of `from` was served in `us` microseconds.
    pub fn count(&self, op: Op, from: &Principal, us: u64, now: Timestamp) {
        let place = Op::ALL.iter().position(|o| *o == op).expect("it is one of all");
        self.all.add(place, us);
        if let Some(e) = self.exports.of(from.address, now) {
            e.stats.add(place, us);
        }
    }
}
