//! How a transaction is built and submitted, what it waits for before, and when the answer may go out. None
//! of it knows the target as a whole.

use crate::ancestors::{self, TRIES_MAX};
use crate::callbacks::Callbacks;
use crate::core::Core;
use crate::done::{Done, ReplyTo};
use crate::leases::{self, LeaseNeeds, LeaseState, RevokeGuard, Touched};
use crate::schema::{self, Inode, key, value};
use crate::shared::Shared;
use crate::tx::{Outcome, Tx};
use crate::ways::Ways;
use model::mutex::RwLock;
use model::planted::{self, Bug};
use model::usage::{QuotaId, UsageChange};
use model::{Errno, limits};
use rpc::Outgoing;
use rpc::server::recovery::Recovery;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::{Author, Db, ReplyRecord, Txn};

/// Runs operations on the table, each as a transaction, and takes back the leases that are in their way.
pub struct Transactions {
    pub db: Arc<Db>,
    pub shared: Arc<Shared>,
    pub core: Arc<RwLock<Core>>,
    pub callbacks: Callbacks,
    pub recovery: Arc<Recovery>,
}

impl Transactions {
    /// Runs a read-only operation of a client, which may be granted leases on what it sees. While other
    /// clients own what it looks at, it waits until they have told what they did, and runs again.
    pub async fn read(
        &self,
        to: &ReplyTo,
        mut f: impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno> + Send,
    ) -> Done {
        let mut marks = RevokeGuard::new(&self.shared.leases);
        loop {
            let wanted = match self.look(to, &mut f, &mut marks) {
                Ok(done) => return done,
                Err(wanted) => wanted,
            };
            assert!(!wanted.look.is_empty(), "a look waits for what others have of what it looked at");
            {
                // Not beside other looks: they grant what they were offered a moment ago.
                let _alone = self.core.write();
                marks.mark_conflicts(Some(to.client), &wanted);
            }
            if let Err(e) = self.callbacks.await_cancels(Some(to.client), &wanted).await {
                return Done::error(e);
            }
        }
    }

    /// Runs a read-only operation on what the table has, whatever owners have not told; nothing is granted.
    /// With the result: what it depends on.
    pub fn peek<T>(&self, to: &ReplyTo, f: impl FnOnce(&mut Tx) -> T) -> (T, store::Seen) {
        let core = self.core.read();
        let mut tx = Tx::new(self.db.view_for(&to.author), &core.opens, &self.shared);
        let result = f(&mut tx);
        let out = tx.finish();
        assert!(out.is_nothing(), "a read-only operation wrote something");
        (result, out.seen)
    }

    /// Waits until all owners (but `by`) have told what they had done when this began.
    pub async fn owners_told(&self, by: Option<rpc::ClientId>) -> Result<(), Errno> {
        let mut marks = RevokeGuard::new(&self.shared.leases);
        let wanted = {
            let _alone = self.core.write();
            let wanted = LeaseNeeds { change: Touched::new(), look: self.shared.leases.owned() };
            if !marks.mark_conflicts(by, &wanted) {
                return Ok(());
            }
            wanted
        };
        self.callbacks.await_cancels(by, &wanted).await
    }

    /// Runs it, unless others own what it looks at: then says what that is.
    fn look(
        &self,
        to: &ReplyTo,
        f: &mut impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno>,
        marks: &mut RevokeGuard,
    ) -> Result<Done, LeaseNeeds> {
        let core = self.core.read();
        marks.clear();
        let mut tx = self.begin(&core, Some(to), false);
        let result = f(&mut tx);
        let out = tx.finish();
        assert!(out.is_nothing(), "a read-only operation wrote something");
        let wanted = LeaseNeeds { change: Touched::new(), look: out.looked };
        if marks.conflicts_shared(Some(to.client), &wanted) {
            return Err(wanted);
        }
        if result.is_ok() {
            self.shared.leases.grant(to.client, &out.offers);
        }
        Ok(Done { bulk: out.bulk, ..Done::looked(result, out.seen) })
    }

    /// Runs an operation that may change something and submits its transaction, with the reply if it is a
    /// client's. A failed operation changes nothing. While other clients hold leases on what it would change,
    /// or own what it looks at, it waits for them, and runs again: on what is there by then.
    pub async fn transact(
        &self,
        to: Option<&ReplyTo>,
        f: impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno> + Send,
    ) -> Done {
        self.transact_by(to.map(|t| t.client), to, f).await
    }

