//! mkdir: a directory.

use crate::names::{self, OpContext};
use crate::tx::Tx;
use model::{Errno, FileType, inode_rules};
use wire::msg::lookup::Entry;
use wire::msg::mkdir::Mkdir;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Mkdir) -> Result<Entry, Errno> {
    let (dir, cookie) = names::vacant(tx, ctx, m.parent, &m.name)?;
    names::check_new_fid(tx, ctx, m.fid)?;
    let mut i = names::new_inode(ctx, &dir, FileType::Directory, m.mode, m.umask);
    i.default_layout = inode_rules::default_layout_of(m.parent, dir.default_layout.as_ref());
    names::add_file(tx, ctx, (m.parent, dir), (cookie, &m.name), (m.fid, &mut i));
    Ok(names::named(tx, m.parent, m.fid, &i))
}
