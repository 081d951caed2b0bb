//! removexattr: drops one extended attribute.

use super::getxattr::{Space, space, stored};
use super::setxattr;
use crate::changelog::Change;
use crate::names::OpContext;
use crate::tx::Tx;
use model::Errno;
use model::changelog::RecordKind;
use wire::msg::removexattr::Removexattr;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Removexattr) -> Result<(), Errno> {
    let s = space(&m.name)?;
    let mut i = tx.inode(m.fid)?;
    setxattr::may_change(ctx, &i, s)?;
    match s {
        // Removing an ACL that is not there is no error (Linux).
        Space::AccessAcl => i.acl = None,
        Space::DefaultAcl => i.default_acl = None,
        _ => {
            stored(tx, m.fid, &i, &m.name)?.ok_or(Errno::ENODATA)?;
            setxattr::remove(tx, m.fid, &mut i, &m.name);
        }
    }
    i.touch_ctime(ctx.now);
    tx.put_inode(m.fid, &mut i);
    tx.notes.add(ctx.now, Change::of(RecordKind::Setxattr, m.fid).xattr(&m.name));
    Ok(())
}
