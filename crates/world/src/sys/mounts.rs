//! The kernel's table of mounts.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// First column of /proc/mounts, as the mounter gave it.
    pub source: String,
    pub dir: PathBuf,
    pub fstype: String,
    pub options: String,
}

/// /proc/mounts writes blank, tab, newline and backslash as three octal digits.
fn unescape(field: &str) -> Vec<u8> {
    let b = field.as_bytes();
    let mut out = Vec::with_capacity(b.len());
    let mut i = 0;
    while i < b.len() {
        let octal = b.get(i + 1..i + 4).filter(|d| d.iter().all(|c| (b'0'..=b'7').contains(c)));
        match (b[i], octal) {
            (b'\\', Some(d)) => {
                let n = d.iter().fold(0u32, |n, c| n * 8 + u32::from(c - b'0'));
                out.push(n as u8);
                i += 4;
            }
            (c, _) => {
                out.push(c);
                i += 1;
            }
        }
    }
    out
}

fn parse(text: &str) -> Vec<Mount> {
    let line = |l: &str| {
        let mut f = l.split(' ');
        let (source, dir, fstype, options) = (f.next()?, f.next()?, f.next()?, f.next()?);
        Some(Mount {
            source: String::from_utf8_lossy(&unescape(source)).into_owned(),
            dir: PathBuf::from(std::ffi::OsString::from_vec(unescape(dir))),
            fstype: fstype.to_string(),
            options: options.to_string(),
        })
    };
    text.lines().filter_map(line).collect()
}

/// Every mount this process sees, in the order of mounting.
pub fn list() -> io::Result<Vec<Mount>> {
    let text = std::fs::read("/proc/self/mounts")?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// The topmost mount at exactly `dir`.
pub fn at(dir: &Path) -> io::Result<Option<Mount>> {
    Ok(list()?.into_iter().rev().find(|m| m.dir == dir))
}

/// The mount `path` (absolute, resolved) lies in.
pub fn containing(path: &Path) -> io::Result<Option<Mount>> {
    let best = |all: Vec<Mount>| {
        let mut found: Option<Mount> = None;
        for m in all {
            let longer = found.as_ref().is_none_or(|f| m.dir.as_os_str().len() >= f.dir.as_os_str().len());
            if path.starts_with(&m.dir) && longer {
                found = Some(m);
            }
        }
        found
    };
    Ok(best(list()?))
}

fn c_path(p: &Path) -> io::Result<CString> {
    CString::new(p.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// How to unmount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmount {
    /// EBUSY while somebody uses it.
    Normal,
    /// Abort what is under way (`umount -f`).
    Force,
    /// Take it out of sight now, really when the last user is gone (`umount -l`).
    Lazy,
}

pub fn unmount(dir: &Path, how: Unmount) -> io::Result<()> {
    let flags = libc::UMOUNT_NOFOLLOW
        | match how {
            Unmount::Normal => 0,
            Unmount::Force => libc::MNT_FORCE,
            Unmount::Lazy => libc::MNT_DETACH,
        };
    let dir = c_path(dir)?;
    // SAFETY: a NUL-terminated path and plain flags.
    if unsafe { libc::umount2(dir.as_ptr(), flags) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The type of a mark ([`mark`]).
const MARK_TYPE: &str = "tmpfs";

/// Mounts an empty, read-only folder at `dir`, with `source` in its first column: it stands for something
/// that is served elsewhere, until somebody unmounts it.
pub fn mark(source: &str, dir: &Path) -> io::Result<()> {
    assert!(dir.is_absolute(), "a mount point is found again by its whole path");
    let source = CString::new(source).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let kind = CString::new(MARK_TYPE).expect("it has no zero byte");
    let dir = c_path(dir)?;
    let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let data = c"size=4k,nr_inodes=4,mode=0555".as_ptr();
    // SAFETY: all of them are NUL-terminated and live until the call returns.
    let r = unsafe { libc::mount(source.as_ptr(), dir.as_ptr(), kind.as_ptr(), flags, data.cast()) };
    if r != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl Mount {
    /// Whether it is such a mark.
    pub fn is_mark_of(&self, source: &str) -> bool {
        self.fstype == MARK_TYPE && self.source == source
    }
}

/// Changes per-mount and superblock flags of a living mount (`mount -o remount`); `flags` are MS_* bits.
pub fn remount(dir: &Path, flags: u64) -> io::Result<()> {
    let c = c_path(dir)?;
    let none = std::ptr::null();
    // SAFETY: a NUL-terminated path; source, type and data are not read by a remount without data.
    let r = unsafe { libc::mount(none, c.as_ptr(), none, libc::MS_REMOUNT | flags, none.cast()) };
    if r != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Total bytes by statfs(2). Blocks while the mount does not answer.
pub fn total_bytes(dir: &Path) -> io::Result<u64> {
    let s = rustix::fs::statvfs(dir)?;
    Ok(s.f_frsize.saturating_mul(s.f_blocks))
}

/// Bytes that anybody but root may still write, by statfs(2). Blocks while the mount does not answer.
pub fn available_bytes(dir: &Path) -> io::Result<u64> {
    let s = rustix::fs::statvfs(dir)?;
    Ok(s.f_frsize.saturating_mul(s.f_bavail))
}

/// Inodes that are in use, by statfs(2). Blocks while the mount does not answer.
pub fn used_inodes(dir: &Path) -> io::Result<u64> {
    let s = rustix::fs::statvfs(dir)?;
    Ok(s.f_files.saturating_sub(s.f_ffree))
}

/// Processes that hold something below `dir`: (pid, name, what).
pub fn users(dir: &Path) -> Vec<(u32, String, String)> {
    let mut out = Vec::new();
    for pid in super::process::pids() {
        let base = format!("/proc/{pid}");
        let mut held = Vec::new();
        for what in ["cwd", "root", "exe"] {
            held.push((what.to_string(), format!("{base}/{what}")));
        }
        for fd in super::files::list(format!("{base}/fd")).unwrap_or_default() {
            held.push((format!("fd {fd}"), format!("{base}/fd/{fd}")));
        }
        let hit = held.into_iter().find_map(|(what, link)| {
            let target = std::fs::read_link(link).ok()?;
            target.starts_with(dir).then(|| format!("{what}: {}", target.display()))
        });
        if let Some(what) = hit {
            out.push((pid, super::process::name(pid), what));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_fields_are_read_back() {
        let m = parse("10.0.0.1@tcp:/fs /mnt/a\\040b\\134 fuse.nacre rw,relatime 0 0\nbroken\n");
        assert_eq!(m.len(), 1);
        assert_eq!(m[0].source, "10.0.0.1@tcp:/fs");
        assert_eq!(m[0].dir, Path::new("/mnt/a b\\"));
        assert_eq!(m[0].fstype, "fuse.nacre");
    }
}
