//! From a request to its operation and back: which operations change something, how their transaction is
//! built and submitted, and when the answer may go out.

use crate::ancestors::{TRIES_MAX, Ways};
use crate::core::Core;
use crate::leases::{self, Marks, Touched, Wanted};
use crate::names::OpContext;
use crate::schema::{key, value};
use crate::service::Mdt;
use crate::tx::{Outcome, Tx};
use crate::{ops, replayed, schema};
use bytes::Bytes;
use model::planted::{self, Bug};
use model::{Errno, limits};
use rpc::{ClientId, Incoming, Outgoing, Service};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::{Author, Lsn, ReplyRecord, Seen, Txn};
use wire::{Message, Op, msg};

/// A message's body as its type; `EPROTO` if it does not decode.
pub fn decode<M: DeserializeOwned>(body: &[u8]) -> Result<M, Errno> {
    postcard::take_from_bytes(body).map(|(m, _)| m).map_err(|e| {
        tracing::warn!("a request does not decode as {}: {e}", std::any::type_name::<M>());
        Errno::EPROTO
    })
}

pub fn encode<R: serde::Serialize>(r: &R) -> Vec<u8> {
    postcard::to_stdvec(r).expect("plain data encodes")
}

macro_rules! transactional {
    ($($op:ident: $msg:ty => $run:path;)*) => {
        /// Runs one operation on names or files within a transaction. `EOPNOTSUPP` for other messages.
        pub fn execute(tx: &mut Tx, ctx: &OpContext, op: Op, body: &[u8]) -> Result<Vec<u8>, Errno> {
            match op {
                $(Op::$op => {
                    let m: $msg = decode(body)?;
                    let r: <$msg as Message>::Reply = $run(tx, ctx, m)?;
                    Ok(encode(&r))
                })*
                _ => Err(Errno::EOPNOTSUPP),
            }
        }

        /// Whether an operation that [`execute`] knows changes anything; `None` if it does not know it.
        pub fn modifies(op: Op) -> Option<bool> {
            match op {
                $(Op::$op)|* => Some(op.verb().modifies),
                _ => None,
            }
        }
    };
}

transactional! {
    Lookup: msg::lookup::Lookup => ops::lookup::run;
    Getattr: msg::getattr::Getattr => ops::getattr::run;
    Setattr: msg::setattr::Setattr => ops::setattr::run;
    Create: msg::create::Create => ops::create::run;
    Mkdir: msg::mkdir::Mkdir => ops::mkdir::run;
    Mknod: msg::mknod::Mknod => ops::mknod::run;
    Symlink: msg::symlink::Symlink => ops::symlink::run;
    Readlink: msg::readlink::Readlink => ops::readlink::run;
    Link: msg::link::Link => ops::link::run;
    Unlink: msg::unlink::Unlink => ops::unlink::run;
    Rmdir: msg::rmdir::Rmdir => ops::rmdir::run;
    Rename: msg::rename::Rename => ops::rename::run;
    Open: msg::open::Open => ops::open::run;
    Close: msg::close::Close => ops::close::run;
    Readdir: msg::readdir::Readdir => ops::readdir::run;
    Getxattr: msg::getxattr::Getxattr => ops::getxattr::run;
    Setxattr: msg::setxattr::Setxattr => ops::setxattr::run;
    Listxattr: msg::listxattr::Listxattr => ops::listxattr::run;
    Removexattr: msg::removexattr::Removexattr => ops::removexattr::run;
    Setlayout: msg::setlayout::Setlayout => ops::setlayout::run;
    Getpath: msg::getpath::Getpath => ops::getpath::run;
    Allocseq: msg::allocseq::Allocseq => ops::allocseq::run;
    Read: msg::read::Read => ops::read::run;
    Write: msg::write::Write => ops::write::run;
    Seek: msg::seek::Seek => ops::seek::run;
    Fetch: msg::fetch::Fetch => ops::fetch::run;
    Ostfiles: msg::ostfiles::Ostfiles => ops::ostfiles::run;
    Fallocate: msg::fallocate::Fallocate => ops::fallocate::run;
}

/// Whose transaction it is, and where its reply is to be stored.
#[derive(Clone, Debug)]
pub struct ReplyTo {
    pub client: ClientId,
    pub slot: u16,
    pub xid: u64,
    pub author: Arc<Author>,
    /// The request is done again after a restart.
    pub replay: bool,
    /// Root of the client's host is not root here. What its mount keeps it shows to its own root: so it is granted nothing
    /// to keep, and asks each time.
    pub squashed: bool,
}