    /// As [`Transactions::transact`], also without a reply: a client's own leases are not in its way.
    pub async fn transact_by(
        &self,
        by: Option<rpc::ClientId>,
        to: Option<&ReplyTo>,
        mut f: impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno> + Send,
    ) -> Done {
        let mut marks = RevokeGuard::new(&self.shared.leases);
        loop {
            let waited = match self.attempt(by, to, &mut f, &mut marks) {
                Ok(done) => return done,
                Err(InTheWay::Leases(by, wanted)) => {
                    assert!(
                        !wanted.is_nothing(),
                        "a transaction waits for what others have of what it touches"
                    );
                    self.callbacks.await_cancels(by, &wanted).await
                }
                Err(InTheWay::Barrier) => self.callbacks.await_thaw(by).await,
            };
            if let Err(e) = waited {
                return Done::error(e);
            }
        }
    }

    /// Runs and submits it, unless other clients have leases (then what it would change is marked), or it
    /// would change something while the target is frozen.
    fn attempt(
        &self,
        by: Option<rpc::ClientId>,
        to: Option<&ReplyTo>,
        f: &mut impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno>,
        marks: &mut RevokeGuard,
    ) -> Result<Done, InTheWay> {
        let mut core = self.core.write();
        marks.clear();
        if to.is_some_and(|t| !core.clients.contains_key(&t.client)) {
            return Ok(Done::error(Errno::ENOTCONN));
        }
        self.look_at_space();
        let mut tx = self.begin(&core, to, true);
        let result = f(&mut tx);
        let mut out = tx.finish();
        let mut wanted = LeaseNeeds { look: std::mem::take(&mut out.looked), ..LeaseNeeds::default() };
        if result.is_ok() {
            wanted.change = leases::touched(out.pending.keys());
            for (fid, bits) in std::mem::take(&mut out.claims) {
                *wanted.change.entry(fid).or_default() |= bits;
            }
        }
        // What is done again was allowed the first time, and others wait until it is done. What is reclaimed
        // must not wait for owners either: they tell nothing before recovery is over.
        let again = to.is_none_or(|t| t.replay) && self.recovery.recovering();
        if !again && result.is_ok() && !out.pending.is_empty() && self.shared.barrier.holds() {
            return Err(InTheWay::Barrier);
        }
        if !again && marks.mark_conflicts(by, &wanted) {
            return Err(InTheWay::Leases(by, wanted));
        }
        if result.is_ok() && !again && self.shared.quotas.is_active() {
            let mut look = self.dirs_near_limits(&out.usage);
            if !out.recounted.is_empty() {
                let owned = self.shared.leases.owned_dirs();
                look.extend(owned.into_iter().filter(|(fid, _)| out.recounted.contains(fid)));
            }
            let dirs = LeaseNeeds { look, ..LeaseNeeds::default() };
            if out.owned {
                // It waits for nobody, and is asked to do nothing more by itself.
                self.callbacks.ask_for(&dirs);
            } else if marks.mark_conflicts(None, &dirs) {
                return Err(InTheWay::Leases(None, dirs));
            }
        }
        match result {
            Ok(body) => Ok(self.commit(&mut core, to, body, out)),
            Err(e) => Ok(Done::looked(Err(e), out.seen)),
        }
    }

    /// Directories that clients have for themselves whose owners a change takes near a limit: what these
    /// clients may have made there and not told counts as well.
    fn dirs_near_limits(&self, change: &UsageChange) -> Touched {
        let Shared { quotas, usage, leases, .. } = &*self.shared;
        let clients = leases.owners();
        let near = quotas.near(usage, change, clients);
        if near.is_empty() {
            return Touched::new();
        }
        assert!(clients > 0, "nobody is near a limit where no client has a directory for itself");
        let dirs = self.dirs_of(|id| near.contains(&id));
        if dirs.is_empty() {
            quotas.are_near(&near);
        }
        dirs
    }

    /// Directories that clients have for themselves and that are counted to somebody who is `wanted`.
    fn dirs_of(&self, wanted: impl Fn(QuotaId) -> bool) -> Touched {
        let mut dirs = self.shared.leases.owned_dirs();
        let mut view = self.db.view();
        dirs.retain(|fid, _| match view.get(&key::inode(*fid)) {
            Ok(Some(v)) => {
                let of = |i: Inode| self.shared.usage.quota_ids(i.owner()).into_iter().any(&wanted);
                Inode::decode_shown(*fid, &v).map_or(true, of)
            }
            Ok(None) => false,
            // Nobody knows whose it is.
            Err(_) => true,
        });
        dirs
    }

    /// Limits are others now: clients hear of that before they make more files by themselves that are counted
    /// to `of`, or to anybody.
    pub async fn limits_changed(&self, of: Option<QuotaId>) -> Result<(), Errno> {
        let dirs = self.dirs_of(|id| of.is_none_or(|of| of == id));
        self.revoke(|_| dirs).await
    }

