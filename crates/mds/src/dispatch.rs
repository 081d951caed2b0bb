//! From a request to its operation and back.

use crate::changelog::Change;
use crate::done::{Done, ReplyTo};
use crate::labels;
use crate::mdt::Mdt;
use crate::names::OpContext;
use crate::quotas::Moving;
use crate::transact::answer;
use crate::tx::Tx;
use crate::verbs::{execute, modifies};
use crate::{jobs, ops, replayed};
use model::changelog::{Origin, RecordKind};
use model::{Errno, Fid, Nid};
use rpc::{Incoming, Outgoing};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use store::Seen;
use wire::msg::getxattr::Getxattr;
use wire::msg::open::Open;
use wire::{Op, decode_message, decode_request, encode_message};

/// How often a tree is counted anew before it is moved: others may move something into it meanwhile.
const RELABELS_MAX: usize = 16;

impl Mdt {
    /// One request of a client.
    pub(crate) async fn serve(self: Arc<Self>, req: Incoming) -> Outgoing {
        if let Err(e) = self.recovery.admitted(req.from.client, req.op, req.replay.is_some()).await {
            return Outgoing::err(e);
        }
        let start = self.world.now();
        let map = self.shared.settings.nodemap(&req.from);
        let req = req.mapped(&map);
        let client = req.from.client;
        let ctx = OpContext {
            client,
            cred: req.ctx.cred.clone(),
            nodemap: map,
            now: self.shared.time_of(&req.ctx, req.wall),
            wall: req.wall,
        };
        let durable = req.durable || self.shared.settings.ack_durable.load(Relaxed);
        let author = self.db.author(client.0, durable);
        let to = ReplyTo {
            client,
            slot: req.slot,
            xid: req.xid,
            author: author.clone(),
            replay: req.replay.is_some(),
            squashed: ctx.nodemap.squashes_root(),
            origin: Arc::new(origin(&req)),
        };
        let mut done = match modifies(req.op) {
            Some(true) => self.change(&ctx, &to, &req).await,
            Some(false) => self.transactions.read(&to, |tx| execute(tx, &ctx, req.op, &req.body)).await,
            None => self.serve_other(&ctx, &to, &req).await,
        };
        if let (Some(r), Ok(body)) = (&req.replay, &mut done.result)
            && replayed::same(req.op, &r.reply, body)
        {
            *body = r.reply.to_vec();
        }
        tell_of_looks(&self, &ctx, &to, &req, done.result.as_ref().err()).await;
        // A sequence must never be leased twice, whoever loses his memory.
        done.durable |= durable || req.op == Op::Allocseq;
        drop(to);
        let out = answer(done, author).await;
        let us = u64::try_from(self.world.now().since(start).as_micros()).unwrap_or(u64::MAX);
        self.stats.count([req.op], &req.from, us, || self.world.wall());
        let bytes = req.bulk.len().max(out.bulk.len()) as u64;
        let done = jobs::Done { op: req.op, body: &req.body, us, bytes, opens: true };
        jobs::count(&self.stats.jobs, &req.ctx.jobid, &done, || self.world.wall());
        out
    }

    /// One operation that may change something.
    async fn change(&self, ctx: &OpContext, to: &ReplyTo, req: &Incoming) -> Done {
        let mut moving = Vec::new();
        for _ in 0..RELABELS_MAX {
            let mut tree = None;
            let done = self
                .transactions
                .within_shares(to, |tx| execute_one(tx, ctx, (req, self.recovery.recovering()), &mut tree))
                .await;
            let Some((fid, label)) = tree.filter(|_| done.result == Err(Errno::ERELABEL)) else {
                if done.result.is_ok() {
                    moving.iter().for_each(Moving::moved);
                }
                return done;
            };
            match labels::before_move(self, ctx, fid, label).await {
                Ok(m) => moving.push(m),
                Err(e) => return Done::error(e),
            }
        }
        Done::error(Errno::EBUSY)
    }

