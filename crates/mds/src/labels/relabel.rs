//! A tree is counted to another directory with a quota, in steps that others can come between. Each directory
//! gets its new label before its names are looked at: what is made in it, or moved into it, from then on has
//! that label by itself. A step leaves out a directory that has another label by now: somebody moved it.

use super::{Moved, nest, parents, set, unsettle};
use crate::ancestors::leads_through;
use crate::mdt::Mdt;
use crate::names::OpContext;
use crate::quotas::{Admission, Moving, ShareNeeds};
use crate::schema::directories::DirectoryQuota;
use crate::schema::{DentryValue, key};
use crate::transact::Transactions;
use crate::tx::Tx;
use model::usage::{QuotaId, QuotaType, Usage};
use model::{Errno, Fid};
use std::time::Duration;

/// Names that one transaction looks at.
const NAMES_AT_ONCE: usize = 64;
/// How often a step is put off that another count must be over for, and for how long.
pub const WAITS_MAX: u32 = 600;
pub const WAIT: Duration = Duration::from_millis(50);

/// For whom a tree is counted anew.
#[derive(Clone, Copy)]
pub enum By<'a> {
    /// The server itself, after the fact.
    Server,
    /// Somebody who moves it: whose limits hold, and who may not move files with names elsewhere.
    Mover(&'a OpContext),
}

/// A tree is counted to `to` before it is moved there. It must be moved before what this returns ends.
/// `EDQUOT`: somebody may not have so much there. `EXDEV`: a file of it has another name elsewhere. `EBUSY`:
/// somebody else moves it.
pub async fn before_move(mdt: &Mdt, ctx: &OpContext, fid: Fid, to: u32) -> Result<Moving, Errno> {
    let moving = mdt.shared.directories.begin_moving(fid, to).ok_or(Errno::EBUSY)?;
    relabel(&mdt.transactions, fid, to, By::Mover(ctx)).await?;
    Ok(moving)
}

/// Counts a tree to `to`. Whoever ends it early leaves it unsettled.
pub async fn relabel(t: &Transactions, root: Fid, to: u32, by: By<'_>) -> Result<(), Errno> {
    let first = |tx: &mut Tx| {
        unsettle(tx, root);
        Ok(label(tx, (root, root), to, by)?.below.into_iter().collect())
    };
    let mut stack: Vec<(Fid, u64)> =
        step(t, (root, by), first).await?.into_iter().map(|fid| (fid, 0)).collect();
    while let Some((dir, from)) = stack.pop() {
        let mut next = None;
        let work = |tx: &mut Tx| {
            next = None;
            let mut found = Vec::new();
            if !tx.try_inode(dir)?.is_some_and(|i| i.is_dir() && i.directory == to) {
                return Ok(found);
            }
            let page = tx.scan(&key::dentry_from(dir, from), &key::dentry_end(dir), NAMES_AT_ONCE)?;
            let mut last = page.last().filter(|_| page.len() == NAMES_AT_ONCE);
            for name in &page {
                let one = label(tx, (root, DentryValue::decode(&name.0, &name.1)?.fid), to, by)?;
                found.extend(one.below);
                if one.is_nested {
                    // Whether the next one fits depends on this one.
                    last = Some(name);
                    break;
                }
            }
            next = last.and_then(|(k, _)| key::parse_dentry(k)).and_then(|(_, c, _)| c.checked_add(1));
            Ok(found)
        };
        let found = step(t, (root, by), work).await?;
        assert!(found.len() <= NAMES_AT_ONCE, "a step finds no more than it looks at");
        stack.extend(next.map(|cookie| (dir, cookie)));
        stack.extend(found.into_iter().map(|fid| (fid, 0)));
    }
    Ok(())
}

