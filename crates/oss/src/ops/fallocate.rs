//! fallocate: reserves, zeroes or punches a range of an object.

use super::{Cx, Done, check_object, check_range, last_byte};
use crate::space::Need;
use model::Errno;
use wire::msg::fallocate::{FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE, Fallocate};

pub async fn run(cx: &Cx, m: Fallocate) -> Result<Done, Errno> {
    let ost = &cx.ost;
    ost.writable()?;
    check_object(m.object)?;
    check_mode(m.mode)?;
    if m.len == 0 {
        return Err(Errno::EINVAL);
    }
    let behind = check_range(m.offset, m.len)?;
    // Without a lock of the sender's: it may grow the object.
    let end = if m.lock == 0 { u64::MAX } else { last_byte(m.offset, m.len) };
    let _lock = cx.guard(m.object, m.lock, true, (m.offset, end)).await?;
    cx.check_not_lost(m.object)?;
    let mut grows = None;
    let _space = if m.mode & FALLOC_PUNCH_HOLE != 0 || cx.replay.is_some() {
        None
    } else {
        let attr = cx.attr_now(m.object)?;
        let have = attr.blocks.saturating_mul(512);
        let need = behind.saturating_sub(have).min(m.len);
        grows = (need > 0).then_some(need);
        let need = if need == 0 { Need::Overhead } else { Need::Grow(need) };
        Some(ost.space.admit(need, ost.settings.reserve())?)
    };
    let meta = cx.meta(m.file, Some(cx.stamp(m.inode_ctime)));
    let owner = meta.owner;
    let share = match grows {
        Some(bytes) => cx.within_share(m.object, owner, bytes, false).await?,
        None => None,
    };
    let same = cx.same_attr();
    let finish = cx.slot.clone().finish(move |_, attr| same(attr));
    let (attr, lsn) = ost
        .objects
        .fallocate(m.object, m.mode, m.offset, m.len, meta, finish)
        .await
        .map_err(|e| e.errno())?;
    if let Some(share) = share {
        share.written(attr.blocks);
    }
    let keeps_size = m.mode & FALLOC_KEEP_SIZE != 0;
    assert!(keeps_size || behind <= attr.size, "an object that space was made in reaches to its end");
    Ok(Done::changed(&same(&attr), lsn))
}

/// fallocate(2)'s rules: `EOPNOTSUPP` for modes that are not known here, and for a punch that would change
/// the size.
fn check_mode(mode: u32) -> Result<(), Errno> {
    let known = FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE | FALLOC_ZERO_RANGE;
    let (keep, punch, zero) =
        (mode & FALLOC_KEEP_SIZE != 0, mode & FALLOC_PUNCH_HOLE != 0, mode & FALLOC_ZERO_RANGE != 0);
    if mode & !known != 0 || (punch && zero) || (punch && !keep) {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(())
}
