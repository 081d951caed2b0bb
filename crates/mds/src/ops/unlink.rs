//! unlink: removes a name that is no directory.

use crate::names::{self, OpContext};
use crate::tx::Tx;
use model::Errno;
use wire::msg::unlink::{Changed, Unlink};

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Unlink) -> Result<Changed, Errno> {
    names::check_name(&m.name)?;
    if names::is_dots(&m.name) {
        return Err(Errno::EISDIR);
    }
    let (mut dir, d, mut victim) = names::removable(tx, ctx, m.parent, &m.name)?;
    if victim.is_dir() {
        return Err(Errno::EISDIR);
    }
    tx.delete_name(m.parent, d.cookie, &m.name, d.fid);
    dir.entries = dir.entries.saturating_sub(1);
    tx.touch_dir(m.parent, &mut dir, ctx.now);
    drop_link(tx, ctx, d.fid, &mut victim)?;
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
    i.touch_ctime(ctx.now);
    i.nlink = if i.is_dir() { 0 } else { i.nlink.saturating_sub(1) };
    if i.nlink == 0 {
        return tx.unlinked(fid, i);
    }
    tx.put_inode(fid, i);
    Ok(())
}
