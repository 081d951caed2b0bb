//! unlink: removes a name that is no directory.

use crate::changelog::Change;
use crate::names::{self, OpContext};
use crate::tx::Tx;
use model::Errno;
use model::changelog::RecordKind;
use model::inode_rules::{self, NamesChange};
use wire::msg::unlink::{Changed, Unlink};

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Unlink) -> Result<Changed, Errno> {
    inode_rules::check_name(&m.name)?;
    if inode_rules::is_dots(&m.name) {
        return Err(Errno::EISDIR);
    }
    let (mut dir, d, mut victim) = names::removable(tx, ctx, m.parent, &m.name)?;
    if victim.is_dir() {
        return Err(Errno::EISDIR);
    }
    tx.delete_name(m.parent, d.cookie, &m.name, d.fid);
    tx.names_changed(m.parent, &mut dir, NamesChange::removed(victim.kind), ctx.now);
    drop_link(tx, ctx, d.fid, &mut victim)?;
    let change = Change::of(RecordKind::Unlink, d.fid).named(m.parent, &m.name);
    tx.notes.add(ctx.now, change.last_name(victim.nlink == 0));
    names::changed(tx)
}

/// One name less; the last one takes the file along, unless it is open.
pub fn drop_link(
    tx: &mut Tx,
    ctx: &OpContext,
    fid: model::Fid,
    i: &mut crate::schema::Inode,
) -> Result<(), Errno> {
    assert!(!i.is_dir() || i.entries == 0, "{fid} is removed but not empty");
    if inode_rules::unlinked(i, ctx.now) {
        return tx.unlinked(fid, i);
    }
    tx.put_inode(fid, i);
    Ok(())
}
