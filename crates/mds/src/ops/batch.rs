//! batch: many small operations in one message and one transaction. They run in order; the first that fails
//! stops the rest, those before it stand. An owner's have all been answered to its applications: one that
//! fails does not stop the others.

use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::names::OpContext;
use crate::tx::Tx;
use crate::{jobs, replayed, verbs};
use bytes::Bytes;
use model::nodemap::Nodemap;
use model::{Errno, Timestamp, limits};
use rpc::Incoming;
use std::time::Duration;
use wire::msg::batch::{Batch, BatchOp, BatchReply, jobs_of};
use wire::{Op, decode_message, encode_message};

/// When the results are larger than this no further operation runs: the reply must fit into a message and
/// the transaction into a record.
const RESULTS_MAX_BYTES: usize = 1 << 20;

/// What the batch came to when it was done first, if it is done again.
struct Before {
    results: Vec<(u16, Vec<u8>)>,
    recovering: bool,
}

impl Before {
    fn of(mdt: &Mdt, req: &Incoming) -> Option<Before> {
        let reply = &req.replay.as_ref()?.reply;
        let results = decode_message::<BatchReply>(reply).map(|b| b.results).unwrap_or_default();
        Some(Before { results, recovering: mdt.recovery.recovering() })
    }
}

pub async fn serve(mdt: &Mdt, ctx: &OpContext, to: &ReplyTo, req: &Incoming, m: &Batch) -> Done {
    if m.ops.len() > limits::BATCH_OPS_MAX {
        return Done::error(Errno::E2BIG);
    }
    let bulks = match bulks(m, &req.bulk) {
        Ok(b) => b,
        Err(e) => return Done::error(e),
    };
    let before = Before::of(mdt, req);
    let jobs = jobs_of(&req.ctx, m.ops.len());
    assert_eq!(jobs.len(), bulks.len(), "each operation has its job and its data");
    let work = |tx: &mut Tx| {
        let reply = run(tx, ctx, m, (&bulks, &jobs), before.as_ref())?;
        // Whose client has it done again has the first answer.
        Ok(req
            .replay
            .as_ref()
            .filter(|_| m.owned)
            .map_or_else(|| encode_message(&reply), |r| r.reply.to_vec()))
    };
    let tells = |now| {
        if m.owned {
            mdt.shared.leases.tells(ctx.client, now);
        }
    };
    let start = mdt.world.now();
    tells(start);
    let done = mdt.transactions.within_shares(to, work).await;
    tells(mdt.world.now());
    if done.result.is_ok() {
        count(mdt, req, m, mdt.world.now().since(start));
    }
    done
}

/// Who watches a server wants to see what was done there, not how it was sent.
fn count(mdt: &Mdt, req: &Incoming, m: &Batch, took: Duration) {
    let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let each = took.checked_div(m.ops.len() as u64).unwrap_or(took);
    let ops = m.ops.iter().filter_map(|op| Op::from_u16(op.opcode).ok());
    mdt.stats.count(ops, &req.from, each, || mdt.world.wall());
    jobs::count_batch(&mdt.stats.jobs, &req.ctx, m, each, || mdt.world.wall());
}

/// Each operation's part of the data. `EPROTO` if they do not make up the whole.
fn bulks(m: &Batch, bulk: &Bytes) -> Result<Vec<Bytes>, Errno> {
    let mut rest = bulk.clone();
    let mut out = Vec::with_capacity(m.ops.len());
    for op in &m.ops {
        let len = op.bulk as usize;
        if len > rest.len() {
            return Err(Errno::EPROTO);
        }
        out.push(rest.split_to(len));
    }
    if rest.is_empty() { Ok(out) } else { Err(Errno::EPROTO) }
}

