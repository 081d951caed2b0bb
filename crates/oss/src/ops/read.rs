//! read: bytes of an object, as far as it reaches.

use super::{Cx, Done, check_object, check_range};
use model::{Errno, limits};
use wire::msg::read::{Read, ReadReply};

pub async fn run(cx: &Cx, m: Read) -> Result<Done, Errno> {
    check_object(m.object)?;
    if m.len as usize > limits::RPC_BULK_MAX_BYTES {
        return Err(Errno::EMSGSIZE);
    }
    check_range(m.offset, u64::from(m.len))?;
    let (data, object_size, seen) =
        cx.ost.objects.read(m.object, m.offset, m.len).await.map_err(|e| e.errno())?;
    assert!(data.len() <= m.len as usize, "the store returned more than was asked for");
    let len = data.len() as u32;
    let reply = ReadReply { len, object_size, block_crcs: Vec::new() };
    Ok(Done { bulk: data.into(), bytes: u64::from(len), ..Done::looked(&reply, seen) })
}
