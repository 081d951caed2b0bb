//! What statx(2) tells more than stat(2): the time of birth, and what the kernel keeps without asking.

use super::tree::Folder;
use rustix::fs::{AtFlags, StatxFlags};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// What statx(2) tells of a name: times as (seconds since 1970, nanoseconds), space in 512-byte blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FullStat {
    /// Bytes.
    pub size: u64,
    pub blocks: u64,
    pub atime: (i64, u32),
    pub mtime: (i64, u32),
    pub ctime: (i64, u32),
    /// `None` on file systems that do not know it.
    pub btime: Option<(i64, u32)>,
}

/// Attributes of an entry of a folder as stat(2) has them, or if `lazy` as the kernel keeps them, perhaps
/// from a while ago; a symbolic link is not followed.
pub fn stat_in(dir: &Folder, name: &OsStr, lazy: bool) -> io::Result<FullStat> {
    stat_at(dir.as_fd(), name, own(lazy))
}

/// As [`stat_in`], of a path.
pub fn stat(path: &Path, lazy: bool) -> io::Result<FullStat> {
    stat_at(rustix::fs::CWD, path.as_os_str(), own(lazy))
}

/// Times of what `path` names, links followed; for programs that compare others with them.
pub fn times(path: &Path) -> io::Result<FullStat> {
    stat_at(rustix::fs::CWD, path.as_os_str(), AtFlags::empty())
}

fn own(lazy: bool) -> AtFlags {
    AtFlags::SYMLINK_NOFOLLOW | if lazy { AtFlags::STATX_DONT_SYNC } else { AtFlags::empty() }
}

fn stat_at(dir: BorrowedFd<'_>, name: &OsStr, how: AtFlags) -> io::Result<FullStat> {
    let s = rustix::fs::statx(dir, name, how, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    let time = |t: rustix::fs::StatxTimestamp| (t.tv_sec, t.tv_nsec);
    let knows_birth = s.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(FullStat {
        size: s.stx_size,
        blocks: s.stx_blocks,
        atime: time(s.stx_atime),
        mtime: time(s.stx_mtime),
        ctime: time(s.stx_ctime),
        btime: knows_birth.then(|| time(s.stx_btime)),
    })
}
