//! symlink: a symbolic link.

use crate::names::{self, OpContext};
use crate::tx::Tx;
use model::{Errno, FileType, limits};
use wire::msg::lookup::Entry;
use wire::msg::symlink::Symlink;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Symlink) -> Result<Entry, Errno> {
    if m.target.is_empty() {
        return Err(Errno::ENOENT);
    }
    if m.target.len() > limits::SYMLINK_MAX_BYTES {
        return Err(Errno::ENAMETOOLONG);
    }
    if m.target.contains(&0) {
        return Err(Errno::EINVAL);
    }
    let (dir, cookie) = names::vacant(tx, ctx, m.parent, &m.name)?;
    names::check_new_fid(tx, ctx, m.fid)?;
    let mut i = names::new_inode(ctx, &dir, FileType::Symlink, 0o777, 0);
    i.symlink = m.target;
    names::add_file(tx, ctx, (m.parent, dir), (cookie, &m.name), (m.fid, &mut i));
    Ok(names::named(tx, m.parent, m.fid, &i))
}
