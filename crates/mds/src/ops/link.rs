//! link: one more name for a file, also for an open unnamed one.

use crate::changelog::Change;
use crate::labels::{self, Moved};
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
    let unnamed = i.nlink == 0;
    if unnamed {
        if tx.orphan(m.fid)? != Some(OrphanKind::Tmpfile) {
            return Err(Errno::ENOENT);
        }
        tx.delete(key::orphan(m.fid));
    }
    // A file with several names is counted to one directory, which all of them lie in.
    let recounted = match labels::enter(tx, ctx, (m.fid, &mut i), dir.directory, Moved::Elsewhere) {
        Ok(true) if !unnamed && !tx.is_replay() => return Err(Errno::EXDEV),
        r => r?,
    };
    inode_rules::linked(&mut i, ctx.now);
    tx.put_inode(m.fid, &mut i);
    if recounted {
        tx.tell_owner(m.fid, &i);
    }
    tx.put_name(m.parent, cookie, &m.name, m.fid, i.kind);
    tx.names_changed(m.parent, &mut dir, NamesChange::added(i.kind), ctx.now);
    tx.notes.add(ctx.now, Change::of(RecordKind::Hardlink, m.fid).named(m.parent, &m.name));
    Ok(names::named(tx, m.parent, m.fid, &i))
}
