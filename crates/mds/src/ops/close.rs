//! close: the end of an open. Unknown handles are no error.

use crate::names::OpContext;
use crate::tx::Tx;
use model::Errno;
use wire::msg::close::Close;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Close) -> Result<(), Errno> {
    match tx.open_of(ctx.client, m.handle) {
        Some(open) if open.fid == m.fid => {}
        Some(_) => return Err(Errno::EBADF),
        // It was open under a lease; or the close is done again after a restart, before which the client did not say
        // that it has it open.
        None => {}
    }
    if let (Some(t), Some(mut i)) = (m.atime, tx.try_inode(m.fid)?) {
        let t = tx.shared.clamp_time(t, ctx.wall);
        if t > i.atime && t.nsec < 1_000_000_000 {
            // Reading is no change of the inode: ctime stays.
            i.atime = t;
            tx.put_inode(m.fid, &mut i);
        }
    }
    tx.remove_open(ctx.client, m.handle)
}
