//! rename: moves a name, with NOREPLACE and EXCHANGE.

use crate::ancestors::leads_through;
use crate::names::{self, OpContext};
use crate::schema::{Inode, key};
use crate::tx::{Dentry, Found, Tx};
use model::perm::{self, MAY_WRITE};
use model::planted::{self, Bug};
use model::{Errno, Fid};
use wire::msg::rename::{RENAME_EXCHANGE, RENAME_NOREPLACE, Rename};
use wire::msg::unlink::Changed;

/// One end of a rename: a name in a directory.
#[derive(Clone, Copy)]
struct Place<'a> {
    dir: Fid,
    cookie: u64,
    name: &'a [u8],
}

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Rename) -> Result<Changed, Errno> {
    let exchange = m.flags & RENAME_EXCHANGE != 0;
    let noreplace = m.flags & RENAME_NOREPLACE != 0;
    if m.flags & !(RENAME_EXCHANGE | RENAME_NOREPLACE) != 0 || (exchange && noreplace) {
        return Err(Errno::EINVAL);
    }
    for n in [&m.name, &m.new_name] {
        names::check_name(n)?;
        if names::is_dots(n) {
            return Err(Errno::EBUSY);
        }
    }
    let old_dir = names::searched(tx, ctx, m.parent)?;
    let new_dir = names::searched(tx, ctx, m.new_parent)?;
    let src = tx.entry(m.parent, &m.name)?;
    let (dst, new_cookie) = match tx.find(m.new_parent, &m.new_name)? {
        Found::Entry(_) if noreplace => return Err(Errno::EEXIST),
        Found::Entry(d) => (Some(d), d.cookie),
        Found::Free(_) if exchange => return Err(Errno::ENOENT),
        Found::Free(c) => (None, c),
    };
    let src_inode = tx.promised(src.fid)?;
    let dst_inode = dst.map(|d| tx.promised(d.fid)).transpose()?;
    // Nothing lies above the directory that it lies in, and in one directory nothing moves up or down.
    let elsewhere = m.parent != m.new_parent;
    if elsewhere && src_inode.is_dir() && leads_through(tx, m.new_parent, src.fid)? {
        return Err(Errno::EINVAL);
    }
    if let (Some(d), Some(i)) = (dst, &dst_inode) {
        if elsewhere && i.is_dir() && leads_through(tx, m.parent, d.fid)? {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        if d.fid == src.fid {
            return names::changed(tx);
        }
    }
    let from = Place { dir: m.parent, cookie: src.cookie, name: &m.name };
    let to = Place { dir: m.new_parent, cookie: new_cookie, name: &m.new_name };
    check(ctx, (&old_dir, &new_dir), &src_inode, dst_inode.as_ref(), from.dir == to.dir, exchange)?;
    match (dst, dst_inode) {
        (Some(d), Some(i)) if exchange => swap(tx, ctx, (from, src, src_inode), (to, d, i))?,
        (d, i) => replace(tx, ctx, (from, src, src_inode), to, d.zip(i))?,
    }
    names::changed(tx)
}

/// vfs_rename()'s checks, in its order.
fn check(
    ctx: &OpContext,
    (old_dir, new_dir): (&Inode, &Inode),
    src: &Inode,
    dst: Option<&Inode>,
    same_dir: bool,
    exchange: bool,
) -> Result<(), Errno> {
    let c = &ctx.cred;
    perm::may_delete(c, &old_dir.subject(), &src.subject())?;
    match dst {
        None => names::may_add(ctx, new_dir)?,
        Some(d) => {
            perm::may_delete(c, &new_dir.subject(), &d.subject())?;
            if !exchange {
                match (src.is_dir(), d.is_dir()) {
                    (true, false) => return Err(Errno::ENOTDIR),
                    (false, true) => return Err(Errno::EISDIR),
                    _ => {}
                }
            }
        }
    }
    if !same_dir {
        // A directory that gets another parent is written to: its `..` changes.
        if src.is_dir() {
            perm::access(c, &src.subject(), MAY_WRITE)?;
        }
        if let Some(d) = dst.filter(|d| exchange && d.is_dir()) {
            perm::access(c, &d.subject(), MAY_WRITE)?;
        }
    }
    if dst.is_some_and(|d| d.is_dir() && !exchange && d.entries > 0) {
        return Err(Errno::ENOTEMPTY);
    }
    Ok(())
}

/// Moves a name, over another one if `victim` is given.
fn replace(
    tx: &mut Tx,
    ctx: &OpContext,
    (from, src, mut i): (Place, Dentry, Inode),
    to: Place,
    victim: Option<(Dentry, Inode)>,
) -> Result<(), Errno> {
    let moved_dir = i.is_dir();
    if let Some((d, v)) = &victim {
        assert_ne!(d.fid, src.fid, "a file is not moved over itself");
        assert_eq!(v.is_dir(), moved_dir, "a directory takes the place of a directory only");
        assert!(!v.is_dir() || v.entries == 0, "{} is moved over but not empty", d.fid);
    }
    tx.delete_name(from.dir, from.cookie, from.name, src.fid);
    if let Some((d, _)) = &victim {
        tx.delete(key::backptr(d.fid, to.dir, to.cookie));
    }
    // In one directory the two names may share a hash: the slot freed above stays out of use, the new
    // cookie was chosen before.
    tx.put_name(to.dir, to.cookie, to.name, src.fid, i.kind);
    if planted::on(Bug::ForgottenBackPointer) {
        tx.delete(key::backptr(src.fid, to.dir, to.cookie));
    }
    if moved_dir {
        i.parent = to.dir;
        if from.dir != to.dir {
            tx.ways.moved.push(src.fid);
        }
    }
    i.touch_ctime(ctx.now);
    tx.put_inode(src.fid, &mut i);

    let mut old_dir = tx.promised(from.dir)?;
    old_dir.entries = old_dir.entries.saturating_sub(1);
    old_dir.nlink = old_dir.nlink.saturating_sub(u32::from(moved_dir));
    tx.touch_dir(from.dir, &mut old_dir, ctx.now);

    let mut new_dir = tx.promised(to.dir)?;
    let victim_dir = victim.as_ref().is_some_and(|(_, v)| v.is_dir());
    new_dir.entries = new_dir.entries.saturating_add(u64::from(victim.is_none()));
    new_dir.nlink = new_dir.nlink.saturating_add(u32::from(moved_dir));
    new_dir.nlink = new_dir.nlink.saturating_sub(u32::from(victim_dir));
    tx.touch_dir(to.dir, &mut new_dir, ctx.now);

    if let Some((d, mut v)) = victim {
        super::unlink::drop_link(tx, ctx, d.fid, &mut v)?;
    }
    Ok(())
}

/// The two names change places.
fn swap(
    tx: &mut Tx,
    ctx: &OpContext,
    (a, a_entry, mut a_inode): (Place, Dentry, Inode),
    (b, b_entry, mut b_inode): (Place, Dentry, Inode),
) -> Result<(), Errno> {
    assert_ne!(a_entry.fid, b_entry.fid, "two names of one file have nothing to exchange");
    tx.delete(key::backptr(a_entry.fid, a.dir, a.cookie));
    tx.delete(key::backptr(b_entry.fid, b.dir, b.cookie));
    tx.put_name(a.dir, a.cookie, a.name, b_entry.fid, b_inode.kind);
    tx.put_name(b.dir, b.cookie, b.name, a_entry.fid, a_inode.kind);
    let dirs = (a_inode.is_dir(), b_inode.is_dir());
    if dirs.0 {
        a_inode.parent = b.dir;
        tx.ways.moved.push(a_entry.fid);
    }
    if dirs.1 {
        b_inode.parent = a.dir;
        tx.ways.moved.push(b_entry.fid);
    }
    for (fid, i) in [(a_entry.fid, &mut a_inode), (b_entry.fid, &mut b_inode)] {
        i.touch_ctime(ctx.now);
        tx.put_inode(fid, i);
    }
    for (dir, gone, come) in [(a.dir, dirs.0, dirs.1), (b.dir, dirs.1, dirs.0)] {
        let mut d = tx.promised(dir)?;
        d.nlink = d.nlink.saturating_sub(u32::from(gone)).saturating_add(u32::from(come));
        tx.touch_dir(dir, &mut d, ctx.now);
    }
    Ok(())
}
