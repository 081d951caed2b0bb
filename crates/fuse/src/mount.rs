//! Mounting: /dev/fuse and a file system on it.
//!
//! What is mounted is not the root of the kernel's file system but a directory in it, `VISIBLE_ROOT`
//! (decision 0058). The kernel makes its root before the daemon has said what it can do, and of an inode
//! from then it never keeps an access list: each path of an ordinary user cost a request.

use crate::options::MountPoint;
use client::control::{NOATIME, READ_ONLY, Request};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Type in /proc/mounts.
pub const FSTYPE: &str = "fuse.nacre";
/// Its two parts, as fsopen(2) wants them.
const TYPE: &str = "fuse";
const SUBTYPE: &str = "nacre";
/// The name under which the kernel's root has the directory that is mounted; mountinfo shows it.
pub const VISIBLE_ROOT: &str = "root";
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

/// A file system of the kernel's that is mounted nowhere yet. It is gone when this is dropped.
#[derive(Debug)]
pub struct Mounted {
    pub(crate) device: OwnedFd,
    /// The kernel's root.
    pub(crate) kernel_root: KernelRoot,
    /// Where it will be.
    pub dir: PathBuf,
    /// Minor number of `st_dev`: names the connection below /sys/fs/fuse/connections.
    pub minor: u32,
    pub read_only: bool,
    /// `-o dirsync` or `-o sync`.
    pub dirsync: bool,
}

/// The kernel's root, which no path leads to. Whoever keeps it keeps the file system from ending.
#[derive(Debug)]
pub struct KernelRoot(OwnedFd);

/// Opens /dev/fuse. The error says what is missing.
pub fn open_device() -> Result<OwnedFd, MountError> {
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|e| {
        let e = io::Error::from(e);
        let remedy = match e.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
                "load the module with 'modprobe fuse' (package fuse3), or in a container pass '--device /dev/fuse'"
            }
            Some(libc::EACCES | libc::EPERM) => "run as root, make it everybody's as udev does (chmod 666 /dev/fuse), or allow this container the device",
            _ => "see the kernel's log",
        };
        let message = format!("cannot open {DEVICE}: {e}; {remedy}");
        error(e, message)
    })
}

/// Another descriptor for the connection of `of`.
pub fn clone_device(of: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let new = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let old = u32::try_from(of.as_raw_fd()).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the ioctl reads the four bytes of `old`, which lives throughout the call.
    let r = unsafe { libc::ioctl(new.as_raw_fd(), FUSE_DEV_IOC_CLONE, &old) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(new) }
}

/// Makes the kernel's file system. [`crate::serve`] answers its first request, and [`KernelRoot::show`]
/// mounts it.
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
    let dir = &world::sys::files::canonical(&at.dir).unwrap_or_else(|_| at.dir.clone());
    if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
        let e = io::Error::from_raw_os_error(libc::ENOTDIR);
        let message = format!("cannot mount on {}: not a directory", dir.display());
        return Err(error(e, message));
    }
    let device = open_device()?;
    let (kernel_root, minor) = make(at, &device).map_err(|e| cannot_mount(&at.source, dir, e))?;
    let read_only = at.flags & libc::MS_RDONLY != 0;
    let dirsync = at.flags & (libc::MS_DIRSYNC | libc::MS_SYNCHRONOUS) != 0;
    Ok(Mounted { device, kernel_root, dir: dir.clone(), minor, read_only, dirsync })
}

fn cannot_mount(source: &str, dir: &Path, e: io::Error) -> MountError {
    let remedy = match e.raw_os_error() {
        Some(libc::EPERM) => "; mounting needs root (CAP_SYS_ADMIN)",
        Some(libc::ENODEV) => "; this kernel has no FUSE: 'modprobe fuse'",
        Some(libc::ENOSYS) => "; this kernel has no fsopen(2): Linux 5.2 or later is needed",
        _ => "",
    };
    let message = format!("cannot mount {source} on {}: {e}{remedy}", dir.display());
    error(e, message)
}

/// The file system, and the minor number of its device.
fn make(at: &MountPoint, device: &OwnedFd) -> io::Result<(KernelRoot, u32)> {
    let fs = fsopen(TYPE, FsOpenFlags::FSOPEN_CLOEXEC)?;
    let root_mode = format!("{:o}", libc::S_IFDIR);
    let (device, max_read) = (device.as_raw_fd().to_string(), crate::abi::MAX_IO_BYTES.to_string());
    let values = [
        ("source", at.source.as_str()),
        ("subtype", SUBTYPE),
        ("fd", &device),
        ("rootmode", &root_mode),
        ("user_id", "0"),
        ("group_id", "0"),
        ("max_read", &max_read),
    ];
    for (key, value) in values {
        fsconfig_set_string(&fs, key, value)?;
    }
    let on = |bit| at.flags & bit != 0;
    let flags = [
        ("allow_other", true),
        ("default_permissions", true),
        ("ro", on(libc::MS_RDONLY)),
        ("sync", on(libc::MS_SYNCHRONOUS)),
        ("dirsync", on(libc::MS_DIRSYNC)),
    ];
    for (key, _) in flags.iter().filter(|(_, on)| *on) {
        fsconfig_set_flag(&fs, *key)?;
    }
    fsconfig_create(&fs)?;
    let root = fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes(at.flags))?;
    // What the kernel knows without a question: nobody answers yet.
    let known = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let minor = rustix::fs::statx(&root, c"", known, StatxFlags::empty())?.stx_dev_minor;
    Ok((KernelRoot(root), minor))
}

/// What fsmount(2) calls those of the `MS_*` bits that belong to a mount and not to its file system.
fn attributes(flags: u64) -> MountAttrFlags {
    const BITS: &[(u64, MountAttrFlags)] = &[
        (libc::MS_RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (libc::MS_NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (libc::MS_NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (libc::MS_NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (libc::MS_NOATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
        (libc::MS_NODIRATIME, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
    ];
    let set = BITS.iter().filter(|(bit, _)| flags & bit != 0);
    set.fold(MountAttrFlags::empty(), |all, (_, a)| all | *a)
}

impl KernelRoot {
    /// Mounts the visible root on `dir`. The connection must be served: the kernel asks for that name.
    pub fn show(self, source: &str, dir: &Path) -> Result<(), MountError> {
        let shown = || -> io::Result<()> {
            let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = rustix::fs::openat(&self.0, VISIBLE_ROOT, path, Mode::empty())?;
            let clone = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_EMPTY_PATH;
            let tree = open_tree(&root, c"", clone)?;
            Ok(move_mount(&tree, c"", CWD, dir, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
        };
        shown().map_err(|e| cannot_mount(source, dir, e))
    }
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

/// Where a connection is still mounted.
pub fn mounted_at(minor: u32) -> Vec<PathBuf> {
    mountinfo().into_iter().filter(|(m, _)| *m == minor).map(|(_, d)| d).collect()
}

/// A file that aborts the connection when "1" is written to it, from a private instance of fusectl, so that
/// it need not be mounted anywhere.
pub fn abort_file(minor: u32) -> io::Result<OwnedFd> {
    let fs = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&fs)?;
    let root = fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
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
