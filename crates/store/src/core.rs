//! The living part of a [`crate::Db`]: overlay, journal, committer. (`checkpoint` is the other half.)

use crate::StoreError;
use crate::author::{Seen, Unsent};
use crate::journal::append::SyncSet;
use crate::journal::segment::Spare;
use crate::journal::{Journal, Lsn, RECORD_HEADER_BYTES, RECORD_MAX_BYTES, record};
use crate::options::DbOptions;
use crate::space::Space;
use crate::still::{FrozenView, merge};
use crate::table::{Batch, Entry, Pair, Snapshot, Table};
use crate::txn::Txn;
use crate::usage::TAG_USAGE;
use bytes::Bytes;
use model::Errno;
use model::mutex::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use world::sync::{Notify, watch};
use world::{BoxFuture, Instant, World, select};

/// Submitted data may outgrow the checkpoint limits so many times before [`crate::Db::durable`] waits.
pub(crate) const BACKLOG_FACTOR: usize = 4;

/// Flushes that take less are done on a thread that serves requests, too: to wake another one for them and to
/// be woken at their end takes as long.
const FLUSH_BRIEF: Duration = Duration::from_micros(400);

/// A transaction nobody waits for is committed so long after it was submitted at the latest …
const COMMIT_DELAY: Duration = Duration::from_millis(20);
/// … or when so many record bytes wait.
const COMMIT_BYTES: usize = 4 << 20;
/// … or so many bytes in other files that are flushed with them.
const COMMIT_OUTSIDE_BYTES: usize = 32 << 20;

/// Makes what records `from..=upto` rely on outside the journal durable, before the flush that commits them.
/// Runs on the committer's task: the next group collects meanwhile. An error stops the target. False if there
/// was nothing.
pub(crate) trait PreCommitHook: Send + Sync {
    fn prepare(self: Arc<Self>, from: Lsn, upto: Lsn) -> BoxFuture<Result<bool, StoreError>>;
}

/// Makes everything outside the journal durable that records up to now rely on, before they are trimmed.
pub(crate) trait CheckpointHook: Send + Sync {
    fn flush(self: Arc<Self>) -> BoxFuture<Result<(), StoreError>>;
}

/// What waiters watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub committed: Lsn,
    pub applied: Lsn,
    /// The checkpointer is far behind.
    pub backlog: bool,
    pub stopped: Option<Arc<str>>,
    /// Stopped because it was closed, not because anything failed.
    pub orderly: bool,
    /// The lease was over first; the disk has nothing to do with it.
    pub out_of_time: bool,
}

pub(crate) struct Inner {
    pub overlay: Batch,
    pub overlay_bytes: usize,
    pub overlay_txns: usize,
    /// Record bytes since the last freeze.
    pub journal_bytes: usize,
    /// Being applied to the table.
    pub frozen: Option<Arc<Batch>>,
    /// `None` after close.
    pub snapshot: Option<Arc<dyn Snapshot>>,
    pub journal: Journal,
    pub spare_pending: bool,
    /// When the oldest record that no flush covers yet was submitted, and how many bytes of them there are.
    pub oldest: Option<Instant>,
    pub waiting_bytes: usize,
    /// Bytes in other files that these records rely on.
    pub waiting_outside: usize,
    /// Somebody waits for the commit of this record.
    pub wanted: Lsn,
    /// Uncommitted transactions: who made them; `None`: the server itself.
    pub authors: BTreeMap<Lsn, Option<[u8; 16]>>,
    pub unsent: Unsent,
    pub checkpoint_wanted: bool,
    pub closing: bool,
}

pub(crate) struct Core {
    pub world: World,
    pub dir: String,
    pub epoch: u32,
    pub opt: DbOptions,
    /// Taken out at close, so that the file is released then.
    pub table: Mutex<Option<Arc<dyn Table>>>,
    pub inner: Mutex<Inner>,
    pub state: watch::Sender<State>,
    pub wake_committer: Notify,
    pub wake_checkpointer: Notify,
    pub space: Space,
    pub hook: Mutex<Option<Arc<dyn CheckpointHook>>>,
    pub pre_commit: Mutex<Option<Arc<dyn PreCommitHook>>>,
    /// Wakes those who wait for answers to be sent before theirs.
    pub sent: Notify,
    /// How long flushes of the journal take, nanoseconds, a running mean.
    pub flush_ns: AtomicU64,
}

impl Core {
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    pub fn start(self: &Arc<Self>) {
        let c = self.clone();
        self.world.spawn("journal committer", async move { c.committer().await });
        let c = self.clone();
        self.world.spawn("checkpointer", async move { c.checkpointer().await });
    }

