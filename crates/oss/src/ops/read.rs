//! read: bytes of an object, as far as it reaches.

use super::{Cx, Done, check_object, check_range, last_byte};
use model::{Errno, limits};
use wire::Bulk;
use wire::checksum::ChecksumType;
use wire::msg::read::{Read, ReadReply};

pub async fn run(cx: &Cx, m: Read) -> Result<Done, Errno> {
    check_object(m.object)?;
    if m.len as usize > limits::RPC_BULK_MAX_BYTES {
        return Err(Errno::EMSGSIZE);
    }
    check_range(m.offset, u64::from(m.len))?;
    let range = (m.offset, last_byte(m.offset, u64::from(m.len)));
    let _lock = cx.guard(m.object, m.lock, false, range).await?;
    cx.check_not_lost(m.object)?;
    let found = cx.ost.objects.read(m.object, m.offset, m.len).await.map_err(|e| e.errno())?;
    let store::object::Found { data, size: object_size, seen, crcs } = found;
    assert!(data.len() <= m.len as usize, "the store returned more than was asked for");
    let len = data.len() as u32;
    let to_end = m.offset.saturating_add(u64::from(len)) >= object_size;
    assert!(len == m.len || to_end, "an answer is short at the object's end only");
    let block_crcs = match m.checksum {
        // Those that were stored: from the writer to the reader nobody makes them anew.
        ChecksumType::Crc32c => crcs,
        other => other.of_read(m.offset, &data, object_size),
    };
    let bulk = Bulk::from(data).summed(m.checksum != ChecksumType::None);
    let reply = ReadReply { len, object_size, block_crcs };
    Ok(Done { bulk, bytes: u64::from(len), ..Done::looked(&reply, cx.seen(seen)) })
}
