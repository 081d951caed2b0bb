//! mknod: a device node, FIFO, socket, or an unopened regular file.

use crate::names::{self, OpContext};
use crate::tx::Tx;
use model::{Errno, FileType};
use wire::msg::lookup::Entry;
use wire::msg::mknod::Mknod;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Mknod) -> Result<Entry, Errno> {
    let (dir, cookie) = names::vacant(tx, ctx, m.parent, &m.name)?;
    let device = matches!(m.kind, FileType::CharDevice | FileType::BlockDevice);
    match m.kind {
        FileType::Directory => return Err(Errno::EPERM),
        FileType::Symlink => return Err(Errno::EINVAL),
        _ if device && !ctx.cred.is_root() => return Err(Errno::EPERM),
        _ => {}
    }
    names::check_new_fid(tx, ctx, m.fid)?;
    let mut i = names::new_inode(ctx, &dir, m.kind, m.mode, m.umask);
    if device {
        i.rdev = m.rdev;
    }
    if m.kind == FileType::Regular {
        names::lay_out(tx, m.fid, &mut i, None, dir.default_layout.as_ref())?;
    }
    names::add_file(tx, ctx, (m.parent, dir), (cookie, &m.name), (m.fid, &mut i));
    Ok(names::named(tx, m.parent, m.fid, &i))
}
