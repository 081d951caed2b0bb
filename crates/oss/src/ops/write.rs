//! write: bytes into an object, in place or at its end.

use super::{Cx, Done, check_object, check_range};
use crate::space::Need;
use bytes::Bytes;
use model::{Errno, limits};
use store::object::ObjectMeta;
use wire::msg::write::{Write, WriteReply};

pub async fn run(cx: &Cx, m: Write, data: Bytes) -> Result<Done, Errno> {
    let ost = &cx.ost;
    ost.writable()?;
    check_object(m.object)?;
    let len = data.len() as u64;
    if data.is_empty() {
        return Err(Errno::EPROTO);
    }
    if data.len() > limits::RPC_BULK_MAX_BYTES {
        return Err(Errno::EMSGSIZE);
    }
    let offset = if m.append { None } else { Some(m.offset) };
    check_range(offset.unwrap_or(0), len)?;
    let reserve = ost.settings.reserve();
    let _space = match ost.space.admit(Need::Grow(len), reserve) {
        Ok(a) => a,
        Err(Errno::ENOSPC) if overwrites(cx, &m, len)? => ost.space.admit(Need::Overhead, reserve)?,
        Err(e) => return Err(e),
    };
    let meta = ObjectMeta {
        file: m.file,
        uid: m.uid,
        gid: m.gid,
        projid: m.projid,
        time: Some(cx.stamp(m.inode_ctime)),
        layout_generation: cx.ctx.layout_generation,
    };
    let finish = cx.slot.clone().finish(|offset, attr| WriteReply { offset, attr: *attr });
    let (offset, attr, lsn) =
        ost.objects.write(m.object, offset, data, meta, finish).await.map_err(|e| e.errno())?;
    Ok(Done { bytes: len, ..Done::changed(&WriteReply { offset, attr }, lsn) })
}

/// Whether the range has its blocks already: such a write is fine on a full disk.
fn overwrites(cx: &Cx, m: &Write, len: u64) -> Result<bool, Errno> {
    let (attr, _) = cx.ost.objects.attr(m.object).map_err(|e| e.errno())?;
    let dense = attr.blocks.saturating_mul(512) >= attr.size;
    Ok(!m.append && m.offset.saturating_add(len) <= attr.size && dense)
}
