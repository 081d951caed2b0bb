//! link: one more name for a file, also for an open unnamed one.

use crate::changelog::Change;
use crate::names::{self, OpContext};
use crate::schema::{OrphanKind, key};
use crate::tx::Tx;
use model::Errno;
use model::changelog::RecordKind;
use model::inode_rules::{self, NamesChange};
use wire::msg::link::Link;
use wire::msg::lookup::Entry;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Link) -> Result<Entry, Errno> {
    tx.check_space()?;
    let mut i = tx.inode(m.fid)?;
    let (mut dir, cookie) = names::vacant(tx, ctx, m.parent, &m.name)?;
    inode_rules::may_link(&i.subject(), i.nlink)?;
    inode_rules::may_enter(&dir.subject(), dir.projid, i.projid)?;
    if i.nlink == 0 {
        if tx.orphan(m.fid)? != Some(OrphanKind::Tmpfile) {
            return Err(Errno::ENOENT);
        }
        tx.delete(key::orphan(m.fid));
    }
    inode_rules::linked(&mut i, ctx.now);
    tx.put_inode(m.fid, &mut i);
    tx.put_name(m.parent, cookie, &m.name, m.fid, i.kind);
    tx.names_changed(m.parent, &mut dir, NamesChange::added(i.kind), ctx.now);
    tx.notes.add(ctx.now, Change::of(RecordKind::Hardlink, m.fid).named(m.parent, &m.name));
    Ok(names::named(tx, m.parent, m.fid, &i))
}
