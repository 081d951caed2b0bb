//! write: bytes into an object, in place or at its end.

use super::{Cx, Done, check_object, check_range, last_byte, same_blocks};
use crate::shares::ShareUse;
use crate::space::{Admission, Need};
use crate::stats::OstCounter;
use bytes::Bytes;
use model::nodemap::Owner;
use model::{Errno, ObjectAttr, limits};
use store::object::ObjectMeta;
use wire::checksum::ChecksumType;
use wire::msg::write::{Write, WriteReply};
use wire::trailing::Trailing;

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
    check_range(if m.append { 0 } else { m.offset }, len)?;
    // Done again, an append goes where it went, and finds the room that it had. Any other write went where it
    // says.
    let first = cx.first_reply::<WriteReply>();
    if first.as_ref().is_some_and(|r| !m.append && r.offset != m.offset) {
        return Err(Errno::EPROTO);
    }
    let offset = match &first {
        Some(r) => Some(r.offset),
        None if m.append => None,
        None => Some(m.offset),
    };
    check_range(offset.unwrap_or(0), len)?;
    // Those of an append are of blocks counted from its first byte: done again at an offset, they are made
    // anew.
    let counted_from = if m.append { 0 } else { m.offset };
    let crcs = compared(cx, &m, counted_from, &data, &m.block_crcs)?;
    let crcs = crcs.filter(|_| !m.append || first.is_none()).map(<[u32]>::to_vec);
    let range = if m.append { (0, u64::MAX) } else { (m.offset, last_byte(m.offset, len)) };
    let _lock = cx.guard(m.object, m.lock, true, range).await?;
    cx.check_not_lost(m.object)?;
    let end = m.offset.saturating_add(len);
    let _space = admitted(cx, &m, len, end)?;
    let share = within_share(cx, &m, len, end).await?;
    let same = same_blocks(first.as_ref().map(|r| &r.attr));
    let finish = cx.slot.clone().finish(move |offset, attr| reply_of(offset, same(attr), Trailing(None)));
    let (offset, attr, lsn) = ost
        .objects
        .write_summed(m.object, offset, data, crcs, meta_of(cx, &m), finish)
        .await
        .map_err(|e| e.errno())?;
    assert!(offset.saturating_add(len) <= attr.size, "what was written lies within the object");
    if let Some(share) = share {
        share.written(attr.blocks);
    }
    let reply = reply_of(offset, same(&attr), cx.may_keep(owner_of(cx, &m)));
    Ok(Done { bytes: len, ..Done::changed(&reply, lsn) })
}

pub(super) fn reply_of(offset: u64, attr: ObjectAttr, may_keep: Trailing<u64>) -> WriteReply {
    WriteReply { offset, attr, entry: None, may_keep }
}

/// To whom a write is counted.
pub(super) fn owner_of(cx: &Cx, m: &Write) -> Owner {
    cx.map.owner(Owner { directory: cx.ctx.directory(), ..Owner::new(m.uid, m.gid, m.projid) })
}

/// The owner's share has room for a write of so many bytes, the last of them before `end`.
pub(super) async fn within_share(cx: &Cx, m: &Write, len: u64, end: u64) -> Result<Option<ShareUse>, Errno> {
    if !cx.ost.shares.is_active() {
        return Ok(None);
    }
    let attr = cx.attr_now(m.object)?;
    if overwrites(m, &attr, end) {
        return Ok(None);
    }
    cx.within_share(m.object, owner_of(cx, m), len, m.granted).await
}

/// For whom a write is made.
pub(super) fn meta_of(cx: &Cx, m: &Write) -> ObjectMeta {
    ObjectMeta {
        file: m.file,
        owner: owner_of(cx, m),
        owner_as_of: Some(m.inode_ctime),
        time: Some(cx.stamp(m.inode_ctime)),
        data_version: None,
        label: cx.ctx.object_label().map(<[u8]>::to_vec),
    }
}

/// The client's checksums `sums` of data for `offset`, if they are such as are stored. `EBADMSG`: the data is
/// not what the client sent.
pub(super) fn compared<'a>(
    cx: &Cx,
    m: &Write,
    offset: u64,
    data: &[u8],
    sums: &'a [u32],
) -> Result<Option<&'a [u32]>, Errno> {
    if let Some(at) = m.checksum.differs_in_write(offset, data, sums) {
        cx.ost.stats.add(OstCounter::ChecksumWireErrors, 1);
        model::event!(
            WARN,
            ChangedOnTheWay,
            cx.ost.label(),
            "{}: write to object {} of file {} at {at}: the data changed on the way from the client: it is asked again",
            cx.ost.label(),
            m.object,
            m.file
        );
        return Err(Errno::EBADMSG);
    }
    Ok((m.checksum == ChecksumType::Crc32c).then_some(sums))
}

/// Room for a write of so many bytes, the last of them before `end`.
pub(super) fn admitted(cx: &Cx, m: &Write, len: u64, end: u64) -> Result<Admission, Errno> {
    let (space, reserve) = (&cx.ost.space, cx.ost.settings.reserve());
    let promised = m.granted.then_some(cx.slot.client);
    let need = if cx.replay.is_some() { Need::Overhead } else { Need::Grow(len) };
    match space.admit_for(need, reserve, promised) {
        Err(Errno::ENOSPC) if overwrites(m, &cx.attr_now(m.object)?, end) => {
            space.admit(Need::Overhead, reserve)
        }
        other => other,
    }
}

/// Whether everything up to `end` has its blocks already: such a write is fine on a full disk.
fn overwrites(m: &Write, attr: &ObjectAttr, end: u64) -> bool {
    let dense = attr.blocks.saturating_mul(512) >= attr.size;
    !m.append && end <= attr.size && dense
}
