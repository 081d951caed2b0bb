//! Whose uncommitted transactions an answer shows, and in which order answers go out.
//!
//! A client may be answered before its transaction is durable, because it keeps the request and sends it
//! again after a crash. That is sound only if (1) nobody else was shown what a crash takes back, and (2) what
//! a client was answered never depends on a request of its own that it has no answer to yet: it could not
//! bring that back first. So an answer waits for the commit of everything it saw of others
//! ([`Seen::foreign`]) and for its turn behind the answers to this client's earlier transactions
//! ([`Seen::own`]).

use crate::StoreError;
use crate::core::{Core, Inner};
use crate::journal::Lsn;
use model::mutex::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Uncommitted transactions that an answer depends on: the newest of each kind, 0 for none.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Of anybody, committed or not (as far as the table does not hold it yet).
    pub newest: Lsn,
    /// Of somebody else than the one who asks; the server itself is somebody else to everybody.
    pub foreign: Lsn,
    /// Of the one who asks.
    pub own: Lsn,
}

impl Seen {
    pub fn merge(&mut self, other: Seen) {
        self.newest = self.newest.max(other.newest);
        self.foreign = self.foreign.max(other.foreign);
        self.own = self.own.max(other.own);
    }
}

/// One request of one client and the transactions it makes. Held until its answer was sent; dropping it lets
/// the client's later answers go.
pub struct Author {
    pub(crate) client: [u8; 16],
    /// The answer waits for the commit: it begins as soon as there is something to commit.
    pub(crate) hurried: bool,
    core: Arc<Core>,
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    lsns: Vec<Lsn>,
    /// Newest transaction of somebody else whose keys were overwritten.
    foreign: Lsn,
}

impl std::fmt::Debug for Author {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Author({:02x?})", self.client)
    }
}

impl Author {
    pub(crate) fn new(core: Arc<Core>, client: [u8; 16], hurried: bool) -> Arc<Author> {
        Arc::new(Author { client, hurried, core, made: Mutex::default() })
    }

    fn made(&self) -> model::mutex::MutexGuard<'_, Made> {
        self.made.lock()
    }

    /// A transaction of this request got its position. Called with the core locked.
    pub(crate) fn submitted(&self, inner: &mut Inner, lsn: Lsn, foreign: Lsn) {
        let mut m = self.made();
        assert!(m.lsns.last().is_none_or(|l| *l < lsn), "a request's transactions come in order");
        assert!(foreign < lsn, "a transaction depends on earlier ones only");
        m.lsns.push(lsn);
        m.foreign = m.foreign.max(foreign);
        let new = inner.unsent.entry(self.client).or_default().insert(lsn);
        assert!(new, "a transaction is the work of one request");
    }

    /// Waits until the request's answer, which shows `seen`, may be sent; with `durable`, until all of it is
    /// on disk.
    ///
    /// `Stopped` if it never may.
    pub async fn answerable(&self, seen: Seen, durable: bool) -> Result<(), StoreError> {
        let (first, last, overwritten) = {
            let m = self.made();
            (m.lsns.first().copied(), m.lsns.last().copied().unwrap_or(0), m.foreign)
        };
        let core = &self.core;
        if durable {
            core.committed(seen.newest.max(last)).await?;
        } else if !model::planted::on(model::planted::Bug::NoCommitOnSharing) {
            core.committed(seen.foreign.max(overwritten)).await?;
        }
        // Behind everything that was executed before it: its own first transaction, or the last one it saw.
        self.turn(first.unwrap_or(seen.own + 1)).await?;
        if first.is_some() {
            core.not_backlogged().await?;
        }
        core.check_answer(last)
    }

    /// Waits until no answer to an uncommitted transaction before `bound` is outstanding.
    async fn turn(&self, bound: Lsn) -> Result<(), StoreError> {
        loop {
            let mut sent = Box::pin(self.core.sent.notified());
            sent.as_mut().enable();
            {
                let committed = self.core.last_committed();
                let inner = self.core.lock();
                let before = inner
                    .unsent
                    .get(&self.client)
                    .and_then(|s| s.range(committed + 1..bound.max(committed + 1)).next());
                if before.is_none() {
                    return Ok(());
                }
            }
            self.core.check()?;
            sent.await;
        }
    }
}

impl Drop for Author {
    fn drop(&mut self) {
        let lsns = std::mem::take(&mut self.made().lsns);
        if lsns.is_empty() {
            return;
        }
        let mut inner = self.core.lock();
        if let Some(s) = inner.unsent.get_mut(&self.client) {
            for l in &lsns {
                s.remove(l);
            }
            if s.is_empty() {
                inner.unsent.remove(&self.client);
            }
        }
        drop(inner);
        self.core.sent.notify_waiters();
    }
}

/// Transactions of one client whose answers are not sent yet.
pub(crate) type Unsent = std::collections::BTreeMap<[u8; 16], BTreeSet<Lsn>>;
