//! fence: waits until nobody has a lock on the object, and with that until all that was kept under locks is
//! there; then requests by older layouts are refused.

use super::{Cx, Done, check_object};
use model::Errno;
use model::planted::{self, Bug};
use wire::msg::fence::Fence;

pub async fn run(cx: &Cx, m: Fence) -> Result<Done, Errno> {
    cx.ost.writable()?;
    check_object(m.object)?;
    let alone = if planted::on(Bug::FenceBesideLocks) {
        None
    } else {
        // Readers keep bytes, too, and so do kernels of theirs.
        let everybody = !planted::on(Bug::MappingOfOldObjects);
        cx.ost.locks.guard(cx.slot.client, m.object, 0, everybody, (0, u64::MAX)).await?
    };
    cx.check_not_lost(m.object)?;
    let meta = cx.meta(m.file, None);
    let finish = cx.slot.clone().finish(move |_, attr| *attr);
    let (attr, lsn) =
        cx.ost.objects.fence(m.object, meta, m.generation, m.times, finish).await.map_err(|e| e.errno())?;
    assert!(
        m.times.is_none_or(|t| t == (attr.mtime, attr.ctime)),
        "an object gets the times that it is given"
    );
    // What is copied from here on is the file's data for good: nothing may come from before a restart.
    cx.ost.db.durable_in_time(lsn).await.map_err(|e| e.errno())?;
    drop(alone);
    Ok(Done::changed(&attr, lsn))
}
