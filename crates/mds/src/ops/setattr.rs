//! setattr: modes, owners, times, and the metadata side of a truncate: all of it where the data lies with the
//! inode.

use super::setxattr;
use crate::data;
use crate::names::{self, OpContext};
use crate::tx::Tx;
use model::Errno;
use model::inode_rules;
use wire::msg::lookup::Entry;
use wire::msg::setattr::Setattr;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Setattr) -> Result<Entry, Errno> {
    let mut i = tx.inode(m.fid)?;
    let s = &m.set;
    inode_rules::may_set(&ctx.cred, &i.subject(), i.projid, s)?;
    if inode_rules::changes_project(&i.subject(), i.projid, s)
        && !tx.shared.settings.may_set_project(&ctx.cred)
    {
        return Err(Errno::EPERM);
    }
    if inode_rules::is_nothing(&ctx.cred, i.uid, s) {
        return Ok(names::entry(tx, m.fid, &i));
    }
    if inode_rules::drops_capability(s) {
        setxattr::drop_capability(tx, m.fid, &mut i)?;
    }
    if let Some(size) = s.size {
        if size > 0 {
            names::instantiate(tx, m.fid, &mut i)?;
        }
        if i.data_room().is_some() {
            data::check_change(tx, m.fid, &i, size)?;
            data::cut(tx, m.fid, &mut i, size)?;
            i.data.version = i.data.version.saturating_add(1);
        }
    }
    let owner = i.owner();
    inode_rules::set(&mut i, s, &ctx.cred, ctx.now);
    tx.put_inode(m.fid, &mut i);
    if i.owner() != owner {
        tx.tell_owner(m.fid, &i);
    }
    tx.notes.add_attributes(ctx.now, m.fid, s);
    Ok(names::entry(tx, m.fid, &i))
}