    pub fn transno(&self, lsn: Lsn) -> u64 {
        // A sum, so that it goes on growing should a target ever see 2^40 transactions: positions grow on
        // over epochs.
        (u64::from(self.epoch) << 40) + lsn
    }

    pub fn last_committed(&self) -> Lsn {
        self.state.borrow().committed
    }

    pub fn last_submitted(&self) -> Lsn {
        self.lock().journal.last_lsn()
    }

    pub fn stopped(&self) -> Option<String> {
        self.check_lease();
        let s = self.state.borrow();
        if s.orderly { None } else { s.stopped.as_ref().map(|r| r.to_string()) }
    }

    /// It stopped because its lease was over, not for its disk.
    pub fn is_out_of_time(&self) -> bool {
        self.check_lease();
        self.state.borrow().out_of_time
    }

    fn stop_state(&self, reason: &str, orderly: bool) {
        self.state.send_modify(|s| {
            if s.stopped.is_none() {
                s.stopped = Some(reason.into());
                s.orderly = orderly;
                s.out_of_time = !orderly && self.opt.lease.is_lost();
            }
        });
        self.wake_committer.notify_one();
        self.wake_checkpointer.notify_one();
        self.sent.notify_waiters();
    }

    /// Orderly end: background work ceases.
    pub fn stop(&self, reason: &str) {
        self.stop_state(reason, true);
    }

    /// The disk cannot be trusted any more: nothing is acknowledged from now on. Unless the lease is over:
    /// then that is why, whatever was found ([`Core::explained`]).
    pub fn fail(&self, e: &StoreError) {
        self.check_lease();
        self.stop_for(e);
    }

    fn stop_for(&self, e: &StoreError) {
        if self.state.borrow().stopped.is_none() {
            tracing::error!("target in '{}' stops: {e}", self.dir);
        }
        self.stop_state(&e.to_string(), false);
    }

    /// Stops if the lease is over: somebody else may have the target by now.
    fn check_lease(&self) {
        if let Err(e) = self.opt.lease.check(&self.world, &self.dir) {
            self.stop_for(&e);
        }
    }

    /// What an error means that reading the target gave. A server that slept finds what its successor wrote
    /// where its own was, and neither the table's pages nor checksums make sense to it: nothing is damaged.
    pub fn explained(&self, e: StoreError) -> StoreError {
        self.check_lease();
        match self.opt.lease.is_lost() {
            true => self.check().err().unwrap_or(e),
            false => e,
        }
    }

    /// `Stopped`, if so.
    pub fn check(&self) -> Result<(), StoreError> {
        self.check_lease();
        match &self.state.borrow().stopped {
            Some(r) => Err(StoreError::Stopped(r.to_string())),
            None => Ok(()),
        }
    }

    /// The value and what the answer depends on, as `who` sees it.
    pub fn get(&self, key: &[u8], who: Option<&[u8; 16]>) -> Result<(Option<Vec<u8>>, Seen), StoreError> {
        let snapshot = {
            let inner = self.lock();
            if let Some(e) = inner.entry(key) {
                return Ok((e.value.as_ref().map(|v| v.to_vec()), inner.seen(e.lsn, who)));
            }
            inner.snapshot()?
        };
        Ok((snapshot.get(key).map_err(|e| self.explained(e))?, Seen::default()))
    }

