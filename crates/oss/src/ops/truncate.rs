//! truncate: sets an object's size. Cutting is always possible, also on a full disk.

use super::{Cx, Done, check_object, check_range};
use model::Errno;
use wire::msg::truncate::Truncate;

pub async fn run(cx: &Cx, m: Truncate) -> Result<Done, Errno> {
    cx.ost.writable()?;
    check_object(m.object)?;
    check_range(m.size, 0)?;
    let _lock = cx.guard(m.object, m.lock, true, (m.size, u64::MAX)).await?;
    // Truncated to nothing, a lost object begins anew: the change of its times makes it one of this target's.
    let lost = cx.ost.is_lost(m.object)?;
    if lost && m.size > 0 {
        return Err(Errno::ELOST);
    }
    let time = (!m.keep_times || lost).then(|| cx.stamp(m.inode_ctime));
    let same = cx.same_attr();
    let finish = cx.slot.clone().finish(move |_, attr| same(attr));
    let (attr, lsn) = cx
        .ost
        .objects
        .truncate(m.object, m.size, cx.meta(m.file, time), finish)
        .await
        .map_err(|e| e.errno())?;
    assert_eq!(attr.size, m.size, "a truncated object has the size that was asked for");
    if lsn == 0 {
        // It only shows what is there.
        let (_, newest) = cx.ost.objects.attr(m.object).map_err(|e| e.errno())?;
        return Ok(Done::looked(&attr, cx.seen(newest)));
    }
    Ok(Done::changed(&same(&attr), lsn))
}