    /// Beside what is promised to owners. If it is low, they are promised nothing more.
    fn look_at_space(&self) {
        let promised = self.shared.leases.promised_bytes(None);
        let low = self.db.space_low_beside(promised);
        self.shared.space_low.store(low, Ordering::Relaxed);
        if low && promised > 0 {
            self.callbacks.shed_owners();
        }
    }

    /// A transaction of a client's request, or of the server itself.
    fn begin<'a>(&'a self, core: &'a Core, to: Option<&ReplyTo>, modifies: bool) -> Tx<'a> {
        let watch =
            |tx: Tx<'a>| if self.shared.leases.others_own(to.map(|t| t.client)) { tx.watching() } else { tx };
        let Some(t) = to else { return watch(Tx::new(self.db.view(), &core.opens, &self.shared)) };
        let mut tx = watch(Tx::new(self.db.view_for(&t.author), &core.opens, &self.shared));
        tx.notes.set_origin(&t.origin);
        // Nobody reads the answer of a request that is done again, so it must not grant anything.
        if (modifies || core.clients.contains_key(&t.client)) && !t.replay && !t.squashed {
            tx.answering(t.client)
        } else {
            tx
        }
    }

    fn commit(&self, core: &mut Core, to: Option<&ReplyTo>, body: Vec<u8>, out: Outcome) -> Done {
        let seen = out.seen;
        let (mut transno, mut wait) = (0, seen.newest);
        let gone = out.pending.iter().filter(|(k, v)| k[0] == key::INODE && v.is_none());
        let gone: Vec<_> = gone.filter_map(|(k, _)| key::parse_fid(k)).collect();
        if !out.pending.is_empty() || !out.records.is_empty() {
            let mut txn = Txn::new();
            if let Some(t) = to {
                // Everything that its writes depend on was read through the view.
                txn.set_author(&t.author, false);
            }
            if let Some(t) = to.filter(|_| !planted::on(Bug::LostReplySlot)) {
                assert!(t.slot < limits::SLOTS_PER_SESSION, "a reply is kept for a slot of the session");
                let reply = ReplyRecord { xid: t.xid, status: 0, body: body.clone() };
                txn.put_reply(&t.client.0, t.slot, &reply);
            }
            let inodes = self.shared.inodes.load(Ordering::Relaxed).saturating_add_signed(out.inodes);
            if out.inodes != 0 {
                txn.put(key::STATE_INODES, value::encode_u64(inodes));
            }
            let mut osts = BTreeSet::new();
            let root = out.pending.get(&key::inode(model::Fid::ROOT)).cloned();
            let log_state = out.pending.get(key::STATE_CHANGELOG).cloned().flatten();
            for (k, v) in out.pending {
                if k[0] == key::OUTBOX && v.is_some() {
                    osts.extend(key::parse_outbox(&k).map(|(ost, _)| ost));
                }
                txn.writes.push((k, v));
            }
            let wall = || self.shared.world.wall().sec;
            let over = self.shared.quotas.over_since(&self.shared.usage, &out.usage, wall);
            txn.writes.extend(over.into_iter().map(|(k, v)| (k.encode(), v)));
            let known = [key::LIMITS, key::DIRECTORY, key::UNSETTLED];
            let known: Vec<_> = txn.writes.iter().filter(|(k, _)| known.contains(&k[0])).cloned().collect();
            let records = self.shared.changelog.number(out.records);
            let (written, bytes) = (records.len(), records.iter().map(|(_, v)| v.len() as u64).sum());
            txn.writes.extend(records.into_iter().map(|(k, v)| (k, Some(v))));
            let lsn = match self.shared.usage.submit(&self.db, txn, &out.usage) {
                Ok(lsn) => lsn,
                Err(e) => {
                    tracing::error!("a metadata transaction was refused: {e}");
                    return Done::looked(Err(e.errno()), seen);
                }
            };
            assert!(lsn > seen.newest, "a transaction stands behind everything that it saw");
            (transno, wait) = (self.db.transno(lsn), lsn);
            self.shared.moves.record(out.moved);
            self.shared.inodes.store(inodes, Ordering::Relaxed);
            self.shared.changelog.wrote(written, bytes);
            for (k, v) in known {
                let Shared { quotas, directories, usage, .. } = &*self.shared;
                let adopted = match k[0] {
                    key::LIMITS => quotas.adopt(&k, v.as_deref()),
                    _ => directories.adopt(&k, v.as_deref(), usage),
                };
                adopted.expect("what was written a moment ago is read");
            }
            if let Some(state) = log_state {
                self.log_changed(&state);
            }
            if let Some(Some(root)) = root {
                self.root_changed(&root);
            }
            for ost in osts {
                self.shared.osts.wake(ost);
            }
        }
        out.freezes.into_iter().for_each(|f| f.begin(&self.shared.growing));
        for c in out.changes {
            core.opens.apply(c);
        }
        if let Some(t) = to {
            self.shared.leases.grant(t.client, &out.offers);
        }
        self.shared.leases.files_gone(gone.into_iter());
        Done { result: Ok(body), bulk: out.bulk, transno, wait, seen, durable: false }
    }

