//! Mounting: /dev/fuse and mount(2).

use crate::options::MountPoint;
use client::control::{NOATIME, READ_ONLY, Request};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Type in /proc/mounts.
pub const FSTYPE: &str = "fuse.nacre";
const DEVICE: &str = "/dev/fuse";
const FUSE_DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;

/// Why mounting failed: what, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct MountError {
    pub errno: model::Errno,
    pub message: String,
}

fn error(e: io::Error, message: String) -> MountError {
    MountError { errno: e.into(), message }
}

/// A mounted directory and the kernel's end of it.
#[derive(Debug)]
pub struct Mounted {
    pub(crate) device: OwnedFd,
    pub dir: PathBuf,
    /// Minor number of `st_dev`: names the connection below /sys/fs/fuse/connections.
    pub minor: Option<u32>,
    pub read_only: bool,
    /// `-o dirsync` or `-o sync`.
    pub dirsync: bool,
}

/// Opens /dev/fuse. The error says what is missing.
pub fn open_device() -> Result<OwnedFd, MountError> {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|e| {
        let e = io::Error::from(e);
        let remedy = match e.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
                "load the module with 'modprobe fuse' (package fuse3), or in a container pass '--device /dev/fuse'"
            }
            Some(libc::EACCES | libc::EPERM) => "run as root, or allow this container the device",
            _ => "see the kernel's log",
        };
        let message = format!("cannot open {DEVICE}: {e}; {remedy}");
        error(e, message)
    })
}

/// Another descriptor for the connection of `of`.
pub fn clone_device(of: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let new = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let old = u32::try_from(of.as_raw_fd()).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the ioctl reads the four bytes of `old`, which lives throughout the call.
    let r = unsafe { libc::ioctl(new.as_raw_fd(), FUSE_DEV_IOC_CLONE, &old) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(new) }
}

/// Mounts. The kernel lets no request through until [`crate::serve`] answered its first one.
pub fn mount(at: &MountPoint) -> Result<Mounted, MountError> {
    let stat = rustix::fs::stat(&at.dir).map_err(|e| {
        let remedy = match e {
            rustix::io::Errno::NOTCONN => "; a dead mount is there: umount it first",
            rustix::io::Errno::NOENT => "; make the directory first",
            _ => "",
        };
        let text = io::Error::from(e);
        let message = format!("cannot mount on {}: {text}{remedy}", at.dir.display());
        error(text, message)
    })?;
    // Resolved now: afterwards a look at the directory would wait for an answer.
    let dir = &world::sys::files::canonical(&at.dir).unwrap_or_else(|_| at.dir.clone());
    if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
        let e = io::Error::from_raw_os_error(libc::ENOTDIR);
        let message = format!("cannot mount on {}: not a directory", dir.display());
        return Err(error(e, message));
    }
    let device = open_device()?;
    let data = format!(
        "fd={},rootmode={:o},user_id=0,group_id=0,allow_other,default_permissions,max_read={}",
        device.as_raw_fd(),
        stat.st_mode & libc::S_IFMT,
        crate::abi::MAX_IO_BYTES,
    );
    mount_call(&at.source, dir, at.flags, &data).map_err(|e| {
        let remedy = match e.raw_os_error() {
            Some(libc::EPERM) => "; mounting needs root (CAP_SYS_ADMIN)",
            Some(libc::ENODEV) => "; this kernel has no FUSE: 'modprobe fuse'",
            _ => "",
        };
        let message = format!("cannot mount {} on {}: {e}{remedy}", at.source, dir.display());
        error(e, message)
    })?;
    // Asked of the table of mounts, not of the file system: nobody answers it yet.
    let minor = minor_of(dir);
    let read_only = at.flags & libc::MS_RDONLY != 0;
    let dirsync = at.flags & (libc::MS_DIRSYNC | libc::MS_SYNCHRONOUS) != 0;
    Ok(Mounted { device, dir: dir.clone(), minor, read_only, dirsync })
}

