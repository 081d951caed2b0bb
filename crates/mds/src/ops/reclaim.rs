//! reclaim: after this server's restart a client says what it had: open files and locks.

use crate::dispatch::{Done, encode};
use crate::names::OpContext;
use crate::opens::Open;
use crate::service::Mdt;
use crate::shared::lock;
use crate::tx::Tx;
use model::Errno;
use std::sync::Arc;
use wire::msg::reclaim::{Reclaim, ReclaimReply};

pub async fn run(mdt: &Arc<Mdt>, ctx: &OpContext, m: Reclaim) -> Done {
    if !mdt.core_read().clients.contains_key(&ctx.client) {
        return Done::error(Errno::ENOTCONN);
    }
    let mut reply = ReclaimReply { lost_opens: Vec::new(), lost_locks: Vec::new() };
    let work = |tx: &mut Tx| {
        reply.lost_opens = opens(tx, ctx, &m)?;
        Ok(Vec::new())
    };
    let mut done = mdt.transact(None, work).await;
    if done.result.is_err() {
        return done;
    }
    {
        let mut locks = lock(&mdt.locks);
        reply.lost_locks = m.locks.iter().filter(|l| !locks.reclaim(ctx.client.0, l)).map(|l| l.id).collect();
    }
    if m.last {
        mdt.recovery.ended(ctx.client);
    }
    done.result = Ok(encode(&reply));
    done
}

/// Registers what is still there; permission was checked when it was opened. Returns the handles of files
/// that are gone.
fn opens(tx: &mut Tx, ctx: &OpContext, m: &Reclaim) -> Result<Vec<u64>, Errno> {
    let mut lost = Vec::new();
    for o in &m.opens {
        let there = tx.try_inode(o.fid)?.is_some();
        if !there || tx.add_open(ctx.client, o.handle, Open { fid: o.fid, flags: o.flags }).is_err() {
            lost.push(o.handle);
        }
    }
    Ok(lost)
}
