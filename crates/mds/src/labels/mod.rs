//! Labels: each inode says which directory with a quota it is counted to, the innermost one that it lies in
//! (decision 0072). A new file has its directory's. What moves to a directory with another one gets that in
//! the same transaction, if it is a file; a tree gets it in steps before it is moved ([`relabel`]), so that
//! whoever may not have so much there is told before anything has moved.
//!
//! While a tree has some of both it is *unsettled*: its record (`V`) says so, and whatever happens the
//! background ([`keep`]) makes it what its place says.

pub mod check;
mod keep;
mod relabel;

pub use keep::keep;
#[cfg(test)]
pub use relabel::{By, relabel};
pub use relabel::{WAIT, WAITS_MAX, before_move};

use crate::ancestors::STEPS_MAX;
use crate::names::OpContext;
use crate::quotas::{Arrival, ArrivalOf};
use crate::schema::directories::{DirectoryQuota, encode_unsettled};
use crate::schema::limits::LimitsKey;
use crate::schema::{Inode, key};
use crate::tx::Tx;
use model::limits::DIRECTORY_DEPTH_MAX;
use model::planted::{self, Bug};
use model::usage::{QuotaId, QuotaType};
use model::{Errno, Fid, Timestamp};
use std::collections::BTreeSet;

/// Names of a file that are looked at for how it is counted when another one goes.
const NAMES_LOOKED_AT: usize = 64;

/// Where a name goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    Within,
    Elsewhere,
    /// Two names change places.
    Exchanged,
}

/// What moves into a directory with the label `to` is counted as its files are. True if its owner is another
/// one now. `EXDEV`: another name of it lies elsewhere, or it is a tree that changes places with something.
/// `ERELABEL`: a tree has to be counted there before it is moved.
pub fn enter(
    tx: &mut Tx,
    ctx: &OpContext,
    (fid, i): (Fid, &mut Inode),
    to: u32,
    how: Moved,
) -> Result<bool, Errno> {
    // Its application was answered.
    let must = tx.is_replay() || tx.is_owned();
    if i.is_dir()
        && let Some((id, quota)) = tx.shared.directories.of(fid)
    {
        if quota.parent != to {
            // What it takes along is not known before all of it is counted.
            if !must && tx.shared.directories.lacks_some(fid, id) {
                tx.relabel = Some((fid, id));
                return Err(Errno::ERELABEL);
            }
            nest(tx, ctx, (id, quota), to)?;
        }
        return Ok(false);
    }
    if i.is_dir() && how != Moved::Within && tx.shared.directories.is_unsettled() {
        unsettle(tx, fid);
    }
    let is_full = i.is_dir() && i.entries > 0;
    // A tree may have been counted there in part, by somebody who could not move it.
    let is_part = is_full && !must && how != Moved::Within && tx.shared.directories.lacks_some(fid, to);
    if (i.directory == to && !is_part) || planted::on(Bug::DirectoryLostAtRename) {
        return Ok(false);
    }
    if !i.is_dir() && i.nlink > 1 && !must {
        return if how == Moved::Within { Ok(false) } else { Err(Errno::EXDEV) };
    }
    if is_full {
        if must {
            unsettle(tx, fid);
        } else if how == Moved::Exchanged {
            return Err(Errno::EXDEV);
        } else {
            tx.relabel = Some((fid, to));
            return Err(Errno::ERELABEL);
        }
    }
    assert!(!is_full || must, "a tree is counted before it moves");
    if i.is_dir() && !must {
        tx.recounted.push(fid);
    }
    set(i, to, ctx.now);
    Ok(true)
}

/// Files below a directory may have another label than it has: the background sees to that.
pub fn unsettle(tx: &mut Tx, dir: Fid) {
    tx.put(key::unsettled(dir), encode_unsettled());
}

