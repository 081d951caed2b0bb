//! SETATTR: modes, owners, times, size.

use super::Cx;
use crate::abi::{SetattrIn, fattr};
use crate::reply::{Answer, Reply};
use model::{Attr, Errno, SetAttr, SetTime, Timestamp};
use std::time::Duration;

pub async fn run(cx: Cx, a: SetattrIn) -> Answer {
    let fid = cx.fid()?;
    let set = translate(&cx, &a);
    cx.bridge.writeback.settle(fid).await;
    let attr = match cx.fs().setattr(cx.call(), fid, set.clone()).await {
        Err(e @ (Errno::ENOENT | Errno::ESTALE)) => {
            change_removed(&cx, cx.bridge.nodes.removed_dir(fid).ok_or(e)?, &set)
        }
        r => r?,
    };
    cx.bridge.nodes.note(&attr);
    // The kernel takes these over without a look at what was revoked since it asked.
    Ok(Reply::attr(&attr, Duration::ZERO))
}

/// The servers know nothing of a removed directory any more. The kernel has checked the permission; who still
/// has it sees the change.
fn change_removed(cx: &Cx, last: Attr, set: &SetAttr) -> Attr {
    let now = cx.bridge.world.wall();
    let at = |t: SetTime| match t {
        SetTime::Now => now,
        SetTime::At(t) => t,
    };
    Attr {
        mode: set.mode.unwrap_or(last.mode),
        uid: set.uid.unwrap_or(last.uid),
        gid: set.gid.unwrap_or(last.gid),
        atime: set.atime.map_or(last.atime, at),
        mtime: set.mtime.map_or(last.mtime, at),
        ctime: now,
        ..last
    }
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
