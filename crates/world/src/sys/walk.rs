//! Folders that a program walks through: opened however deep they lie, and what is in them by name.

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longest path that is given to the kernel at once (PATH_MAX is 4096 with its zero byte).
const PATH_BYTES: usize = 4000;
/// Longest value of an extended attribute (XATTR_SIZE_MAX).
const XATTR_BYTES: usize = 64 << 10;

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

/// An open folder.
pub struct WalkFolder {
    fd: OwnedFd,
}

impl WalkFolder {
    /// Opens the folder at `path`, whose length does not matter. `ENOTDIR` if it is something else.
    pub fn open(path: &Path) -> io::Result<WalkFolder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |at: &OwnedFd, p: &[u8]| rustix::fs::openat(at, p, flags, Mode::empty());
        let whole = path.as_os_str().as_bytes();
        if whole.len() <= PATH_BYTES {
            return Ok(WalkFolder { fd: rustix::fs::open(path, flags, Mode::empty())? });
        }
        let cut = |p: &[u8]| p[..=PATH_BYTES.min(p.len() - 1)].iter().rposition(|c| *c == b'/');
        let (mut rest, mut fd) = (whole, None);
        while rest.len() > PATH_BYTES {
            let at = cut(rest).filter(|at| *at > 0).ok_or(io::ErrorKind::InvalidFilename)?;
            fd = Some(match &fd {
                None => rustix::fs::open(OsStr::from_bytes(&rest[..at]), flags, Mode::empty())?,
                Some(fd) => open(fd, &rest[..at])?,
            });
            let slashes = rest[at..].iter().take_while(|c| **c == b'/').count();
            rest = &rest[at + slashes..];
        }
        let fd = fd.expect("a long path has a first part");
        Ok(WalkFolder { fd: if rest.is_empty() { fd } else { open(&fd, rest)? } })
    }

    /// Device number of the file system that it lies on.
    pub fn device(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.fd)?.st_dev)
    }

    /// Attributes of an entry as stat(2) has them, or if `lazy` as the kernel keeps them, perhaps from a
    /// while ago; a symbolic link is not followed.
    pub fn stat(&self, name: &OsStr, lazy: bool) -> io::Result<FullStat> {
        stat_at(self.fd.as_fd(), name, own(lazy))
    }

    /// An extended attribute of an entry, `None` if it has none of this name or cannot have any.
    pub fn xattr(&self, name: &OsStr, xattr: &OsStr) -> io::Result<Option<Vec<u8>>> {
        let mut path = OsString::from(format!("/proc/self/fd/{}/", self.fd.as_raw_fd()));
        path.push(name);
        self::xattr(&PathBuf::from(path), xattr)
    }
}

impl AsFd for WalkFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// As [`WalkFolder::stat`], of a path.
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

/// An extended attribute of what `path` names (a symbolic link itself), `None` if there is none of this name.
pub fn xattr(path: &Path, xattr: &OsStr) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; XATTR_BYTES];
    match rustix::fs::lgetxattr(path, xattr, value.as_mut_slice()) {
        Ok(n) => {
            value.truncate(n);
            Ok(Some(value))
        }
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_opened_however_long_their_paths_are() {
        let top = std::env::temp_dir().join(format!("tree{}", std::process::id()));
        std::fs::create_dir_all(&top).unwrap();
        let (mut path, name) = (top.clone(), "n".repeat(200));
        let mut at = WalkFolder::open(&top).unwrap();
        for _ in 0..30 {
            rustix::fs::mkdirat(&at, name.as_str(), Mode::from_raw_mode(0o700)).unwrap();
            path.push(&name);
            at = WalkFolder::open(&path).unwrap();
        }
        assert!(path.as_os_str().len() > PATH_BYTES);
        rustix::fs::mkdirat(&at, "last", Mode::from_raw_mode(0o700)).unwrap();
        assert!(at.stat(OsStr::new("last"), false).unwrap().mtime.0 > 0);
        assert!(WalkFolder::open(&path.join("none")).is_err_and(|e| e.kind() == io::ErrorKind::NotFound));
        assert_eq!(at.xattr(OsStr::new("last"), OsStr::new("user.none")).unwrap(), None);
        drop(at);
        std::fs::remove_dir_all(&top).unwrap();
    }
}
