//! open: keeps a file alive for a client until its close.

use crate::names::{self, OpContext};
use crate::opens::Open;
use crate::schema::Inode;
use crate::tx::Tx;
use model::perm::O_ACCMODE;
use model::{Errno, Fid};
use wire::msg::create::OpenSpec;
use wire::msg::lookup::{Entry, bits};
use wire::msg::open::Open as OpenMsg;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: OpenMsg) -> Result<Entry, Errno> {
    let mut i = tx.inode(m.fid)?;
    open_existing(tx, ctx, m.fid, &mut i, &m.open)?;
    let e = names::entry(tx, m.fid, &i);
    names::with_content(tx, e, &i, m.data)
}

/// Checks, registers (unless a lease does), and gives a file without objects some if it is to be written.
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
    tx.notes.add_open(ctx.now, fid, open.flags);
    register(tx, ctx, fid, i, open)
}

/// Notes an open, unless the client has it under its lease. A file without a name needs nobody's lease to go:
/// the last close that is known ends it.
pub fn register(tx: &mut Tx, ctx: &OpContext, fid: Fid, i: &Inode, open: &OpenSpec) -> Result<(), Errno> {
    if open.lease && i.nlink > 0 && tx.offer(fid, bits::UPDATE).is_some() {
        return Ok(());
    }
    tx.add_open(ctx.client, open.handle, Open { fid, flags: open.flags })
}