fn c_string(b: &[u8]) -> io::Result<CString> {
    CString::new(b).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn mount_call(source: &str, dir: &Path, flags: u64, data: &str) -> io::Result<()> {
    let (source, fstype, data) =
        (c_string(source.as_bytes())?, c_string(FSTYPE.as_bytes())?, c_string(data.as_bytes())?);
    let target = c_string(dir.as_os_str().as_bytes())?;
    // SAFETY: all four are NUL-terminated strings that live throughout the call.
    let r = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            fstype.as_ptr(),
            flags as libc::c_ulong,
            data.as_ptr().cast(),
        )
    };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `mount -o remount`: only read-only, access time and the like can change. No second daemon: the kernel is
/// told, and the running one whether it may write.
pub fn remount(at: &MountPoint) -> Result<(), MountError> {
    world::sys::mounts::remount(&at.dir, at.flags).map_err(|e| {
        let message = format!("cannot remount {}: {e}", at.dir.display());
        error(e, message)
    })?;
    let told = client::control::open(&at.dir).and_then(|d| {
        [(READ_ONLY, libc::MS_RDONLY), (NOATIME, libc::MS_NOATIME)].into_iter().try_for_each(|(name, bit)| {
            let value = if at.flags & bit != 0 { "1" } else { "0" };
            let request = Request::SetParam { name: name.to_string(), value: value.to_string() };
            client::control::call(&d, &request).map(drop)
        })
    });
    told.map_err(|e| MountError {
        errno: model::Errno(e.errno),
        message: format!("{} is remounted, but its daemon cannot be told: {e}", at.dir.display()),
    })
}

/// (device minor, mount point) of each FUSE mount of ours in mountinfo, in order.
fn mountinfo() -> Vec<(u32, PathBuf)> {
    let text = world::sys::files::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let line = |l: &str| {
        let (before, after) = l.split_once(" - ")?;
        if after.split(' ').next()? != FSTYPE {
            return None;
        }
        let mut f = before.split(' ');
        let minor = f.nth(2)?.split_once(':')?.1.parse().ok()?;
        let dir = f.nth(1)?;
        Some((minor, PathBuf::from(std::ffi::OsStr::from_bytes(&unescape(dir)))))
    };
    text.lines().filter_map(line).collect()
}

/// mountinfo writes blanks and the like as `\ooo`.
fn unescape(s: &str) -> Vec<u8> {
    let b = s.as_bytes();
    let mut out = Vec::with_capacity(b.len());
    let mut i = 0;
    while i < b.len() {
        let octal = b.get(i + 1..i + 4).and_then(|d| std::str::from_utf8(d).ok());
        match octal.and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(c) if b[i] == b'\\' => {
                out.push(c);
                i += 4;
            }
            _ => {
                out.push(b[i]);
                i += 1;
            }
        }
    }
    out
}

fn minor_of(dir: &Path) -> Option<u32> {
    let dir = world::sys::files::absolute(dir).ok()?;
    mountinfo().into_iter().rev().find(|(_, d)| *d == dir).map(|(m, _)| m)
}

/// Where a connection is still mounted.
pub fn mounted_at(minor: u32) -> Vec<PathBuf> {
    mountinfo().into_iter().filter(|(m, _)| *m == minor).map(|(_, d)| d).collect()
}

/// A file that aborts the connection when "1" is written to it, from a private instance of fusectl, so that
/// it need not be mounted anywhere.
pub fn abort_file(minor: u32) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
    let fs = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&fs)?;
    let root = rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    Ok(rustix::fs::openat(&root, format!("{minor}/abort"), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_place_and_the_remedy() {
        let at = MountPoint { source: "x".into(), dir: "/nonexistent/dir".into(), flags: 0 };
        let e = mount(&at).unwrap_err();
        assert_eq!(e.errno, model::Errno::ENOENT);
        assert!(e.message.contains("/nonexistent/dir") && e.message.contains("make the directory"), "{e}");
        let at = MountPoint { dir: "/proc/self/status".into(), ..at };
        assert_eq!(mount(&at).unwrap_err().errno, model::Errno::ENOTDIR);
        assert_eq!(unescape("/a\\040b\\x"), b"/a b\\x");
    }
}
