//! OPENDIR: the kernel has checked the permission; the servers keep no state for it. What goes wrong with
//! the directory from now on its fsync reports.

use super::{Cx, gone};
use crate::abi::OpenOut;
use crate::reply::{Answer, Reply};

pub async fn run(cx: Cx) -> Answer {
    let fid = cx.fid()?;
    // As a rule it is known from the lookup.
    match cx.fs().getattr(cx.call_by_handle(), fid).await {
        Ok(attr) => cx.bridge.nodes.note(&attr),
        // `.` of whoever works in it. It has no entries any more.
        Err(e) if cx.is_removed_dir(fid, e) => {}
        Err(e) => return Err(gone(e)),
    }
    let fh = cx.bridge.handles.insert_dir(fid, cx.fs().watch_errors(fid));
    Ok(Reply::of(&OpenOut { fh, open_flags: 0, backing_id: 0 }))
}
