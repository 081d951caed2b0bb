//! readlink: the target of a symbolic link.

use crate::names::OpContext;
use crate::tx::Tx;
use model::{Errno, FileType};
use wire::msg::readlink::{Readlink, ReadlinkReply};

pub fn run(tx: &mut Tx, _ctx: &OpContext, m: Readlink) -> Result<ReadlinkReply, Errno> {
    let i = tx.inode(m.fid)?;
    if i.kind != FileType::Symlink {
        return Err(Errno::EINVAL);
    }
    Ok(ReadlinkReply { target: i.symlink })
}
