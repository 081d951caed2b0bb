//! rename: moves a name, with NOREPLACE and EXCHANGE.

use crate::ancestors::leads_through;
use crate::changelog::Change;
use crate::labels::{self, Moved};
use crate::names::{self, OpContext};
use crate::schema::{Inode, key};
use crate::tx::{Dentry, Found, Tx};
use model::changelog::RecordKind;
use model::inode_rules::{self, NamesChange, RenameCheck};
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
    /// The directory with a quota that `dir` is counted to.
    label: u32,
}

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Rename) -> Result<Changed, Errno> {
    let exchange = m.flags & RENAME_EXCHANGE != 0;
    let noreplace = m.flags & RENAME_NOREPLACE != 0;
    if m.flags & !(RENAME_EXCHANGE | RENAME_NOREPLACE) != 0 || (exchange && noreplace) {
        return Err(Errno::EINVAL);
    }
    for n in [&m.name, &m.new_name] {
        inode_rules::check_name(n)?;
        if inode_rules::is_dots(n) {
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
    let from = Place { dir: m.parent, cookie: src.cookie, name: &m.name, label: old_dir.directory };
    let to = Place { dir: m.new_parent, cookie: new_cookie, name: &m.new_name, label: new_dir.directory };
    let what = RenameCheck {
        old_dir: old_dir.subject(),
        new_dir: new_dir.subject(),
        new_dir_nlink: new_dir.nlink,
        src: src_inode.subject(),
        dst: dst_inode.as_ref().map(|d| (d.subject(), d.entries > 0)),
        projects: [
            old_dir.projid,
            new_dir.projid,
            src_inode.projid,
            dst_inode.as_ref().map_or(0, |d| d.projid),
        ],
        same_dir: from.dir == to.dir,
        exchange,
    };
    inode_rules::may_rename(&ctx.cred, &what)?;
    match (dst, dst_inode) {
        (Some(d), Some(i)) if exchange => swap(tx, ctx, (from, src, src_inode), (to, d, i))?,
        (d, i) => replace(tx, ctx, (from, src, src_inode), to, d.zip(i))?,
    }
    names::changed(tx)
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
    let how = Moved::between(from.dir, to.dir);
    let recounted = labels::enter(tx, ctx, (src.fid, &mut i), to.label, how)?;
    if moved_dir {
        i.parent = to.dir;
        if from.dir != to.dir {
            tx.ways.moved.push(src.fid);
        }
    }
    inode_rules::moved(&mut i, ctx.now);
    tx.put_inode(src.fid, &mut i);
    if recounted {
        tx.tell_owner(src.fid, &i);
    }

    let mut old_dir = tx.promised(from.dir)?;
    tx.names_changed(from.dir, &mut old_dir, NamesChange::removed(i.kind), ctx.now);

    let mut new_dir = tx.promised(to.dir)?;
    let over = victim.as_ref().map(|(_, v)| NamesChange::replaced(v.kind, i.kind));
    let change = over.unwrap_or(NamesChange::added(i.kind));
    tx.names_changed(to.dir, &mut new_dir, change, ctx.now);

    let (mut over, mut last) = (Fid::NONE, false);
    if let Some((d, mut v)) = victim {
        super::unlink::drop_link(tx, ctx, (d.fid, &mut v), to.label)?;
        (over, last) = (d.fid, v.nlink == 0);
    }
    record(tx, ctx, src.fid, (from, to), (over, last));
    Ok(())
}

/// Tells of a rename. `over`: the file whose name it took, and whether that was its last one.
fn record(tx: &mut Tx, ctx: &OpContext, fid: Fid, (from, to): (Place, Place), (over, last): (Fid, bool)) {
    let change = Change::of(RecordKind::Rename, over).named(to.dir, to.name);
    tx.notes.add(ctx.now, change.renamed(fid, from.dir, from.name).last_name(last));
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
    let (a_kind, b_kind) = (a_inode.kind, b_inode.kind);
    if a_inode.is_dir() {
        a_inode.parent = b.dir;
        tx.ways.moved.push(a_entry.fid);
    }
    if b_inode.is_dir() {
        b_inode.parent = a.dir;
        tx.ways.moved.push(b_entry.fid);
    }
    for (fid, i, to) in [(a_entry.fid, &mut a_inode, b.label), (b_entry.fid, &mut b_inode, a.label)] {
        let recounted = labels::enter(tx, ctx, (fid, i), to, Moved::Exchanged)?;
        inode_rules::moved(i, ctx.now);
        tx.put_inode(fid, i);
        if recounted {
            tx.tell_owner(fid, i);
        }
    }
    for (dir, old, new) in [(a.dir, a_kind, b_kind), (b.dir, b_kind, a_kind)] {
        let mut d = tx.promised(dir)?;
        tx.names_changed(dir, &mut d, NamesChange::replaced(old, new), ctx.now);
    }
    // Two renames, of which neither has a victim: who reads the first one knows that the other follows.
    record(tx, ctx, a_entry.fid, (a, b), (Fid::NONE, false));
    record(tx, ctx, b_entry.fid, (b, a), (Fid::NONE, false));
    Ok(())
}
