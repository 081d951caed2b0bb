//! SETATTR: modes, owners, times, size.

use super::Cx;
use crate::abi::{SetattrIn, fattr};
use crate::reply::{Answer, Reply};
use model::{SetAttr, SetTime, Timestamp};
use std::time::Duration;

pub async fn run(cx: Cx, a: SetattrIn) -> Answer {
    let fid = cx.fid()?;
    let set = translate(&cx, &a);
    cx.bridge.writeback.settle(fid).await;
    let attr = cx.fs().setattr(cx.call(), fid, set).await?;
    // The kernel takes these over without a look at what was revoked since it asked.
    Ok(Reply::attr(&attr, Duration::ZERO))
}

fn translate(cx: &Cx, a: &SetattrIn) -> SetAttr {
    let has = |bit| a.valid & bit != 0;
    let time = |set, now, sec: u64, nsec| match (has(now), has(set)) {
        (true, _) => Some(SetTime::Now),
        (false, true) => Some(SetTime::At(Timestamp { sec: sec as i64, nsec })),
        (false, false) => None,
    };
    // ftruncate(2) on a handle that was opened for writing: permission was checked then.
    let by_handle = has(fattr::FH) && cx.bridge.handles.file(a.fh).is_ok_and(|f| f.writable());
    SetAttr {
        mode: has(fattr::MODE).then_some(a.mode & 0o7777),
        uid: has(fattr::UID).then_some(a.uid),
        gid: has(fattr::GID).then_some(a.gid),
        projid: None,
        size: has(fattr::SIZE).then_some(a.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, a.atime, a.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, a.mtime, a.mtimensec),
        kill_suid_sgid: has(fattr::KILL_SUIDGID),
        flags: None,
        by_handle,
    }
}
