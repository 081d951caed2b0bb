//! Two files have each other's data (`lfs swap_layouts`), while both are in use. Nothing is copied: their
//! layouts change places, newer than both were.
//!
//! The objects of both are fenced first at the new generation, so that nothing that was meant for one file
//! gets to the other by a layout from before. What is written down meanwhile is each file's own layout at
//! that generation: whoever settles an attempt that came to nothing, also after a crash, gives up no object.
//! Then each object gets the name of its new file, and the times that this file shows; then one transaction
//! gives both files their layouts.

use super::copy::fence_patience;
use super::{
    Begun, Frozen, TRIES, WITHOUT_DATA, begun, last_times, lay_out, movable, next_component, of_owner,
    session, settle,
};
use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::names::{self, OpContext};
use crate::schema::Inode;
use crate::tx::Tx;
use bytes::Bytes;
use model::layout::LayoutObject;
use model::perm::{self, FLAG_APPEND, FLAG_IMMUTABLE};
use model::{Errno, Fid, FileType, Layout, ObjectAttr, Timestamp, inode_rules};
use rpc::Terms;
use std::sync::Arc;
use std::time::Duration;
use wire::encode_message;
use wire::msg::fence::Fence;
use wire::msg::swap::Swap;
use world::future::join_all;
use world::{BoxFuture, Either, select};

/// (mtime, ctime).
type Times = (Timestamp, Timestamp);

/// One of the two as it was when it was frozen.
struct Side {
    fid: Fid,
    inode: Inode,
    /// Its own, at the new generation.
    layout: Layout,
    _frozen: Frozen,
}

/// Swaps; the answer is the first file with its layout, and is durable. `EINVAL` for what is no regular file
/// or the same twice, `EPERM` for who may not change both, or if they have different owners, `ENODATA` for a
/// file without a layout, `EOPNOTSUPP` for one whose data lies with its inode, `EBUSY` if others do not let
/// go of their objects.
pub async fn swap(mdt: &Arc<Mdt>, to: &ReplyTo, ctx: &OpContext, m: &Swap) -> Result<Done, Errno> {
    let mut tries = 0;
    loop {
        let sides = match begun(mdt, |tx| begin(mdt, tx, ctx, m)).await? {
            Begun::Now(sides) => sides,
            Begun::Later => continue,
            Begun::Refused(done) => return Ok(done),
        };
        let mut times = [None; 2];
        let failed = match fence(mdt, &sides, &mut times).await {
            Ok(()) => {
                let done = mdt.transactions.transact(Some(to), |tx| switch(tx, ctx, m, &sides)).await;
                match done.result {
                    Ok(_) => return Ok(Done { durable: true, ..done }),
                    Err(e) => e,
                }
            }
            Err(e) => e,
        };
        if failed == Errno::ESHUTDOWN {
            return Err(failed);
        }
        give_back(mdt, &sides, times).await;
        let left = mdt.transactions.transact(None, |tx| give_up(tx, &sides)).await;
        tries += 1;
        if tries >= TRIES || left.result.is_err() || failed == Errno::ESTALE {
            return Err(failed);
        }
        tracing::warn!("{} and {} could not swap their data: {failed}; trying again", m.fid, m.other);
    }
}

/// A file that can be swapped by the caller, with nothing left of former attempts. The inode is the caller's
/// to write.
fn swappable(tx: &mut Tx, ctx: &OpContext, fid: Fid) -> Result<Inode, Errno> {
    let mut i = movable(tx, fid)?;
    if i.kind != FileType::Regular {
        return Err(Errno::EINVAL);
    }
    if !perm::owns(&ctx.cred, i.uid) || i.flags & (FLAG_IMMUTABLE | FLAG_APPEND) != 0 {
        return Err(Errno::EPERM);
    }
    settle(tx, fid, &mut i);
    let layout = i.layout.as_ref().ok_or(Errno::ENODATA)?;
    if layout.has_objects() { Ok(i) } else { Err(Errno::EOPNOTSUPP) }
}

fn begin(mdt: &Arc<Mdt>, tx: &mut Tx, ctx: &OpContext, m: &Swap) -> Result<[Side; 2], Errno> {
    if m.fid == m.other {
        return Err(Errno::EINVAL);
    }
    let (a, b) = (swappable(tx, ctx, m.fid)?, swappable(tx, ctx, m.other)?);
    if (a.uid, a.gid) != (b.uid, b.gid) {
        return Err(Errno::EPERM);
    }
    tx.check_space()?;
    let layout = |i: &Inode| i.layout.clone().expect("looked at by swappable");
    let newest = layout(&a).generation.max(layout(&b).generation);
    let generation = newest.checked_add(1).ok_or(Errno::EOVERFLOW)?;
    let mut side = |fid: Fid, mut inode: Inode| {
        let layout = Layout { generation, ..layout(&inode) };
        assert!(inode.growth.target.is_none(), "the attempt before this one on {fid} is settled");
        inode.growth.target = Some(layout.clone());
        tx.put_inode(fid, &mut inode);
        Side { fid, inode, layout, _frozen: Frozen::new(mdt, tx, fid) }
    };
    Ok([side(m.fid, a), side(m.other, b)])
}

