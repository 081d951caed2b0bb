//! reclaim: after this server's restart a client says what it had: open files and locks.

use crate::done::Done;
use crate::mdt::Mdt;
use crate::names::OpContext;
use crate::opens::Open;
use crate::tx::Tx;
use model::Errno;
use std::sync::Arc;
use wire::encode_message;
use wire::msg::reclaim::{Reclaim, ReclaimReply};

pub async fn run(mdt: &Arc<Mdt>, ctx: &OpContext, m: Reclaim) -> Done {
    if !mdt.core.read().clients.contains_key(&ctx.client) {
        return Done::error(Errno::ENOTCONN);
    }
    let mut reply = ReclaimReply { lost_opens: Vec::new(), lost_locks: Vec::new() };
    let held = if m.last { mdt.core.read().opens.of_client(ctx.client) } else { Vec::new() };
    let work = |tx: &mut Tx| {
        reply.lost_opens = opens(tx, ctx, &m);
        let said = m.opens.iter().filter(|_| m.last).map(|o| (o.handle, o.fid));
        for (handle, fid) in held.iter().map(|(h, o)| (*h, o.fid)).chain(said) {
            if tx.try_inode(fid)?.is_none() {
                tx.remove_open(ctx.client, handle)?;
                reply.lost_opens.push(handle);
            }
        }
        Ok(Vec::new())
    };
    let mut done = mdt.transactions.transact_by(Some(ctx.client), None, work).await;
    if done.result.is_err() {
        return done;
    }
    // Leases are granted beside no other request.
    let alone = mdt.core.write();
    // Only who was a client before the restart can have owned anything then.
    let member = mdt.recovery.is_member(ctx.client);
    for item in m.owned.iter().filter(|_| member) {
        if !mdt.shared.leases.reclaim(ctx.client, item) {
            tracing::error!(
                "client {}: what it owned of {} cannot be granted again: what it did there and did not send is lost",
                ctx.client,
                item.fid
            );
        }
    }
    drop(alone);
    reply.lost_locks = mdt.locks.reclaim(ctx.client, &m.locks);
    if m.last {
        let late = !mdt.recovery.recovering();
        mdt.recovery.ended(ctx.client);
        if late {
            // Others were not kept waiting for it: what it left behind without a name goes now.
            let me = mdt.clone();
            mdt.world.spawn("mdt orphans", me.purge_orphans());
        }
    }
    done.result = Ok(encode_message(&reply));
    done
}

/// Registers what is open; permission was checked when it was opened. The file may be one that the client is
/// about to make again: whether it is there is seen at the end. Returns the handles that cannot be had.
fn opens(tx: &mut Tx, ctx: &OpContext, m: &Reclaim) -> Vec<u64> {
    let mut lost = Vec::new();
    for o in &m.opens {
        if tx.add_open(ctx.client, o.handle, Open { fid: o.fid, flags: o.flags }).is_err() {
            lost.push(o.handle);
        }
    }
    lost
}