/// What an operation came to, before it is durable.
pub struct Done {
    pub result: Result<Vec<u8>, Errno>,
    /// Data that was read.
    pub bulk: Bytes,
    /// Of the transaction it made; 0 if it changed nothing.
    pub transno: u64,
    /// The newest transaction that it made or saw.
    pub wait: Lsn,
    /// What the answer depends on.
    pub seen: Seen,
    /// The answer waits until all of it is durable, whatever the target's `ack` says.
    pub durable: bool,
}

impl Done {
    pub fn error(e: Errno) -> Done {
        Done::looked(Err(e), Seen::default())
    }

    /// An answer that changed nothing.
    pub fn looked(result: Result<Vec<u8>, Errno>, seen: Seen) -> Done {
        Done { result, bulk: Bytes::new(), transno: 0, wait: seen.newest, seen, durable: false }
    }
}

impl Mdt {
    /// Runs a read-only operation of a client, which may be granted leases on what it sees. While other clients own
    /// what it looks at, it waits until they have told what they did, and runs again.
    pub(crate) async fn read(
        &self,
        to: &ReplyTo,
        mut f: impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno> + Send,
    ) -> Done {
        let mut marks = Marks::new(&self.shared.leases);
        loop {
            let wanted = match self.look(to, &mut f, &mut marks) {
                Ok(done) => return done,
                Err(wanted) => wanted,
            };
            assert!(!wanted.look.is_empty(), "a look waits for what others have of what it looked at");
            {
                // Not beside other looks: they grant what they were offered a moment ago.
                let _alone = self.core_write();
                marks.blocked(Some(to.client), &wanted);
            }
            if let Err(e) = self.await_cancels(Some(to.client), &wanted).await {
                return Done::error(e);
            }
        }
    }

    /// Runs it, unless others own what it looks at: then says what that is.
    fn look(
        &self,
        to: &ReplyTo,
        f: &mut impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno>,
        marks: &mut Marks,
    ) -> Result<Done, Wanted> {
        let core = self.core_read();
        marks.clear();
        let mut tx = self.begin(&core, Some(to), false);
        let result = f(&mut tx);
        let out = tx.finish();
        assert!(out.pending.is_empty() && out.changes.is_empty(), "a read-only operation wrote something");
        let wanted = Wanted { change: Touched::new(), look: out.looked };
        if marks.meets(Some(to.client), &wanted) {
            return Err(wanted);
        }
        if result.is_ok() {
            self.shared.leases.grant(to.client, &out.offers);
        }
        Ok(Done { bulk: out.bulk, ..Done::looked(result, out.seen) })
    }

    /// Runs an operation that may change something and submits its transaction, with the reply if it is a
    /// client's. A failed operation changes nothing. While other clients hold leases on what it would change, or own
    /// what it looks at, it waits for them, and runs again: on what is there by then.
    pub(crate) async fn transact(
        &self,
        to: Option<&ReplyTo>,
        f: impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno> + Send,
    ) -> Done {
        self.transact_by(to.map(|t| t.client), to, f).await
    }

    /// As [`Mdt::transact`], also without a reply: a client's own leases are not in its way.
    pub(crate) async fn transact_by(
        &self,
        by: Option<rpc::ClientId>,
        to: Option<&ReplyTo>,
        mut f: impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno> + Send,
    ) -> Done {
        let mut marks = Marks::new(&self.shared.leases);
        loop {
            let wanted = match self.attempt(by, to, &mut f, &mut marks) {
                Ok(done) => return done,
                Err(wanted) => wanted,
            };
            assert!(!wanted.is_nothing(), "a transaction waits for what others have of what it touches");
            if let Err(e) = self.await_cancels(by, &wanted).await {
                return Done::error(e);
            }
        }
    }