/// One transaction, with room for what it gives to whom. What it found.
async fn step(
    t: &Transactions,
    (root, by): (Fid, By<'_>),
    mut work: impl FnMut(&mut Tx) -> Result<Vec<Fid>, Errno> + Send,
) -> Result<Vec<Fid>, Errno> {
    let (mut admission, mut waits) = (Admission::new(&t.shared.shares.arrivals), 0);
    let directories = &t.shared.directories;
    let mut left: Vec<(u32, Usage)> = Vec::new();
    loop {
        let (mut found, mut needs, mut arriving) = (Vec::new(), ShareNeeds::default(), Vec::new());
        let known = admission.known();
        let done = t.transact(None, |tx| {
            tx.admitted.clone_from(&known);
            // It may run again, when others have given way.
            directories.hold(root, &left, true);
            left.clear();
            if let By::Mover(_) = by {
                tx.mover = Some(root);
            }
            found = work(tx)?;
            if let By::Mover(ctx) = by {
                left = std::mem::take(&mut tx.left);
                directories.hold(root, &left, false);
                let checked = tx.check_limits(ctx.cred.is_root(), ctx.wall);
                needs = std::mem::take(&mut tx.needs);
                arriving = std::mem::take(&mut tx.arriving);
                checked?;
            }
            Ok(Vec::new())
        });
        let result = done.await.result;
        if result.is_err() {
            directories.hold(root, &left, true);
            left.clear();
        }
        match result {
            Ok(_) => {
                admission.done(&arriving);
                return Ok(found);
            }
            Err(Errno::ESHARE) => t.admit(&needs, &mut admission).await?,
            // A directory with a quota in it is being counted itself, or all are after a start.
            Err(Errno::EAGAIN | Errno::EGROWING) if waits < WAITS_MAX => {
                waits += 1;
                t.shared.world.sleep(WAIT).await;
            }
            Err(Errno::EAGAIN | Errno::EGROWING) => return Err(Errno::EBUSY),
            Err(e) => return Err(e),
        }
    }
}

/// What came of one file.
#[derive(Default)]
struct Labelled {
    /// Itself, if there are names in it to look at.
    below: Option<Fid>,
    /// It has a quota, and goes along with all that it has.
    is_nested: bool,
}

/// One file of the tree below `root` is counted to `to`.
fn label(tx: &mut Tx, (root, fid): (Fid, Fid), to: u32, by: By) -> Result<Labelled, Errno> {
    let Some(mut i) = tx.try_inode(fid)? else { return Ok(Labelled::default()) };
    if i.is_dir()
        && let Some((id, quota)) = tx.shared.directories.of(fid)
        && id != to
    {
        if fid == root {
            // It got its quota just now: whoever moves it sees that when he does.
            return Ok(Labelled::default());
        }
        // What lies in it is its own, and goes along.
        match by {
            _ if quota.parent == to => {}
            By::Mover(_) if tx.shared.directories.lacks_some(fid, id) => return Err(Errno::EAGAIN),
            By::Mover(ctx) => {
                nest(tx, ctx, (id, quota), to)?;
                let has = tx.shared.usage.get(QuotaId { of: QuotaType::Directory, id });
                tx.left.push((quota.parent, has));
            }
            By::Server => tx.put(key::directory(id), DirectoryQuota { parent: to, ..quota }.encode()),
        }
        return Ok(Labelled { below: None, is_nested: quota.parent != to });
    }
    if i.directory != to {
        if let By::Mover(_) = by
            && !i.is_dir()
            && i.nlink > 1
            && !all_names_below(tx, fid, root)?
        {
            return Err(Errno::EXDEV);
        }
        let mut now = tx.shared.world.wall();
        if let By::Mover(ctx) = by {
            now = now.max(ctx.now);
            tx.left.push((i.directory, i.usage().1));
            if i.is_dir() {
                tx.recounted.push(fid);
            }
        }
        set(&mut i, to, now);
        tx.put_inode(fid, &mut i);
        tx.tell_owner(fid, &i);
    }
    Ok(Labelled { below: (i.is_dir() && i.entries > 0).then_some(fid), is_nested: false })
}

/// Whether each name of a file is in the tree.
fn all_names_below(tx: &mut Tx, fid: Fid, root: Fid) -> Result<bool, Errno> {
    for parent in parents(tx, fid, usize::MAX)? {
        match leads_through(tx, parent, root) {
            Ok(true) => {}
            // So deep that it would have to be looked up first: a copy does.
            Ok(false) | Err(Errno::EDEEP) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

impl Moved {
    /// Of a name that goes from one directory to another.
    pub fn between(from: Fid, to: Fid) -> Moved {
        if from == to { Moved::Within } else { Moved::Elsewhere }
    }
}
