//! quotadir: which directories have a quota.

use crate::ancestors::leads_through;
use crate::done::{Done, ReplyTo};
use crate::labels;
use crate::mdt::Mdt;
use crate::names::OpContext;
use crate::schema::directories::DirectoryQuota;
use crate::schema::{key, value};
use crate::shared::Shared;
use crate::tx::Tx;
use model::limits::DIRECTORY_QUOTAS_MAX;
use model::{Errno, Fid};
use std::sync::Arc;
use store::Seen;
use wire::encode_message;
use wire::msg::quotadir::{Quotadir, QuotadirEntry, QuotadirReply};

/// Directories in one answer.
const ANSWER_MAX: usize = 1000;

/// `EPERM` for what is root's; as [`Quotadir`] says.
pub async fn run(mdt: &Arc<Mdt>, to: &ReplyTo, ctx: &OpContext, m: Quotadir) -> Done {
    if !ctx.cred.is_root() && !matches!(m, Quotadir::Around(_)) {
        return Done::error(Errno::EPERM);
    }
    let shared = &mdt.shared;
    match m {
        Quotadir::Around(fid) => mdt.transactions.read(to, |tx| around(tx, fid)).await,
        Quotadir::List { after } => Done::looked(Ok(encode_message(&list(shared, after))), Seen::default()),
        Quotadir::Add(fid) => added(mdt, to, ctx, fid).await,
        Quotadir::Remove(fid) => changed(mdt, to, |tx| remove(tx, ctx, fid)).await,
    }
}

async fn changed(
    mdt: &Arc<Mdt>,
    to: &ReplyTo,
    work: impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno> + Send,
) -> Done {
    let done = mdt.transactions.settled(to, work).await;
    if done.result.is_ok() {
        mdt.transactions.tell_tree().await;
    }
    done
}

/// While somebody moves a tree that the directory lies in, its files are counted to where they are not yet,
/// and it is to be seen what of them he may have there.
async fn added(mdt: &Arc<Mdt>, to: &ReplyTo, ctx: &OpContext, fid: Fid) -> Done {
    for _ in 0..labels::WAITS_MAX {
        let done = changed(mdt, to, |tx| add(tx, ctx, fid)).await;
        if done.result != Err(Errno::EAGAIN) {
            return done;
        }
        mdt.world.sleep(labels::WAIT).await;
    }
    Done::error(Errno::EBUSY)
}

fn entry(id: u32, q: DirectoryQuota) -> QuotadirEntry {
    QuotadirEntry { id, fid: q.fid, parent: q.parent }
}

fn around(tx: &mut Tx, fid: Fid) -> Result<Vec<u8>, Errno> {
    let label = tx.inode(fid)?.directory;
    let d = &tx.shared.directories;
    let chain: Vec<u32> = tx.shared.usage.with_tree(|tree| tree.chain(label).collect());
    let directories = chain.into_iter().filter_map(|id| Some(entry(id, d.get(id)?))).collect();
    Ok(encode_message(&QuotadirReply { directories, next: None, unsettled: d.is_unsettled() }))
}

fn list(shared: &Shared, after: u32) -> QuotadirReply {
    let page = shared.directories.page(after, ANSWER_MAX);
    let next = page.last().filter(|_| page.len() == ANSWER_MAX).map(|(id, _)| *id);
    let directories = page.into_iter().map(|(id, q)| entry(id, q)).collect();
    QuotadirReply { directories, next, unsettled: shared.directories.is_unsettled() }
}

fn add(tx: &mut Tx, ctx: &OpContext, fid: Fid) -> Result<Vec<u8>, Errno> {
    let mut i = tx.dir(fid)?;
    if let Some((id, q)) = tx.shared.directories.of(fid) {
        let directories = vec![entry(id, q)];
        return Ok(encode_message(&QuotadirReply { directories, ..QuotadirReply::default() }));
    }
    if i.nlink == 0 {
        return Err(Errno::ENOENT);
    }
    if tx.shared.directories.count() >= DIRECTORY_QUOTAS_MAX {
        return Err(Errno::ENOSPC);
    }
    for tree in tx.shared.directories.moving() {
        if leads_through(tx, fid, tree)? {
            return Err(Errno::EAGAIN);
        }
    }
    let parent = labels::of_place(tx, i.parent)?;
    let k = key::STATE_NEXT_DIRECTORY;
    let next = tx.get(k)?.map(|v| value::decode_u64(k, &v)).transpose()?.unwrap_or(1);
    let id = u32::try_from(next).map_err(|_| Errno::ENOSPC)?;
    assert!(tx.shared.directories.get(id).is_none(), "an id is given once");
    tx.put(k.to_vec(), value::encode_u64(next.saturating_add(1)));
    let q = DirectoryQuota { fid, parent, ended: false };
    tx.put(key::directory(id), q.encode());
    labels::set(&mut i, id, ctx.now);
    settle_below(tx, fid, i.entries);
    tx.put_inode(fid, &mut i);
    let directories = vec![entry(id, q)];
    Ok(encode_message(&QuotadirReply { directories, next: None, unsettled: i.entries > 0 }))
}

fn remove(tx: &mut Tx, ctx: &OpContext, fid: Fid) -> Result<Vec<u8>, Errno> {
    let mut i = tx.dir(fid)?;
    let (id, q) = tx.shared.directories.of(fid).ok_or(Errno::ENOENT)?;
    labels::end(tx, id, (i.entries > 0).then_some(q));
    labels::set(&mut i, q.parent, ctx.now);
    settle_below(tx, fid, i.entries);
    tx.put_inode(fid, &mut i);
    let directories = vec![entry(id, q)];
    Ok(encode_message(&QuotadirReply { directories, next: None, unsettled: i.entries > 0 }))
}

/// What lies in a directory is counted as that is, later.
fn settle_below(tx: &mut Tx, fid: Fid, entries: u64) {
    if entries > 0 {
        labels::unsettle(tx, fid);
    }
}
