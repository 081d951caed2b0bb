//! unlink: removes a name that is no directory.

use crate::changelog::Change;
use crate::labels;
use crate::names::{self, OpContext};
use crate::schema::Inode;
use crate::trash;
use crate::tx::Tx;
use model::changelog::RecordKind;
use model::inode_rules::{self, NamesChange};
use model::{Errno, Fid};
use wire::msg::unlink::{Changed, Unlink};

/// What becomes of a file that loses its last name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last {
    /// It goes into the trash, if its directory wants that.
    Trash,
    /// It goes.
    Gone,
}

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Unlink) -> Result<Changed, Errno> {
    remove(tx, ctx, (m.parent, &m.name), |_, _, _| Ok(Last::Trash))
}

/// Removes a name that is no directory, if `may_go` does not refuse that for its file.
pub fn remove(
    tx: &mut Tx,
    ctx: &OpContext,
    (parent, name): (Fid, &[u8]),
    may_go: impl FnOnce(&mut Tx, Fid, &Inode) -> Result<Last, Errno>,
) -> Result<Changed, Errno> {
    inode_rules::check_name(name)?;
    if inode_rules::is_dots(name) {
        return Err(Errno::EISDIR);
    }
    let (mut dir, d, mut victim) = names::removable(tx, ctx, parent, name)?;
    if victim.is_dir() {
        return Err(Errno::EISDIR);
    }
    let last = may_go(tx, d.fid, &victim)?;
    tx.delete_name(parent, d.cookie, name, d.fid);
    tx.names_changed(parent, &mut dir, NamesChange::removed(victim.kind), ctx.now);
    if last == Last::Trash && trash::takes(&dir, &victim) {
        trash::take_in(tx, ctx, (d.fid, &mut victim), (parent, name))?;
    } else {
        drop_link(tx, ctx, (d.fid, &mut victim), dir.directory)?;
    }
    let change = Change::of(RecordKind::Unlink, d.fid).named(parent, name);
    tx.notes.add(ctx.now, change.last_name(victim.nlink == 0));
    names::changed(tx)
}

/// One name less, which was in a directory that is counted to `label`; the last one takes the file along,
/// unless it is open.
pub fn drop_link(tx: &mut Tx, ctx: &OpContext, (fid, i): (Fid, &mut Inode), label: u32) -> Result<(), Errno> {
    assert!(!i.is_dir() || i.entries == 0, "{fid} is removed but not empty");
    if inode_rules::unlinked(i, ctx.now) {
        labels::removed(tx, fid, i);
        return tx.unlinked(fid, i);
    }
    let recounted = labels::name_removed(tx, ctx, (fid, i), label)?;
    tx.put_inode(fid, i);
    if recounted {
        tx.tell_owner(fid, i);
    }
    Ok(())
}
