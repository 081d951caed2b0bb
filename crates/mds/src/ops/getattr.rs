//! getattr: a file by FID.

use crate::names::{self, OpContext};
use crate::tx::Tx;
use model::Errno;
use wire::msg::getattr::Getattr;
use wire::msg::lookup::Entry;

pub fn run(tx: &mut Tx, _ctx: &OpContext, m: Getattr) -> Result<Entry, Errno> {
    let i = tx.inode(m.fid)?;
    Ok(names::entry(tx, m.fid, &i))
}