    /// Runs and submits it, unless other clients have leases: then says what it would change, which is marked.
    fn attempt(
        &self,
        by: Option<rpc::ClientId>,
        to: Option<&ReplyTo>,
        f: &mut impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno>,
        marks: &mut Marks,
    ) -> Result<Done, Wanted> {
        let mut core = self.core_write();
        marks.clear();
        if to.is_some_and(|t| !core.clients.contains_key(&t.client)) {
            return Ok(Done::error(Errno::ENOTCONN));
        }
        self.look_at_space();
        let mut tx = self.begin(&core, to, true);
        let result = f(&mut tx);
        let mut out = tx.finish();
        let mut wanted = Wanted { look: std::mem::take(&mut out.looked), ..Wanted::default() };
        if result.is_ok() {
            wanted.change = leases::touched(out.pending.keys());
            for (fid, bits) in std::mem::take(&mut out.claims) {
                *wanted.change.entry(fid).or_default() |= bits;
            }
        }
        // What is done again was allowed the first time, and others wait until it is done. What is reclaimed must not
        // wait for owners either: they tell nothing before recovery is over.
        let again = to.is_none_or(|t| t.replay) && self.recovery.recovering();
        if !again && marks.blocked(by, &wanted) {
            return Err(wanted);
        }
        match result {
            Ok(body) => Ok(self.commit(&mut core, to, body, out)),
            Err(e) => Ok(Done::looked(Err(e), out.seen)),
        }
    }

    /// Beside what is promised to owners. If it is low, they are promised nothing more.
    fn look_at_space(&self) {
        let promised = self.shared.leases.promised_bytes(None);
        let low = self.db.space_low_beside(promised);
        self.shared.space_low.store(low, Ordering::Relaxed);
        if low && promised > 0 {
            self.shed_owners();
        }
    }

    /// A transaction of a client's request, or of the server itself.
    fn begin<'a>(&'a self, core: &'a Core, to: Option<&ReplyTo>, modifies: bool) -> Tx<'a> {
        let watch = |tx: Tx<'a>| if self.watches(to.map(|t| t.client)) { tx.watching() } else { tx };
        let Some(t) = to else { return watch(Tx::new(self.db.view(), &core.opens, &self.shared)) };
        let tx = watch(Tx::new(self.db.view_for(&t.author), &core.opens, &self.shared));
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
        if !out.pending.is_empty() {
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
            for (k, v) in out.pending {
                if k[0] == key::OUTBOX && v.is_some() {
                    osts.extend(key::parse_outbox(&k).map(|(ost, _)| ost));
                }
                txn.writes.push((k, v));
            }
            let lsn = match self.db.submit(txn) {
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
            if let Some(Some(root)) = root {
                self.root_changed(&root);
            }
            for ost in osts {
                self.shared.osts.wake(ost);
            }
        }
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
            *crate::shared::lock(&self.shared.root_default) = i.default_layout;
        }
    }

    /// The answer, once it may be given: when what it shows of others is durable (with `ack=durable`, everything),
    /// and behind the answers to what its client did before.
    pub(crate) async fn answer(self: &Arc<Self>, done: Done, author: Arc<Author>) -> Outgoing {
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

    /// One request of a client.
    pub(crate) async fn serve(self: Arc<Self>, req: Incoming) -> Outgoing {
        if let Err(e) = self.recovery.admitted(req.from.client, req.op, req.replay.is_some()).await {
            return Outgoing::err(e);
        }
        let start = self.world.now();
        let map = self.nodemap(&req.from);
        let req = req.mapped(&map);
        let client = req.from.client;
        let ctx = OpContext {
            client,
            cred: req.ctx.cred.clone(),
            nodemap: map,
            now: self.shared.clamp_time(req.ctx.client_time, req.wall),
            wall: req.wall,
        };
        let durable = req.durable || self.shared.params.ack_durable();
        let author = self.db.author(client.0, durable);
        let to = ReplyTo {
            client,
            slot: req.slot,
            xid: req.xid,
            author: author.clone(),
            replay: req.replay.is_some(),
            squashed: ctx.nodemap.squashes_root(),
        };
        let mut done = match modifies(req.op) {
            Some(true) => self.change(&ctx, &to, &req).await,
            Some(false) => self.read(&to, |tx| execute(tx, &ctx, req.op, &req.body)).await,
            None => self.serve_other(&ctx, &to, &req).await,
        };
        if let (Some(r), Ok(body)) = (&req.replay, &mut done.result)
            && replayed::same(req.op, &r.reply, body)
        {
            *body = r.reply.to_vec();
        }
        // A sequence must never be leased twice, whoever loses his memory.
        done.durable |= durable || req.op == Op::Allocseq;
        drop(to);
        let out = self.answer(done, author).await;
        let us = u64::try_from(self.world.now().since(start).as_micros()).unwrap_or(u64::MAX);
        self.stats.count(req.op, &req.from, us, self.world.wall());
        out
    }

    /// One operation that may change something.
    async fn change(&self, ctx: &OpContext, to: &ReplyTo, req: &Incoming) -> Done {
        let work = |tx: &mut Tx| {
            if let Some(r) = &req.replay {
                tx.replay(req.op, &r.reply, self.recovery.recovering());
            }
            tx.bulk = req.bulk.clone();
            let body = execute(tx, ctx, req.op, &req.body)?;
            // What is stored is what its client has: it may ask once more after another restart.
            let first = req.replay.as_ref().filter(|r| replayed::same(req.op, &r.reply, &body));
            Ok(first.map_or(body, |r| r.reply.to_vec()))
        };
        self.settled(to, work).await
    }

    /// As [`Mdt::transact`]; waits while data that it concerns is on its way to objects, and while it is looked up where
    /// directories lie that are deep down.
    pub(crate) async fn settled(
        &self,
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
            let done = self.transact(Some(to), work).await;
            match done.result {
                Err(Errno::EGROWING) => {
                    let _ = ends.changed().await;
                }
                Err(Errno::EDEEP) if tries < TRIES_MAX => {
                    tries += 1;
                    if let Err(e) = self.climb(&mut ways).await {
                        return Done::error(e);
                    }
                }
                Err(Errno::EDEEP) => return Done::error(Errno::EBUSY),
                _ => return done,
            }
        }
    }

