//! link: one more name for a file, also for an open unnamed one.

use crate::names::{self, OpContext};
use crate::schema::{OrphanKind, key};
use crate::tx::Tx;
use model::perm::{FLAG_APPEND, FLAG_IMMUTABLE};
use model::planted::{self, Bug};
use model::{Errno, limits};
use wire::msg::link::Link;
use wire::msg::lookup::Entry;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Link) -> Result<Entry, Errno> {
    tx.check_space()?;
    let mut i = tx.inode(m.fid)?;
    let (mut dir, cookie) = names::vacant(tx, ctx, m.parent, &m.name)?;
    if i.is_dir() || i.flags & (FLAG_APPEND | FLAG_IMMUTABLE) != 0 {
        return Err(Errno::EPERM);
    }
    if i.nlink == 0 {
        if tx.orphan(m.fid)? != Some(OrphanKind::Tmpfile) {
            return Err(Errno::ENOENT);
        }
        tx.delete(key::orphan(m.fid));
    }
    if i.nlink >= limits::LINK_MAX_LINKS {
        return Err(Errno::EMLINK);
    }
    if !planted::on(Bug::LinkCountForgotten) {
        i.nlink = i.nlink.saturating_add(1);
    }
    i.touch_ctime(ctx.now);
    tx.put_inode(m.fid, &mut i);
    tx.put_name(m.parent, cookie, &m.name, m.fid, i.kind);
    dir.entries = dir.entries.saturating_add(1);
    tx.touch_dir(m.parent, &mut dir, ctx.now);
    Ok(names::named(tx, m.parent, m.fid, &i))
}
