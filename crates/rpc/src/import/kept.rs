//! Requests that were answered but may be lost with the server's memory: kept until the server says that they
//! are durable, sent again after its restart ([`super::replay`]).

use super::call::{InFlight, Request};
use bytes::Bytes;
use model::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use wire::Op;

/// Requests kept for one target; above it calls wait for a commit.
const KEPT_MAX: usize = 4096;
/// Bytes kept for one target, bulk included; above it calls wait for a commit.
const KEPT_MAX_BYTES: usize = 64 << 20;
/// What a request takes besides its bytes, about.
const OVERHEAD_BYTES: usize = 256;

/// One of them.
pub(crate) struct Kept {
    pub slot: u16,
    pub xid: u64,
    /// Of its first execution.
    pub transno: u64,
    pub req: Request,
    /// The reply as the caller got it, without its context.
    pub reply: Bytes,
    /// The server's clock when it was executed.
    pub wall: Timestamp,
}

impl Kept {
    fn bytes(&self) -> usize {
        self.req.body.len() + self.req.bulk.len() + self.reply.len() + OVERHEAD_BYTES
    }
}

/// All of one session.
#[derive(Default)]
pub(crate) struct KeptRequests {
    /// Executed in the epoch of the current session, by transaction number.
    current: BTreeMap<u64, Kept>,
    /// Executed before the server's restart and not sent again yet, in the order of their execution.
    lost: VecDeque<Kept>,
    bytes: usize,
}

impl KeptRequests {
    /// A modifying request was answered with transaction number `transno`, which is not durable yet.
    pub fn keep(&mut self, slot: u16, done: InFlight, transno: u64, reply: Bytes, wall: Timestamp) {
        self.insert(Kept { slot, xid: done.xid, transno, req: done.req, reply, wall });
    }

    fn insert(&mut self, k: Kept) {
        self.bytes += k.bytes();
        if let Some(old) = self.current.insert(k.transno, k) {
            self.bytes -= old.bytes();
        }
    }

    /// Everything of this epoch up to `transno` is durable.
    pub fn committed(&mut self, transno: u64) {
        while let Some(e) = self.current.first_entry().filter(|e| *e.key() <= transno) {
            self.bytes -= e.remove().bytes();
        }
        self.check();
    }

    /// The server restarted: all of it may be lost.
    pub fn new_epoch(&mut self) {
        let mut all: VecDeque<Kept> = std::mem::take(&mut self.current).into_values().collect();
        // What had been sent again before came before the rest.
        all.append(&mut self.lost);
        self.lost = all;
        if model::planted::on(model::planted::Bug::ReplayOutOfOrder) {
            self.lost.make_contiguous().reverse();
        }
        if model::planted::on(model::planted::Bug::ReplaySkipped) {
            self.forget();
        }
    }

    /// The next one to be sent again. It stays until [`KeptRequests::replayed`].
    pub fn next_lost(&self) -> Option<&Kept> {
        self.lost.front()
    }

    /// Whether a list of writes is to be sent again after the next one.
    pub fn list_follows(&self) -> bool {
        self.lost.iter().skip(1).any(|k| k.req.op == Op::Writelist)
    }

    /// The next one was executed again, as `transno` (0: it had survived, or there is nothing to keep).
    pub fn replayed(&mut self, transno: u64, wall: Timestamp) -> Option<Kept> {
        let mut k = self.lost.pop_front()?;
        self.bytes -= k.bytes();
        self.check();
        if transno == 0 {
            return Some(k);
        }
        (k.transno, k.wall) = (transno, wall);
        self.insert(k);
        None
    }

    /// All of it, in the order of its execution.
    pub fn all(&self) -> impl Iterator<Item = &Kept> {
        self.lost.iter().chain(self.current.values())
    }

    fn check(&self) {
        let least = self.len() * OVERHEAD_BYTES;
        assert!(self.bytes >= least, "what is kept is counted");
        assert!(self.len() > 0 || self.bytes == 0, "where nothing is kept nothing is counted");
    }

    /// Gives everything up.
    pub fn forget(&mut self) {
        *self = KeptRequests::default();
    }

    pub fn len(&self) -> usize {
        self.current.len() + self.lost.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// No more calls before something is committed.
    pub fn full(&self) -> bool {
        self.len() >= KEPT_MAX || self.bytes >= KEPT_MAX_BYTES
    }
}
