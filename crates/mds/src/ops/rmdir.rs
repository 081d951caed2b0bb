//! rmdir: removes an empty directory.

use crate::names::{self, OpContext};
use crate::tx::Tx;
use model::Errno;
use wire::msg::rmdir::Rmdir;
use wire::msg::unlink::Changed;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Rmdir) -> Result<Changed, Errno> {
    names::check_name(&m.name)?;
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
    dir.entries = dir.entries.saturating_sub(1);
    dir.nlink = dir.nlink.saturating_sub(1);
    tx.touch_dir(m.parent, &mut dir, ctx.now);
    super::unlink::drop_link(tx, ctx, d.fid, &mut victim)?;
    names::changed(tx)
}