    /// Messages that are not plain operations on names and files.
    async fn serve_other(self: &Arc<Self>, ctx: &OpContext, to: &ReplyTo, req: &Incoming) -> Done {
        fn plain<R: serde::Serialize>(r: Result<R, Errno>) -> Done {
            Done::looked(r.map(|r| encode(&r)), Seen::default())
        }
        let replay = req.replay.as_ref().map(|r| (&r.reply[..], self.recovery.recovering()));
        macro_rules! with {
            ($m:ident => $call:expr) => {
                match decode(&req.body) {
                    Ok($m) => $call,
                    Err(e) => Done::error(e),
                }
            };
        }
        match req.op {
            Op::Ping => with!(m => plain(ops::ping::run(m))),
            Op::Disconnect => with!(m => plain(ops::disconnect::run(m))),
            Op::Batch => with!(m => ops::batch::serve(self, ctx, to, req, &m).await),
            Op::Own => with!(m => self.transact(Some(to), |tx| ops::own::run(self, tx, ctx, &m)).await),
            Op::Statfs => with!(m => plain(ops::statfs::run(self, m))),
            Op::GetParam => with!(m => plain(ops::param::get(self, m))),
            Op::SetParam => with!(m => plain(ops::param::set(self, m).await)),
            Op::Enqueue => with!(m => plain(ops::enqueue::run(self, ctx, m))),
            Op::Cancel => with!(m => plain(ops::cancel::run(self, ctx, m))),
            Op::Getlock => with!(m => plain(ops::getlock::run(self, ctx, m))),
            Op::Sync => with!(m => ops::sync::run(self, m)),
            Op::Reclaim => with!(m => ops::reclaim::run(self, ctx, m).await),
            Op::Grow => with!(m => ops::grow::run(self, to, m, replay).await),
            _ => Done::error(Errno::EOPNOTSUPP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of the metadata target that are served without a transaction of `execute`.
    const OTHER: &[Op] = &[
        Op::Ping,
        Op::Disconnect,
        Op::Batch,
        Op::Own,
        Op::Statfs,
        Op::GetParam,
        Op::SetParam,
        Op::Enqueue,
        Op::Cancel,
        Op::Getlock,
        Op::Reclaim,
        Op::Grow,
        Op::Sync,
    ];
    /// Of an object server's messages those that concern data with the inode.
    const DATA: &[Op] = &[Op::Read, Op::Write, Op::Seek, Op::Fallocate];

    #[test]
    fn every_message_of_the_metadata_target_has_its_file_and_its_handler() {
        let files = include_str!("ops/mod.rs");
        let here = |o: &Op| (*o as u16) < 80 || OTHER.contains(o) || DATA.contains(o);
        for &op in Op::ALL.iter().filter(|o| here(o)) {
            let verb = match op {
                Op::GetParam | Op::SetParam => "param".to_string(),
                op => format!("{op:?}").to_lowercase(),
            };
            assert!(files.contains(&format!("pub mod {verb};")), "no ops/{verb}.rs for {op:?}");
            assert!(modifies(op).is_some() != OTHER.contains(&op), "{op:?} has no handler, or two");
        }
        for &op in Op::ALL.iter().filter(|o| !here(o)) {
            assert!(modifies(op).is_none() && !OTHER.contains(&op), "{op:?} belongs elsewhere");
        }
    }
}
