//! SETLK and SETLKW: takes or gives back a record lock or flock(2).

use super::Cx;
use super::getlk::lock_of;
use crate::abi::{LK_FLOCK, LkIn};
use crate::options::FileLocks;
use crate::reply::{Answer, Reply};
use client::PosixLock;
use model::{Errno, Fid};
use std::time::Duration;

/// How far a close's unlock, which nobody waits for, may lag behind the next lock request.
const CLOSE_LAG: Duration = Duration::from_millis(1);

pub async fn run(cx: Cx, a: LkIn, wait: bool) -> Answer {
    if cx.bridge.locks == FileLocks::Refused {
        return Err(Errno::ENOSYS);
    }
    let fid = cx.fid()?;
    let releases = cx.bridge.releases.clone();
    let seen = releases.count();
    releases.settle(fid).await;
    let mut got = lock(&cx, fid, &a, wait).await;
    if got == Err(Errno::EAGAIN) && !wait {
        // close(2) returns before its RELEASE, which gives flocks back, has run: whoever closed and locks
        // again must not find the closed file's lock in the way.
        cx.bridge.world.sleep(CLOSE_LAG).await;
        if releases.count() != seen {
            releases.settle(fid).await;
            got = lock(&cx, fid, &a, wait).await;
        }
    }
    got?;
    Ok(Reply::empty())
}

async fn lock(cx: &Cx, fid: Fid, a: &LkIn, wait: bool) -> Result<(), Errno> {
    let fs = cx.fs();
    let (mode, start, end) = lock_of(a)?;
    match (a.lk_flags & LK_FLOCK != 0, mode) {
        (true, Some(mode)) => client::Locks(&fs).flock(fid, a.owner, a.lk.pid, mode, wait).await,
        (true, None) => client::Locks(&fs).funlock(fid, a.owner).await,
        (false, Some(mode)) => {
            cx.bridge.handles.file(a.fh)?.note_lock_owner(a.owner)?;
            client::Locks(&fs)
                .setlk(fid, PosixLock { owner: a.owner, pid: a.lk.pid, mode, start, end }, wait)
                .await
        }
        (false, None) => client::Locks(&fs).unlk(fid, a.owner, start, end).await,
    }
}
