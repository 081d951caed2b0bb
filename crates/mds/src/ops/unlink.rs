//! unlink: removes a name that is no directory.

use crate::changelog::Change;
use crate::names::{self, OpContext};
use crate::schema::Inode;
use crate::tx::Tx;
use model::changelog::RecordKind;
use model::inode_rules::{self, NamesChange};
use model::{Errno, Fid};
use wire::msg::unlink::{Changed, Unlink};

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Unlink) -> Result<Changed, Errno> {
    remove(tx, ctx, (m.parent, &m.name), |_, _, _| Ok(()))
}

/// Removes a name that is no directory, if `may_go` does not refuse that for its file.
pub fn remove(
    tx: &mut Tx,
    ctx: &OpContext,
    (parent, name): (Fid, &[u8]),
    may_go: impl FnOnce(&mut Tx, Fid, &Inode) -> Result<(), Errno>,
) -> Result<Changed, Errno> {
    inode_rules::check_name(name)?;
    if inode_rules::is_dots(name) {
        return Err(Errno::EISDIR);
    }
    let (mut dir, d, mut victim) = names::removable(tx, ctx, parent, name)?;
    if victim.is_dir() {
        return Err(Errno::EISDIR);
    }
    may_go(tx, d.fid, &victim)?;
    tx.delete_name(parent, d.cookie, name, d.fid);
    tx.names_changed(parent, &mut dir, NamesChange::removed(victim.kind), ctx.now);
    drop_link(tx, ctx, d.fid, &mut victim)?;
    let change = Change::of(RecordKind::Unlink, d.fid).named(parent, name);
    tx.notes.add(ctx.now, change.last_name(victim.nlink == 0));
    names::changed(tx)
}

/// One name less; the last one takes the file along, unless it is open.
pub fn drop_link(tx: &mut Tx, ctx: &OpContext, fid: Fid, i: &mut Inode) -> Result<(), Errno> {
    assert!(!i.is_dir() || i.entries == 0, "{fid} is removed but not empty");
    if inode_rules::unlinked(i, ctx.now) {
        return tx.unlinked(fid, i);
    }
    tx.put_inode(fid, i);
    Ok(())
}
