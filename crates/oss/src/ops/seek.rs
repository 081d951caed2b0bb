//! seek: the next data or hole of an object.

use super::{Cx, Done, check_object, check_range};
use model::Errno;
use wire::msg::seek::{Seek, SeekReply, Whence};

pub async fn run(cx: &Cx, m: &Seek) -> Result<Done, Errno> {
    check_object(m.object)?;
    check_range(m.offset, 0)?;
    let _lock = cx.guard(m.object, m.lock, false, (m.offset, u64::MAX)).await?;
    cx.check_not_lost(m.object)?;
    let objects = &cx.ost.objects;
    let hole = m.whence == Whence::Hole;
    let (offset, object_size) = objects.seek(m.object, m.offset, hole).map_err(|e| e.errno())?;
    let ahead = |o: u64| m.offset <= o && o <= object_size;
    assert!(offset.is_none_or(ahead), "what was found lies ahead, within the object");
    // Asked for afterwards, so it is no older than what was seen.
    let (_, seen) = objects.attr(m.object).map_err(|e| e.errno())?;
    Ok(Done::looked(&SeekReply { offset, object_size }, cx.seen(seen)))
}