    /// Live pairs of `from..to`, at most `limit`, and what the answer depends on, as `who` sees it.
    pub fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
        who: Option<&[u8; 16]>,
    ) -> Result<(Vec<Pair>, Seen), StoreError> {
        let mut seen = Seen::default();
        if from >= to || limit == 0 {
            return Ok((Vec::new(), seen));
        }
        let (recent, snapshot) = {
            let inner = self.lock();
            let recent = inner.recent(from, to, limit);
            recent.values().for_each(|e| seen.merge(inner.seen(e.lsn, who)));
            (recent, inner.snapshot()?)
        };
        let live = recent.values().filter(|e| e.value.is_some()).count();
        // With enough recent pairs, nothing behind the last of them can be part of the answer.
        let table_to = match recent.last_key_value() {
            Some((k, _)) if live >= limit => k.as_slice(),
            _ => to,
        };
        let out = merge(recent.iter(), &*snapshot, (from, table_to), limit);
        Ok((out.map_err(|e| self.explained(e))?, seen))
    }

    /// Everything as it is now.
    pub fn still(&self) -> Result<FrozenView, StoreError> {
        let inner = self.lock();
        Ok(FrozenView::new(inner.recent(b"", &[0xff], usize::MAX), inner.snapshot()?))
    }

    pub fn submit(&self, mut txn: Txn) -> Result<Lsn, StoreError> {
        let bytes = txn.encoded_bytes();
        if bytes > RECORD_MAX_BYTES - RECORD_HEADER_BYTES {
            return Err(StoreError::Errno(Errno::E2BIG));
        }
        let mut inner = self.lock();
        self.check()?;
        if inner.closing {
            return Err(StoreError::Stopped("the database is being closed".into()));
        }
        if txn.is_empty() {
            return Ok(inner.journal.last_lsn());
        }
        txn.place_replies(self.transno(inner.journal.next_lsn()));
        let mut w = record::begin();
        w.0.reserve(bytes);
        record::encode_txn(&mut w, &txn.writes, &txn.redo);
        let record_bytes = w.0.len();
        assert!(record_bytes <= RECORD_HEADER_BYTES + bytes, "a record is no longer than was reckoned");
        let committed = self.last_committed();
        let lsn = match inner.journal.append(w, committed) {
            Ok(lsn) => lsn,
            Err(e) => {
                // A checkpoint gives segments back that can be used again.
                inner.checkpoint_wanted = true;
                drop(inner);
                if e.is_harmless() {
                    self.wake_checkpointer.notify_one();
                } else {
                    self.fail(&e);
                }
                return Err(e);
            }
        };
        assert!(committed < lsn, "what was just written is not committed yet");
        let (author, mut hurried) = (txn.author.take(), false);
        let other = inner.authors.insert(lsn, author.as_ref().map(|(a, _)| a.client));
        assert!(other.is_none(), "a position belongs to one transaction");
        if let Some((a, overwrites)) = author {
            let foreign = if overwrites { inner.overwritten(&txn.writes, &a.client, committed) } else { 0 };
            a.submitted(&mut inner, lsn, foreign);
            hurried = a.hurried;
        }
        inner.remember(lsn, txn.writes, record_bytes);
        inner.waiting_bytes += record_bytes;
        inner.waiting_outside += txn.outside;
        if hurried {
            // Said now, so that the committer is woken once.
            inner.wanted = inner.wanted.max(lsn);
        }
        let wake = inner.oldest.is_none() || inner.much_waits() || hurried;
        if inner.oldest.is_none() {
            inner.oldest = Some(self.world.now());
        }
        let due = self.checkpoint_due(&inner);
        if due && inner.backlogged(&self.opt) {
            self.state.send_if_modified(|s| !std::mem::replace(&mut s.backlog, true));
        }
        drop(inner);
        if wake {
            self.wake_committer.notify_one();
        }
        if due {
            self.wake_checkpointer.notify_one();
        }
        Ok(lsn)
    }

    /// Waits until `lsn` is on disk, and has it flushed at once; unlike [`crate::Db::durable`] never for the
    /// checkpointer.
    pub async fn committed(&self, lsn: Lsn) -> Result<(), StoreError> {
        self.want(lsn);
        self.committed_in_time(lsn).await
    }

    /// The committer is not to take its time with `lsn`.
    pub fn want(&self, lsn: Lsn) {
        if self.last_committed() >= lsn {
            return;
        }
        let mut inner = self.lock();
        if lsn > inner.wanted {
            inner.wanted = lsn;
            drop(inner);
            self.wake_committer.notify_one();
        }
    }

    /// `Stopped` if the answer to a request that made `lsn` must not be sent: it may be a change that was
    /// given up.
    pub fn check_answer(&self, lsn: Lsn) -> Result<(), StoreError> {
        if lsn == 0 || self.last_committed() >= lsn { Ok(()) } else { self.check() }
    }

    /// Waits until `lsn` is on disk, whenever that may be (soon).
    pub async fn committed_in_time(&self, lsn: Lsn) -> Result<(), StoreError> {
        if self.state.borrow().committed >= lsn {
            return Ok(());
        }
        let mut rx = self.state.subscribe();
        let s =
            rx.wait_for(|s| s.committed >= lsn || s.stopped.is_some()).await.expect("the sender is in self");
        match &s.stopped {
            Some(r) if s.committed < lsn => Err(StoreError::Stopped(r.to_string())),
            _ => Ok(()),
        }
    }

    pub async fn not_backlogged(&self) -> Result<(), StoreError> {
        if !self.state.borrow().backlog {
            return Ok(());
        }
        let mut rx = self.state.subscribe();
        // What is committed stays committed: a stop meanwhile takes nothing back.
        rx.wait_for(|s| !s.backlog || s.stopped.is_some()).await.expect("the sender is in self");
        Ok(())
    }

    /// Continuous group commit: while one flush runs, the next group collects. It begins at once if somebody
    /// waits for it, else a little later, so that many transactions share it.
    async fn committer(self: Arc<Self>) {
        while self.check().is_ok() {
            let set = {
                let mut inner = self.lock();
                let (committed, now) = (self.last_committed(), self.world.now());
                match inner.commit_due(committed, now) {
                    Due::Nothing => Err(None),
                    Due::In(d) => Err(Some(d)),
                    Due::Now => {
                        inner.oldest = None;
                        inner.waiting_bytes = 0;
                        inner.waiting_outside = 0;
                        Ok((committed + 1, inner.journal.sync_set()))
                    }
                }
            };
            match set {
                Ok((from, set)) => {
                    if let Err(e) = self.commit(from, set).await {
                        self.fail(&e);
                    }
                    self.prepare_spare();
                }
                Err(None) => self.wake_committer.notified().await,
                Err(Some(d)) => {
                    let _ = select(self.wake_committer.notified(), self.world.sleep(d)).await;
                }
            }
        }
    }

    async fn commit(&self, from: Lsn, set: SyncSet) -> Result<(), StoreError> {
        let upto = set.upto;
        assert!(from <= upto, "a flush of the journal commits a record at least");
        let hook = self.pre_commit.lock().clone();
        let mut relied = false;
        if let Some(h) = hook {
            let late = model::planted::on(model::planted::Bug::DataFlushedLate);
            relied = h.prepare(from, if late { from - 1 } else { upto }).await?;
        }
        self.flush(set).await?;
        // What went to disk after the lease's end is not acknowledged: the successor may not have seen it.
        self.check_lease();
        {
            let mut inner = self.lock();
            inner.authors = inner.authors.split_off(&(upto + 1));
        }
        self.state.send_modify(|s| {
            assert!(s.committed <= upto, "commits are in order");
            assert!(s.applied <= upto, "the table holds nothing that is not committed");
            // A flush that ends after a failure elsewhere must not acknowledge anything.
            if s.stopped.is_none() || s.orderly {
                s.committed = upto;
            }
        });
        self.sent.notify_waiters();
        if relied {
            self.say_committed(upto);
        }
        Ok(())
    }

    async fn flush(&self, set: SyncSet) -> Result<(), StoreError> {
        let world = self.world.clone();
        let timed = move || {
            let start = world.now();
            (set.run(&world), world.now().since(start))
        };
        let mean = Duration::from_nanos(self.flush_ns.load(Ordering::Relaxed));
        let (done, took) = if mean < FLUSH_BRIEF {
            self.world.blocking_briefly(timed).await
        } else {
            self.world.blocking(timed).await
        };
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // One at a time: nobody else stores it.
        let mean = (u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX) / 8 * 7).saturating_add(took / 8);
        self.flush_ns.store(mean, Ordering::Relaxed);
        done
    }

    /// If nothing follows that would say in the journal that `upto` is committed, an empty record does:
    /// whoever reads it need not look for the data of records up to there. Nobody waits for it.
    fn say_committed(&self, upto: Lsn) {
        let mut inner = self.lock();
        if inner.journal.last_lsn() > upto || inner.closing || self.check().is_err() {
            return;
        }
        let mut w = record::begin();
        record::encode_txn(&mut w, &[], &[]);
        let bytes = w.0.len();
        match inner.journal.append(w, upto) {
            Ok(lsn) => {
                inner.authors.insert(lsn, None);
                inner.remember(lsn, Vec::new(), bytes);
                inner.waiting_bytes += bytes;
                inner.oldest.get_or_insert(self.world.now());
            }
            // No room for a segment: it is said another time.
            Err(e) if e.is_harmless() => {}
            Err(e) => {
                drop(inner);
                self.fail(&e);
            }
        }
    }

    /// Keeps a fresh segment at hand, so that no operation waits for one.
    fn prepare_spare(self: &Arc<Self>) {
        let want = {
            let mut inner = self.lock();
            if inner.spare_pending || inner.closing || !inner.journal.half_full() {
                return;
            }
            let Some(want) = inner.journal.wants_spare() else { return };
            inner.spare_pending = true;
            want
        };
        let core = self.clone();
        self.world.spawn("journal spare", async move {
            let (dir, number, bytes) = want;
            let world = core.world.clone();
            match core.world.blocking(move || Spare::create(&world, &dir, number, bytes)).await {
                Ok(s) => {
                    let mut inner = core.lock();
                    inner.spare_pending = false;
                    inner.journal.add_spare(s);
                }
                // The segment is made when it is needed, or the operation then fails with ENOSPC.
                Err(e) => tracing::warn!("no spare journal segment in '{}': {e}", core.dir),
            }
        });
    }
}

