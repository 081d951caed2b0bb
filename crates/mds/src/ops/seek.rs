//! seek: the next data or hole of bytes that lie with their inode.

use crate::data;
use crate::names::OpContext;
use crate::tx::Tx;
use model::Errno;
use wire::msg::seek::{Seek, SeekReply, Whence};

pub fn run(tx: &mut Tx, _ctx: &OpContext, m: Seek) -> Result<SeekReply, Errno> {
    let i = data::of(tx, m.object)?;
    let offset = data::seek(tx, m.object.origin, &i, m.offset, m.whence == Whence::Hole)?;
    Ok(SeekReply { offset, object_size: i.data.size })
}
