//! The trash: what loses its last name in a directory that wants it so ([`FLAG_TRASH`]) stays, without a
//! name, until somebody gives it one again or it is removed for good (decision 0083).
//!
//! Such a file has no links, as an orphan, and lies under a key by its age (`G`) where an orphan has its own
//! (`O`); how it came there stands in its inode. It is counted to its owner, group and project as before, and
//! to no directory with a quota but to one of its own, [`TRASH_LABEL`], by which targets tell how much of
//! them is trash.

pub mod check;
mod keep;
pub mod list;
pub mod room;

pub use keep::keep;

use crate::changelog::Change;
use crate::labels::{self, Moved};
use crate::names::{self, OpContext};
use crate::schema::inode::Removed;
use crate::schema::{Inode, key, value};
use crate::tx::Tx;
use model::inode_rules::{self, FLAG_TRASH, NamesChange};
use model::planted::{self, Bug};
use model::usage::TRASH_LABEL;
use model::{Cred, Errno, Fid, FileType};
use wire::msg::trashtake::Takeout;

/// Whether a file goes into the trash when a name of it is removed from `dir`.
pub fn takes(dir: &Inode, i: &Inode) -> bool {
    let last = i.is_dir() || i.nlink == 1;
    let kept = matches!(i.kind, FileType::Regular | FileType::Symlink | FileType::Directory);
    dir.flags & FLAG_TRASH != 0 && last && kept && !planted::on(Bug::TrashForgotten)
}

/// The last name of a file was removed from a directory: it goes into the trash, open or not.
pub fn take_in(
    tx: &mut Tx,
    ctx: &OpContext,
    (fid, i): (Fid, &mut Inode),
    (parent, name): (Fid, &[u8]),
) -> Result<(), Errno> {
    if i.removed.is_some() {
        return Err(Errno::EIO); // its record is damaged: the check says more
    }
    assert_eq!(i.entries, 0, "{fid} goes into the trash but is not empty");
    let last = inode_rules::unlinked(i, ctx.now);
    assert!(last, "{fid} goes into the trash but has names");
    labels::removed(tx, fid, i);
    if i.directory != TRASH_LABEL {
        labels::set(i, TRASH_LABEL, ctx.now);
        tx.tell_owner(fid, i);
    }
    let when = ctx.wall;
    i.removed = Some(Removed { when, by: ctx.cred.uid, parent, name: name.to_vec() });
    tx.put(key::trash(when, fid), value::encode_trash());
    tx.put_inode(fid, i);
    Ok(())
}

/// What lies in the trash and is the caller's. `ENOENT` if it is not there, `EPERM` if it is somebody else's.
fn own(tx: &mut Tx, cred: &Cred, fid: Fid) -> Result<(Inode, Removed), Errno> {
    let mut i = tx.try_inode(fid)?.ok_or(Errno::ENOENT)?;
    let removed = i.removed.take().ok_or(Errno::ENOENT)?;
    if i.nlink > 0 || i.entries > 0 {
        return Err(Errno::EIO); // its record is damaged: the check says more
    }
    if cred.is_root() || cred.uid == i.uid { Ok((i, removed)) } else { Err(Errno::EPERM) }
}

/// One file gets out of it. As [`wire::msg::trashtake::TrashtakeReply`] says.
pub fn take_out(tx: &mut Tx, ctx: &OpContext, fid: Fid, how: &Takeout) -> Result<(), Errno> {
    let (mut i, removed) = own(tx, &ctx.cred, fid)?;
    match how {
        Takeout::Back => restore(tx, ctx, (fid, i), &removed, (removed.parent, &removed.name)),
        Takeout::To(parent, name) => restore(tx, ctx, (fid, i), &removed, (*parent, name)),
        Takeout::Gone => remove(tx, (fid, &mut i), &removed),
    }
}

/// It is a file without a name like any other: it goes, unless it is open.
fn remove(tx: &mut Tx, (fid, i): (Fid, &mut Inode), removed: &Removed) -> Result<(), Errno> {
    assert!(i.removed.is_none(), "{fid} is removed for good, not kept once more");
    tx.delete(key::trash(removed.when, fid));
    tx.unlinked(fid, i)
}

/// As [`take_out`] for good, by the server itself. False: it is not in the trash any more, or damaged, of
/// which the check says more.
pub fn empty(tx: &mut Tx, fid: Fid) -> Result<bool, Errno> {
    let root = Cred::root();
    match own(tx, &root, fid) {
        Ok((mut i, removed)) => remove(tx, (fid, &mut i), &removed).map(|()| true),
        Err(Errno::ENOENT | Errno::EIO) => Ok(false),
        Err(e) => Err(e),
    }
}

/// It gets a name.
fn restore(
    tx: &mut Tx,
    ctx: &OpContext,
    (fid, mut i): (Fid, Inode),
    removed: &Removed,
    (parent, name): (Fid, &[u8]),
) -> Result<(), Errno> {
    assert_eq!(i.nlink, 0, "{fid} lies in the trash and has names");
    tx.check_space()?;
    match tx.try_inode(parent)? {
        Some(dir) if dir.is_dir() && dir.nlink > 0 => {}
        Some(dir) if !dir.is_dir() => return Err(Errno::ENOTDIR),
        _ => return Err(Errno::ESTALE),
    }
    let (mut dir, cookie) = names::vacant(tx, ctx, parent, name)?;
    inode_rules::may_enter(&dir.subject(), dir.projid, i.projid)?;
    tx.delete(key::trash(removed.when, fid));
    let recounted = labels::enter(tx, ctx, (fid, &mut i), dir.directory, Moved::Elsewhere)?;
    if i.is_dir() {
        i.nlink = inode_rules::first_links(i.kind);
        i.parent = parent;
        i.touch_ctime(ctx.now);
        // The way up from there is another one.
        tx.ways.moved.push(fid);
    } else {
        inode_rules::linked(&mut i, ctx.now);
    }
    assert!(i.nlink > 0 && i.removed.is_none(), "{fid} has a name again");
    tx.put_inode(fid, &mut i);
    if recounted {
        tx.tell_owner(fid, &i);
    }
    tx.put_name(parent, cookie, name, fid, i.kind);
    tx.names_changed(parent, &mut dir, NamesChange::added(i.kind), ctx.now);
    tx.notes.add(ctx.now, Change::made(i.kind, fid).named(parent, name));
    Ok(())
}
