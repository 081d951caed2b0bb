//! open: keeps a file alive for a client until its close.

use crate::names::{self, O_ACCMODE, OpContext};
use crate::opens::Open;
use crate::schema::Inode;
use crate::tx::Tx;
use model::{Errno, Fid};
use wire::msg::create::OpenSpec;
use wire::msg::lookup::Entry;
use wire::msg::open::Open as OpenMsg;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: OpenMsg) -> Result<Entry, Errno> {
    let mut i = tx.inode(m.fid)?;
    open_existing(tx, ctx, m.fid, &mut i, &m.open)?;
    Ok(names::entry(tx, m.fid, &i))
}

/// Checks, registers, and gives a file without objects some if it is to be written.
pub fn open_existing(
    tx: &mut Tx,
    ctx: &OpContext,
    fid: Fid,
    i: &mut Inode,
    open: &OpenSpec,
) -> Result<(), Errno> {
    const O_DIRECTORY: u32 = 0o200000;
    if open.flags & O_DIRECTORY != 0 && !i.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    names::may_open(ctx, i, open.flags)?;
    if open.flags & O_ACCMODE != 0 && names::instantiate(tx, fid, i)? {
        tx.put_inode(fid, i);
    }
    tx.add_open(ctx.client, open.handle, Open { fid, flags: open.flags })
}
