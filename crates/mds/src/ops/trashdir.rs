//! trashdir: what loses its last name in a directory goes into the trash from now on, or does not any more.

use crate::changelog::Change;
use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::names::OpContext;
use crate::tx::Tx;
use model::changelog::RecordKind;
use model::inode_rules::FLAG_TRASH;
use model::perm::FLAG_IMMUTABLE;
use model::{Errno, Fid};
use wire::encode_message;
use wire::msg::trashdir::Trashdir;

/// Whoever has the directory for himself gives it back first, who asks as well: from then on nobody gets it
/// so, and all names are removed here.
pub async fn run(mdt: &Mdt, to: &ReplyTo, ctx: &OpContext, m: Trashdir) -> Done {
    mdt.transactions.transact_by(None, Some(to), |tx| set(tx, ctx, m.fid, m.on)).await
}

fn set(tx: &mut Tx, ctx: &OpContext, fid: Fid, on: bool) -> Result<Vec<u8>, Errno> {
    let mut i = tx.dir(fid)?;
    if i.nlink == 0 {
        return Err(Errno::ENOENT);
    }
    if !(ctx.cred.is_root() || ctx.cred.uid == i.uid) || i.flags & FLAG_IMMUTABLE != 0 {
        return Err(Errno::EPERM);
    }
    if (i.flags & FLAG_TRASH != 0) != on {
        i.flags ^= FLAG_TRASH;
        assert_eq!(i.flags & FLAG_TRASH != 0, on, "it is as it was asked for");
        i.touch_ctime(ctx.now);
        tx.put_inode(fid, &mut i);
        tx.withdraw_directory(fid);
        tx.notes.add(ctx.now, Change::of(RecordKind::Setattr, fid));
    }
    Ok(encode_message(&()))
}