    /// Messages that are not plain operations on names and files.
    async fn serve_other(self: &Arc<Self>, ctx: &OpContext, to: &ReplyTo, req: &Incoming) -> Done {
        fn plain<R: serde::Serialize>(r: Result<R, Errno>) -> Done {
            Done::looked(r.map(|r| encode_message(&r)), Seen::default())
        }
        let replay = req.replay.as_ref().map(|r| (&r.reply[..], self.recovery.recovering()));
        macro_rules! with {
            ($m:ident => $call:expr) => {
                match decode_request(&req.body) {
                    Ok($m) => $call,
                    Err(e) => Done::error(e),
                }
            };
        }
        match req.op {
            Op::Ping => with!(m => plain(ops::ping::run(m))),
            Op::Disconnect => with!(m => plain(ops::disconnect::run(m))),
            Op::Batch => with!(m => ops::batch::serve(self, ctx, to, req, &m).await),
            Op::Own => {
                with!(m => self.transactions.transact(Some(to), |tx| ops::own::run(self, tx, ctx, &m)).await)
            }
            Op::Statfs => with!(m => plain(ops::statfs::run(self, m))),
            Op::Quotactl => with!(m => plain(ops::quotactl::run(self, ctx, m).await)),
            Op::GetParam => with!(m => plain(ops::param::get(self, m))),
            Op::SetParam => with!(m => plain(ops::param::set(self, m).await)),
            Op::Enqueue => with!(m => plain(ops::enqueue::run(self, ctx, m))),
            Op::Cancel => with!(m => plain(ops::cancel::run(self, ctx, m))),
            Op::Getlock => with!(m => plain(ops::getlock::run(self, ctx, m))),
            Op::Sync => with!(m => ops::sync::run(self, m)),
            Op::Reclaim => with!(m => ops::reclaim::run(self, ctx, m).await),
            Op::Grow => with!(m => ops::grow::run(self, to, m, replay).await),
            Op::Layout => with!(m => ops::layout::run(self, to, &m).await),
            Op::Instantiate => with!(m => ops::instantiate::run(self, to, m).await),
            Op::Components => with!(m => ops::components::run(self, to, ctx, &m).await),
            Op::Recreate => with!(m => ops::recreate::run(self, to, ctx, &m).await),
            Op::Swap => with!(m => ops::swap::run(self, to, ctx, &m).await),
            Op::Migrate => with!(m => ops::migrate::run(self, to, ctx, &m).await),
            Op::Scan => with!(m => ops::scan::run(self, ctx, to, &m).await),
            Op::Withdraw => with!(m => plain(ops::withdraw::run(self, ctx, &m))),
            Op::Acquire => with!(m => plain(ops::acquire::run(self, &m).await)),
            Op::Makeroom => with!(m => plain(ops::makeroom::run(self, &m).await)),
            Op::Quotadir => with!(m => ops::quotadir::run(self, to, ctx, m).await),
            Op::Setquota => with!(m => ops::setquota::run(self, to, ctx, &m).await),
            Op::Trashdir => with!(m => ops::trashdir::run(self, to, ctx, m).await),
            Op::Trashtake => with!(m => ops::trashtake::run(self, to, ctx, &m).await),
            Op::Changelog => with!(m => ops::changelog::run(self, ctx, to, &m).await),
            _ => Done::error(Errno::EOPNOTSUPP),
        }
    }
}

/// Within its transaction. `tree`: what has to be counted elsewhere before it moves.
fn execute_one(
    tx: &mut Tx,
    ctx: &OpContext,
    (req, recovering): (&Incoming, bool),
    tree: &mut Option<(Fid, u32)>,
) -> Result<Vec<u8>, Errno> {
    if let Some(r) = &req.replay {
        tx.replay(req.op, &r.reply, recovering);
    }
    tx.bulk = req.bulk.clone();
    let result = execute(tx, ctx, req.op, &req.body);
    *tree = tx.relabel.take();
    let body = result?;
    // What is stored is what its client has: it may ask once more after another restart.
    let first = req.replay.as_ref().filter(|r| replayed::same(req.op, &r.reply, &body));
    Ok(first.map_or(body, |r| r.reply.to_vec()))
}

/// Of what only looked, or was denied, there is a record of its own, if a consumer wants to know.
async fn tell_of_looks(mdt: &Mdt, ctx: &OpContext, to: &ReplyTo, req: &Incoming, failed: Option<&Errno>) {
    let log = &mdt.shared.changelog;
    let denied = failed == Some(&Errno::EACCES) && log.wants(RecordKind::DeniedOpen);
    let mut work: Box<dyn FnMut(&mut Tx) + Send> = match req.op {
        Op::Getxattr if failed.is_none() && log.wants(RecordKind::Getxattr) => {
            let Ok(m) = decode_message::<Getxattr>(&req.body) else { return };
            let now = ctx.now;
            Box::new(move |tx| {
                tx.notes.add(now, Change::of(RecordKind::Getxattr, m.fid).xattr(&m.name));
            })
        }
        Op::Open if denied => {
            let Ok(m) = decode_message::<Open>(&req.body) else { return };
            if !log.denied.is_new(ctx.cred.uid, m.fid, ctx.wall) {
                return;
            }
            let now = ctx.now;
            Box::new(move |tx| tx.notes.add_denied_open(now, m.fid, m.open.flags))
        }
        _ => return,
    };
    let told = mdt.transactions.transact(None, |tx| {
        tx.notes.set_origin(&to.origin);
        work(tx);
        Ok(Vec::new())
    });
    if let Err(e) = told.await.result {
        tracing::error!("a look at a file is missing in the changelog: {e}");
    }
}

/// Who asks, as the changelog says it.
fn origin(req: &Incoming) -> Origin {
    let nid = Nid { addr: req.from.address, net: 0 };
    Origin::new(req.ctx.cred.uid, req.ctx.cred.gid, nid, &req.ctx.jobid)
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
        Op::Quotactl,
        Op::GetParam,
        Op::SetParam,
        Op::Enqueue,
        Op::Cancel,
        Op::Getlock,
        Op::Reclaim,
        Op::Grow,
        Op::Layout,
        Op::Instantiate,
        Op::Components,
        Op::Recreate,
        Op::Swap,
        Op::Migrate,
        Op::Scan,
        Op::Withdraw,
        Op::Acquire,
        Op::Makeroom,
        Op::Setquota,
        Op::Quotadir,
        Op::Changelog,
        Op::Trashdir,
        Op::Trashtake,
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