/// A directory with a quota lies in another one from now on. `EDQUOT`: that may not have so much.
fn nest(tx: &mut Tx, ctx: &OpContext, (id, quota): (u32, DirectoryQuota), parent: u32) -> Result<(), Errno> {
    let done = tx.is_replay() || tx.is_owned();
    let (usage, quotas) = (&tx.shared.usage, &tx.shared.quotas);
    let (deep, new) = usage.with_tree(|tree| {
        let below = tree.iter().map(|(inner, _)| depth_from(tree.chain(inner), id)).max().unwrap_or(1);
        let old: Vec<u32> = tree.chain(quota.parent).collect();
        let new = tree.chain(parent).filter(|outer| !old.contains(outer)).collect::<Vec<u32>>();
        (below + tree.chain(parent).count() > DIRECTORY_DEPTH_MAX, new)
    });
    if deep && !done {
        return Err(Errno::EDQUOT);
    }
    let has = usage.get(QuotaId { of: QuotaType::Directory, id });
    // Others of its tree may have been counted there in the same transaction.
    let change = usage.concerns(&tx.usage_change());
    if !done && !ctx.cred.is_root() && !quotas.has_room_for(usage, &change, (&new, has), ctx.wall.sec) {
        return Err(Errno::EDQUOT);
    }
    let around = new.into_iter().map(|id| QuotaId { of: QuotaType::Directory, id });
    let ids: BTreeSet<QuotaId> = around.filter(|id| quotas.is_space_limited(*id)).collect();
    if !ids.is_empty() {
        tx.arriving.push(Arrival { fid: quota.fid, ids, what: ArrivalOf::Below(id) });
    }
    assert_ne!(id, parent, "a directory does not lie in itself");
    tx.put(key::directory(id), DirectoryQuota { parent, ..quota }.encode());
    Ok(())
}

/// The innermost directory with a quota that `dir` is or lies in, by where it lies, whatever its label says
/// while its tree is unsettled. So deep down that nobody looks, its label says.
pub fn of_place(tx: &mut Tx, dir: Fid) -> Result<u32, Errno> {
    let mut at = dir;
    for _ in 0..STEPS_MAX {
        if let Some((id, _)) = tx.shared.directories.of(at) {
            return Ok(id);
        }
        if at == Fid::ROOT {
            return Ok(0);
        }
        at = tx.inode(at)?.parent;
    }
    Ok(tx.inode(at)?.directory)
}

/// How many of a chain there are up to `id`; 1 if it is not there.
fn depth_from(chain: impl Iterator<Item = u32>, id: u32) -> usize {
    chain.enumerate().find(|(_, at)| *at == id).map_or(1, |(n, _)| n + 1)
}

/// A file is counted to another directory: as of a moment that no other owner was named as of.
pub fn set(i: &mut Inode, to: u32, now: Timestamp) {
    assert_ne!(i.directory, to, "what stays where it is is not counted anew");
    i.directory = to;
    let after = i.ctime.plus_nanos(1);
    i.touch_ctime(now.max(after));
}

/// A directory goes: if it has a quota, that goes with it.
pub fn removed(tx: &mut Tx, fid: Fid, i: &mut Inode) {
    let Some((id, quota)) = tx.shared.directories.of(fid) else { return };
    assert!(i.is_dir() && i.entries == 0, "a directory that goes is empty");
    end(tx, id, None);
    i.directory = quota.parent;
}

/// A file has one name less, which was in a directory counted to `label`. If no other name of it is in one
/// that is, it is counted as one of those is that it has: they may be older than the quota between them. True
/// if its owner is another one now.
pub fn name_removed(
    tx: &mut Tx,
    ctx: &OpContext,
    (fid, i): (Fid, &mut Inode),
    label: u32,
) -> Result<bool, Errno> {
    if i.is_dir() || i.directory != label || tx.shared.directories.count() == 0 {
        return Ok(false);
    }
    assert!(i.nlink > 0, "{fid} has no name left to be counted by");
    let mut to = None;
    for parent in parents(tx, fid, NAMES_LOOKED_AT)? {
        match tx.try_inode(parent)?.map(|dir| dir.directory) {
            Some(same) if same == label => return Ok(false),
            other => to = to.or(other),
        }
    }
    let Some(to) = to else { return Ok(false) };
    set(i, to, ctx.now);
    Ok(true)
}

/// The directories that names of a file are in, of so many names at most.
fn parents(tx: &mut Tx, fid: Fid, most: usize) -> Result<Vec<Fid>, Errno> {
    let prefix = key::backptr_prefix(fid);
    let names = tx.scan(&prefix, &key::behind(&prefix), most)?;
    Ok(names.iter().filter_map(|(k, _)| key::parse_backptr(k)).map(|(_, parent, _)| parent).collect())
}

/// A quota ends, and its limits; `quota`: what has its label counts for those around it until it has theirs.
pub fn end(tx: &mut Tx, id: u32, quota: Option<DirectoryQuota>) {
    match quota {
        Some(q) => tx.put(key::directory(id), DirectoryQuota { ended: true, ..q }.encode()),
        None => tx.delete(key::directory(id)),
    }
    let of = QuotaId { of: QuotaType::Directory, id };
    tx.delete(LimitsKey::Owner(of).encode());
    for pool in tx.shared.quotas.pools_of(of) {
        tx.delete(LimitsKey::Pool(of, pool).encode());
    }
}
