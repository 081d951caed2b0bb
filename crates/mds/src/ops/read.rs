//! read: bytes that lie with their inode.

use crate::data;
use crate::names::OpContext;
use crate::tx::Tx;
use model::{Errno, limits};
use wire::msg::read::{Read, ReadReply};

pub fn run(tx: &mut Tx, _ctx: &OpContext, m: Read) -> Result<ReadReply, Errno> {
    if m.len as usize > limits::RPC_BULK_MAX_BYTES {
        return Err(Errno::EMSGSIZE);
    }
    let i = data::of(tx, m.object)?;
    let bytes = data::read(tx, m.object.origin, &i, m.offset, u64::from(m.len))?;
    assert!(bytes.len() <= m.len as usize, "no more is read than was asked for");
    let (len, object_size) = (bytes.len() as u32, i.data.size);
    let block_crcs = m.checksum.of_read(m.offset, &bytes, object_size);
    tx.reply_data = bytes;
    Ok(ReadReply { len, object_size, block_crcs })
}