    fn root_changed(&self, bytes: &[u8]) {
        if let Ok(i) = schema::Inode::decode(model::Fid::ROOT, bytes) {
            *self.shared.root_default.lock() = i.default_layout;
        }
    }

    /// Returns when nothing is frozen. `ESHUTDOWN` when the target stops.
    pub async fn thawed(&self) -> Result<(), Errno> {
        self.callbacks.await_thaw(None).await
    }

    fn log_changed(&self, bytes: &[u8]) {
        if let Ok(s) = schema::changelog::LogState::decode(key::STATE_CHANGELOG, bytes) {
            self.shared.changelog.adopt(s);
        }
    }

    /// Clients do again what they did before a restart: nothing may come between.
    pub fn are_replayed(&self) -> bool {
        self.recovery.recovering()
    }

    /// As [`Transactions::transact`]; waits while data that it concerns is on its way to objects, and while
    /// it is looked up where directories lie that are deep down.
    pub async fn settled(
        &self,
        to: &ReplyTo,
        f: impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno> + Send,
    ) -> Done {
        self.settled_by(Some(to.client), to, f).await
    }

    /// As [`Transactions::settled`]; `by`: whose leases are not in its way.
    pub async fn settled_by(
        &self,
        by: Option<rpc::ClientId>,
        to: &ReplyTo,
        mut f: impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno> + Send,
    ) -> Done {
        let (mut ways, mut tries) = (Ways::default(), 0);
        loop {
            let mut ends = self.shared.growing.ends();
            let known = ways.again();
            let work = |tx: &mut Tx| {
                tx.ways = known.clone();
                let result = f(tx);
                ways = tx.ways.clone();
                result
            };
            let done = self.transact_by(by, Some(to), work).await;
            match done.result {
                Err(Errno::EGROWING) => {
                    let _ = ends.changed().await;
                }
                Err(Errno::EDEEP) if tries < TRIES_MAX => {
                    tries += 1;
                    if let Err(e) = ancestors::climb(&self.db, &self.shared, &mut ways).await {
                        return Done::error(e);
                    }
                }
                Err(Errno::EDEEP) => return Done::error(Errno::EBUSY),
                _ => return done,
            }
        }
    }

    /// Waits until no client keeps anything of the files that `wanted` names beside no operation. `ESHUTDOWN`
    /// when the target stops.
    pub async fn revoke(&self, wanted: impl FnOnce(&LeaseState) -> Touched) -> Result<(), Errno> {
        let mut marks = RevokeGuard::new(&self.shared.leases);
        let wanted = {
            let _alone = self.core.write();
            let wanted = LeaseNeeds { change: wanted(&self.shared.leases), look: Touched::new() };
            if !marks.mark_conflicts(None, &wanted) {
                return Ok(());
            }
            wanted
        };
        self.callbacks.await_cancels(None, &wanted).await
    }
}

/// What a transaction has to wait for.
enum InTheWay {
    /// What clients have of what it touches; not the leases of this one.
    Leases(Option<rpc::ClientId>, LeaseNeeds),
    /// Nothing is modified for a while.
    Barrier,
}

/// The answer, once it may be given: when what it shows of others is durable (with `ack=durable`,
/// everything), and behind the answers to what its client did before.
pub async fn answer(done: Done, author: Arc<Author>) -> Outgoing {
    assert!(done.transno == 0 || done.result.is_ok(), "an operation that failed changed something");
    assert!(done.seen.newest <= done.wait, "an answer waits for all that it shows");
    let early = if done.transno != 0 { Bug::ReplyBeforeDurable } else { Bug::ReadUndurable };
    if !planted::on(early)
        && let Err(e) = author.answerable(done.seen, done.durable).await
    {
        return Outgoing::err(e.errno());
    }
    let out = match done.result {
        Ok(body) => {
            let (status, bulk, transno) = (Ok(()), done.bulk, done.transno);
            Outgoing { status, body, bulk: bulk.into(), transno, hold: None }
        }
        Err(e) => Outgoing::err(e),
    };
    Outgoing { hold: Some(author), ..out }
}