/// On whose behalf, and when.
fn context(tx: &Tx, ctx: &OpContext, m: &Batch, op: &BatchOp) -> Result<OpContext, Errno> {
    let mut own = ctx.clone();
    if !m.creds.is_empty() {
        let cred = m.creds.get(usize::from(op.cred)).ok_or(Errno::EPROTO)?;
        // What an owner tells was done, as whoever it was, before it had to give the directory back.
        let done = m.owned && tx.shared.leases.is_owner(ctx.client);
        let map = if done { &Nodemap::IDENTITY } else { &ctx.nodemap };
        own.cred = map.cred(cred);
    }
    if op.time != Timestamp::ZERO {
        own.now = tx.shared.clamp_time(op.time, ctx.wall);
    }
    Ok(own)
}

fn run(
    tx: &mut Tx,
    ctx: &OpContext,
    m: &Batch,
    (bulks, jobs): (&[Bytes], &[&str]),
    before: Option<&Before>,
) -> Result<BatchReply, Errno> {
    if m.owned {
        tx.own();
    }
    let mut reply = BatchReply { results: Vec::new(), grants: Vec::new() };
    let mut bytes = 0;
    for (i, ((op, bulk), job)) in m.ops.iter().zip(bulks).zip(jobs).enumerate() {
        let first = before.and_then(|b| b.results.get(i));
        if let Some((status, _)) = first.filter(|(status, _)| m.owned && *status != 0) {
            reply.results.push((*status, Vec::new()));
            continue;
        }
        let start = tx.savepoint();
        match single(
            tx,
            ctx,
            m,
            op,
            (bulk, job),
            before.map(|b| (first.map_or(&[][..], |(_, r)| r), b.recovering)),
        ) {
            Ok(_) if m.owned => reply.results.push((0, Vec::new())),
            Ok(body) => {
                // What a client has that has it done again stays what it has, if it says the same.
                let same = |(status, was): &&(u16, Vec<u8>)| {
                    *status == 0 && Op::from_u16(op.opcode).is_ok_and(|o| replayed::same(o, was, &body))
                };
                let body = if let Some((_, was)) = first.filter(same) { was.clone() } else { body };
                bytes = body.len().saturating_add(8).saturating_add(bytes);
                reply.results.push((0, body));
            }
            // Its file is on its way to objects, it wants to know a long way, or a share is used up: all of
            // it waits.
            Err(e @ (Errno::EGROWING | Errno::EDEEP | Errno::ESHARE)) => return Err(e),
            Err(e) => {
                tx.rollback(start);
                reply.results.push((u16::try_from(e.0).unwrap_or(Errno::EIO.0 as u16), Vec::new()));
                if !m.owned {
                    break;
                }
                tracing::error!(
                    "client {}: operation {i} ({}) of what it has done already fails: {e}",
                    ctx.client,
                    op.opcode
                );
            }
        }
        if bytes > RESULTS_MAX_BYTES {
            break;
        }
    }
    tx.bulk = Bytes::new();
    if m.owned {
        assert_eq!(reply.results.len(), m.ops.len(), "an owner is told what became of each operation");
        reply.grants = tx.grant_made()?;
    }
    Ok(reply)
}

/// One of them. `first`: what it answered the first time, and whether recovery is going on.
fn single(
    tx: &mut Tx,
    ctx: &OpContext,
    m: &Batch,
    op: &BatchOp,
    (bulk, job): (&Bytes, &str),
    first: Option<(&[u8], bool)>,
) -> Result<Vec<u8>, Errno> {
    let code = Op::from_u16(op.opcode).map_err(|_| Errno::EOPNOTSUPP)?;
    if let Some((reply, recovering)) = first {
        tx.replay(code, reply, recovering);
    }
    tx.bulk = bulk.clone();
    let ctx = context(tx, ctx, m, op)?;
    tx.notes.on_behalf(&ctx.cred, job);
    // A tree that has to be counted anew first goes by itself, or is copied.
    verbs::execute(tx, &ctx, code, &op.body).map_err(|e| if e == Errno::ERELABEL { Errno::EXDEV } else { e })
}