/// What a write takes in the overlay. Twice the key and some for the tree's nodes: an estimate is enough for
/// a limit.
pub(crate) fn overlay_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    2 * key.len() + 64 + value.map_or(0, <[u8]>::len)
}

/// When the next flush is to begin.
enum Due {
    Nothing,
    In(Duration),
    Now,
}

impl Inner {
    fn commit_due(&self, committed: Lsn, now: Instant) -> Due {
        if self.journal.last_lsn() <= committed {
            return Due::Nothing;
        }
        let stalled = model::planted::on(model::planted::Bug::StalledCommit);
        let delay = if stalled { Duration::from_secs(60) } else { COMMIT_DELAY };
        let waited = self.oldest.map_or(delay, |t| now.since(t));
        if self.wanted > committed || self.closing || self.much_waits() || waited >= delay {
            Due::Now
        } else {
            Due::In(delay - waited)
        }
    }

    fn much_waits(&self) -> bool {
        self.waiting_bytes >= COMMIT_BYTES || self.waiting_outside >= COMMIT_OUTSIDE_BYTES
    }

    /// What overlay and frozen overlay say about a key.
    fn entry(&self, key: &[u8]) -> Option<&Entry> {
        self.overlay.get(key).or_else(|| self.frozen.as_ref().and_then(|f| f.get(key)))
    }