/// Nobody reaches an object by a layout from before afterwards, and each is the other file's, as old as that.
/// `times`: what they were, as soon as that is known.
async fn fence(mdt: &Arc<Mdt>, [a, b]: &[Side; 2], times: &mut [Option<Times>; 2]) -> Result<(), Errno> {
    let all = async {
        // With what clients keep: the times are right then.
        let (of_a, of_b) = (fence_one(mdt, a, a, None).await?, fence_one(mdt, b, b, None).await?);
        *times = [last_times(&of_a), last_times(&of_b)];
        fence_one(mdt, a, b, times[1]).await?;
        fence_one(mdt, b, a, times[0]).await.map(drop)
    };
    match select(Box::pin(all), mdt.stop.pause(patience([a, b]))).await {
        Either::Left(r) => r,
        Either::Right(true) => Err(Errno::ESHUTDOWN),
        Either::Right(false) => Err(Errno::EBUSY),
    }
}

/// How long those who have locks on the objects of these may take to let go of them.
fn patience<const N: usize>(sides: [&Side; N]) -> Duration {
    fence_patience(sides.iter().map(|s| s.layout.object_count()).sum())
}

/// Of an attempt that came to nothing: each object is its old file's again. If that fails as well, it says so
/// to who checks the file system, until it is written.
async fn give_back(mdt: &Arc<Mdt>, sides: &[Side; 2], times: [Option<Times>; 2]) {
    // Not before the times were known did any become the other file's.
    for (side, times) in sides.iter().zip(times).filter(|(_, t)| t.is_some()) {
        let given =
            select(Box::pin(fence_one(mdt, side, side, times)), mdt.stop.pause(patience([side]))).await;
        if !matches!(given, Either::Left(Ok(_))) {
            tracing::warn!("objects of {} may say that they are another file's", side.fid);
        }
    }
}

/// Fences the objects of `from` at its layout's generation, for `owner`, with these times.
async fn fence_one(
    mdt: &Arc<Mdt>,
    from: &Side,
    owner: &Side,
    times: Option<Times>,
) -> Result<Vec<ObjectAttr>, Errno> {
    let generation = from.layout.generation;
    let fences = from.layout.objects().map(|o: &LayoutObject| -> BoxFuture<Result<ObjectAttr, Errno>> {
        let (import, ctx) = (session(mdt, o), of_owner(&owner.inode, generation));
        let msg = Fence { object: o.id, file: owner.fid, generation, times };
        Box::pin(async move { Ok(import?.call_with(ctx, msg, Bytes::new(), Terms::default()).await?.reply) })
    });
    join_all(fences.collect()).await.into_iter().collect()
}

fn give_up(tx: &mut Tx, sides: &[Side; 2]) -> Result<Vec<u8>, Errno> {
    for side in sides {
        super::give_up(tx, side.fid)?;
    }
    Ok(Vec::new())
}

/// The one step in which both files have their new data. `ESTALE` if one of them is gone.
fn switch(tx: &mut Tx, ctx: &OpContext, m: &Swap, [a, b]: &[Side; 2]) -> Result<Vec<u8>, Errno> {
    let mut inodes = [tx.try_inode(a.fid)?.ok_or(Errno::ESTALE)?, tx.try_inode(b.fid)?.ok_or(Errno::ESTALE)?];
    // Objects go from one file to the other, and what was said of them as of an earlier moment with them.
    let newest = inodes.iter().map(|i| i.ctime).fold(ctx.now, Timestamp::max);
    for ((i, side), other) in inodes.iter_mut().zip([a, b]).zip([b, a]) {
        assert_eq!(i.growth.target.as_ref(), Some(&side.layout), "{} goes elsewhere", side.fid);
        assert_eq!(i.layout, side.inode.layout, "the layout of {} changed while it was frozen", side.fid);
        if m.keep_times {
            i.touch_ctime(ctx.now);
        } else {
            inode_rules::touch_mtime(i, ctx.now);
        }
        i.touch_ctime(newest);
        let new = taken_over(i, &other.layout);
        lay_out(tx, side.fid, i, new);
    }
    if inodes[0].owner() != inodes[1].owner() {
        tx.tell_owner(a.fid, &inodes[0]);
        tx.tell_owner(b.fid, &inodes[1]);
    }
    Ok(encode_message(&names::entry(tx, a.fid, &inodes[0])))
}

/// The other file's layout for this one. Components without objects get ids of this file: objects that they
/// get later are named by these, and those of the other may have been given here before.
fn taken_over(i: &Inode, other: &Layout) -> Layout {
    let mut new = other.clone();
    // Ids of files that grew without data are large: others stay below.
    let numbered = new.components.iter().map(|c| c.id).filter(|id| id & WITHOUT_DATA == 0);
    let first = numbered.max().map_or(1, |id| id + 1).max(next_component(i));
    let bare = new.components.iter_mut().filter(|c| c.objects.is_empty());
    bare.zip(first..).for_each(|(c, id)| c.id = id);
    let mut ids: Vec<u32> = new.components.iter().map(|c| c.id).collect();
    ids.sort_unstable();
    assert!(ids.windows(2).all(|w| w[0] != w[1]), "a component id stands in a layout once");
    new
}
