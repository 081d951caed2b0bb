//! GETLK: which record lock is in the way.

use super::Cx;
use crate::abi::{FileLock, LkIn, LkOut};
use crate::options::FileLocks;
use crate::reply::{Answer, Reply};
use client::PosixLock;
use model::Errno;
use wire::msg::enqueue::LockMode;

/// The kernel's "to the end".
pub const OFFSET_MAX: u64 = i64::MAX as u64;

/// The lock a request names; `None`: unlock. `EINVAL` for a range that is none.
pub fn lock_of(a: &LkIn) -> Result<(Option<LockMode>, u64, u64), Errno> {
    let mode = match i32::try_from(a.lk.kind).map_err(|_| Errno::EINVAL)? {
        libc::F_RDLCK => Some(LockMode::Read),
        libc::F_WRLCK => Some(LockMode::Write),
        libc::F_UNLCK => None,
        _ => return Err(Errno::EINVAL),
    };
    let end = if a.lk.end >= OFFSET_MAX { u64::MAX } else { a.lk.end };
    if a.lk.start > end {
        return Err(Errno::EINVAL);
    }
    Ok((mode, a.lk.start, end))
}

pub async fn run(cx: Cx, a: LkIn) -> Answer {
    if cx.bridge.locks == FileLocks::Refused {
        return Err(Errno::ENOSYS);
    }
    let fid = cx.fid()?;
    let (mode, start, end) = lock_of(&a)?;
    let mode = mode.ok_or(Errno::EINVAL)?;
    let lock = PosixLock { owner: a.owner, pid: a.lk.pid, mode, start, end };
    let free = FileLock { kind: libc::F_UNLCK as u32, ..a.lk };
    let lk = match client::Locks(&cx.bridge.fs).getlk(fid, lock).await? {
        None => free,
        Some(c) => FileLock {
            start: c.start,
            end: c.end.min(OFFSET_MAX),
            kind: if c.mode == LockMode::Write { libc::F_WRLCK as u32 } else { libc::F_RDLCK as u32 },
            pid: c.pid,
        },
    };
    Ok(Reply::of(&LkOut { lk }))
}