    /// What it means to `who` to see transaction `lsn`.
    pub fn seen(&self, lsn: Lsn, who: Option<&[u8; 16]>) -> Seen {
        let mut seen = Seen { newest: lsn, ..Seen::default() };
        match self.authors.get(&lsn) {
            Some(a) if who.is_some() && a.as_ref() == who => seen.own = lsn,
            Some(_) => seen.foreign = lsn,
            None => {}
        }
        seen
    }

    /// The newest uncommitted transaction of somebody else than `who` that wrote any of these keys. Usage
    /// does not count: sums are the same in whatever order, and an answer shows none.
    fn overwritten(&self, writes: &[(Vec<u8>, Option<Vec<u8>>)], who: &[u8; 16], committed: Lsn) -> Lsn {
        let shown = writes.iter().filter(|(k, _)| k.first() != Some(&TAG_USAGE));
        let old = shown.filter_map(|(k, _)| self.entry(k)).filter(|e| e.lsn > committed);
        old.map(|e| self.seen(e.lsn, Some(who)).foreign).max().unwrap_or(0)
    }

    pub fn snapshot(&self) -> Result<Arc<dyn Snapshot>, StoreError> {
        self.snapshot.clone().ok_or_else(|| StoreError::Stopped("the database was closed".into()))
    }

    fn remember(&mut self, lsn: Lsn, writes: Vec<(Vec<u8>, Option<Vec<u8>>)>, record_bytes: usize) {
        self.overlay_txns += 1;
        self.journal_bytes += record_bytes;
        for (k, v) in writes {
            self.overlay_bytes += overlay_bytes(&k, v.as_deref());
            let older = self.overlay.insert(k, Entry { lsn, value: v.map(Bytes::from) });
            assert!(older.is_none_or(|o| o.lsn <= lsn), "a key's newest write wins");
        }
    }

    /// What overlay and frozen overlay say about a range: all of it, or up to the `limit`-th live pair.
    fn recent(&self, from: &[u8], to: &[u8], limit: usize) -> BTreeMap<Vec<u8>, Entry> {
        let range = (Bound::Included(from), Bound::Excluded(to));
        let mut new = self.overlay.range::<[u8], _>(range).peekable();
        let mut old = self.frozen.iter().flat_map(|f| f.range::<[u8], _>(range)).peekable();
        let mut out = BTreeMap::new();
        let mut live = 0;
        while live < limit {
            let take_new = match (new.peek(), old.peek()) {
                (Some((n, _)), Some((o, _))) => {
                    if n == o {
                        old.next();
                        continue;
                    }
                    n < o
                }
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => break,
            };
            let (k, e) = if take_new { new.next() } else { old.next() }.expect("peeked at just now");
            live += usize::from(e.value.is_some());
            out.insert(k.clone(), e.clone());
        }
        out
    }
}
