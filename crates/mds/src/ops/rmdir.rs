//! rmdir: removes an empty directory.

use crate::changelog::Change;
use crate::names::{self, OpContext};
use crate::trash;
use crate::tx::Tx;
use model::Errno;
use model::changelog::RecordKind;
use model::inode_rules::{self, NamesChange};
use wire::msg::rmdir::Rmdir;
use wire::msg::unlink::Changed;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Rmdir) -> Result<Changed, Errno> {
    inode_rules::check_name(&m.name)?;
    match m.name.as_slice() {
        b"." => return Err(Errno::EINVAL),
        b".." => return Err(Errno::ENOTEMPTY),
        _ => {}
    }
    let (mut dir, d, mut victim) = names::removable(tx, ctx, m.parent, &m.name)?;
    if !victim.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    if victim.entries > 0 {
        return Err(Errno::ENOTEMPTY);
    }
    tx.delete_name(m.parent, d.cookie, &m.name, d.fid);
    tx.names_changed(m.parent, &mut dir, NamesChange::removed(victim.kind), ctx.now);
    if trash::takes(&dir, &victim) {
        trash::take_in(tx, ctx, (d.fid, &mut victim), (m.parent, &m.name))?;
    } else {
        super::unlink::drop_link(tx, ctx, (d.fid, &mut victim), dir.directory)?;
    }
    tx.notes.add(ctx.now, Change::of(RecordKind::Rmdir, d.fid).named(m.parent, &m.name));
    names::changed(tx)
}
