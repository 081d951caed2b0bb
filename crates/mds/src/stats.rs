//! What a metadata target counts: `mdt.*.md_stats`, `mdt.*.exports.NID.stats`, `mdt.*.job_stats`.

use crate::jobs::JobCounter;
use model::Timestamp;
use model::counters::{CounterDecl, Counters};
use model::exports::Exports;
use model::jobs::Jobs;
use rpc::Principal;
use std::sync::Arc;
use wire::Op;

/// A counter of time for each kind of message, under its name.
fn table() -> Arc<[CounterDecl]> {
    let decl = |op: &Op| CounterDecl { name: format!("{op:?}").to_lowercase().into(), unit: "usecs" };
    Op::ALL.iter().map(decl).collect()
}

pub struct Stats {
    pub all: Counters<Op>,
    /// The same by the clients' addresses.
    pub exports: Exports<Op>,
    /// And by the jobs for which it was done.
    pub jobs: Jobs<JobCounter>,
}

impl Stats {
    pub fn new(now: Timestamp) -> Stats {
        let table = table();
        Stats { all: Counters::new(table.clone(), now), exports: Exports::new(table), jobs: Jobs::of_set() }
    }

    /// Requests of `from` were served in `us` microseconds each.
    pub fn count(
        &self,
        ops: impl IntoIterator<Item = Op>,
        from: &Principal,
        us: u64,
        now: impl FnOnce() -> Timestamp,
    ) {
        let export = self.exports.of(from.address, now);
        for op in ops {
            self.all.add(op, us);
            if let Some(e) = &export {
                e.stats.add(op, us);
            }
        }
    }
}
