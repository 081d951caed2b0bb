//! Small files of programs: configuration, logs, locks.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    std::fs::read(path)
}

/// Reads a file bit by bit, however large it is.
pub fn reader(path: impl AsRef<Path>) -> io::Result<Box<dyn io::BufRead>> {
    Ok(Box::new(io::BufReader::new(File::open(path)?)))
}

pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    std::fs::read_to_string(path)
}

/// The old content or the new one is there after a crash, never a mixture; durable when it returns.
/// A device, a pipe or a socket is refused: the rename would put a file in its place.
pub fn replace(path: impl AsRef<Path>, content: &[u8]) -> io::Result<()> {
    replace_with(path.as_ref(), content, 0o666)
}

/// As [`replace`]; nobody but its owner may read it, at no moment.
pub fn replace_private(path: impl AsRef<Path>, content: &[u8]) -> io::Result<()> {
    replace_with(path.as_ref(), content, PRIVATE_MODE)
}

/// Of a file that is its owner's alone.
const PRIVATE_MODE: u32 = 0o600;

fn replace_with(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        let why = format!("{} is not a regular file: it is left as it is", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let tmp = path.with_extension(format!("tmp{}", std::process::id()));
    let mut f = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&tmp)?;
    if mode == PRIVATE_MODE {
        // One that was left behind may have another mode.
        f.set_permissions(std::fs::Permissions::from_mode(mode))?;
    }
    f.write_all(content)?;
    f.sync_all()?;
    std::fs::rename(&tmp, path)?;
    if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

/// Writes into a file that is there, in one write(2): a setting of the kernel, which takes no other way.
pub fn overwrite(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut f = OpenOptions::new().write(true).truncate(true).open(path)?;
    f.write_all(content)
}

/// What is going to be done with a file: pages of it are fetched, or dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileAdvice {
    WillNeed,
    DontNeed,
}

/// posix_fadvise(2) of a part of a file.
pub fn advise(path: &Path, start: u64, len: u64, advice: FileAdvice) -> io::Result<()> {
    let advice = match advice {
        FileAdvice::WillNeed => rustix::fs::Advice::WillNeed,
        FileAdvice::DontNeed => rustix::fs::Advice::DontNeed,
    };
    Ok(rustix::fs::fadvise(File::open(path)?, start, std::num::NonZeroU64::new(len), advice)?)
}

pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    std::fs::remove_file(path)
}

pub fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    std::fs::remove_dir(path)
}

/// A folder and all that is in it.
pub fn remove_tree(path: impl AsRef<Path>) -> io::Result<()> {
    std::fs::remove_dir_all(path)
}

/// Names in a folder, sorted.
pub fn list(path: impl AsRef<Path>) -> io::Result<Vec<String>> {
    let mut out = Vec::new();
    for e in std::fs::read_dir(path)? {
        out.push(e?.file_name().to_string_lossy().into_owned());
    }
    out.sort();
    Ok(out)
}

/// Names of the other hard links and symbolic links are resolved; the path must exist.
pub fn canonical(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    std::fs::canonicalize(path)
}

/// Absolute, without asking whether it exists.
pub fn absolute(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    std::path::absolute(path)
}

/// A symbolic link `at` → `target`, in place of whatever link is there.
pub fn replace_symlink(target: &str, at: &Path) -> io::Result<()> {
    let tmp = at.with_extension(format!("tmp{}", std::process::id()));
    let _ = std::fs::remove_file(&tmp);
    std::os::unix::fs::symlink(target, &tmp)?;
    std::fs::rename(&tmp, at)
}

/// Opened for appending, made if missing.
pub fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// The same, and nobody but its owner may read it if it is made.
pub fn open_private_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(PRIVATE_MODE).open(path)
}

/// A folder that is its owner's alone, if it is made; with those above it.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Gives a file another name; another file of that name is gone.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)
}

/// A file, directory or device for reading, without following what a blocked open could wait for.
pub fn open_read(path: &Path, follow: bool) -> io::Result<OwnedFd> {
    use rustix::fs::OFlags;
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    Ok(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?)
}

/// Waits for the exclusive lock of a file, which is made if missing. Freed when dropped or killed.
pub struct FileLock {
    _file: File,
}

impl FileLock {
    pub fn take(path: &Path) -> io::Result<FileLock> {
        let f = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        rustix::fs::flock(&f, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(FileLock { _file: f })
    }

    /// The same without waiting; `None`: somebody has it.
    pub fn try_take(path: &Path) -> io::Result<Option<FileLock>> {
        let f = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match rustix::fs::flock(&f, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(FileLock { _file: f })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

/// What lstat(2) tells of a name, in its units (512-byte blocks, seconds since 1970).
#[derive(Clone, Copy, Debug)]
pub struct NameStat {
    pub mode: u32,
    pub ino: u64,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub blocks: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    /// Device the name lies on: a mount is left when it changes.
    pub dev: u64,
}

impl NameStat {
    pub fn is_dir(&self) -> bool {
        self.mode & 0o170000 == 0o040000
    }

    /// A block device.
    pub fn is_device(&self) -> bool {
        self.mode & 0o170000 == 0o060000
    }

    pub fn is_file(&self) -> bool {
        self.mode & 0o170000 == 0o100000
    }

    pub fn is_block_device(&self) -> bool {
        self.mode & 0o170000 == 0o060000
    }
}

/// stat(2) with `follow`, lstat(2) without.
pub fn stat(path: &Path, follow: bool) -> io::Result<NameStat> {
    use std::os::unix::fs::MetadataExt;
    let m = if follow { std::fs::metadata(path)? } else { std::fs::symlink_metadata(path)? };
    Ok(NameStat {
        mode: m.mode(),
        ino: m.ino(),
        nlink: m.nlink(),
        uid: m.uid(),
        gid: m.gid(),
        size: m.size(),
        blocks: m.blocks(),
        atime: m.atime(),
        mtime: m.mtime(),
        ctime: m.ctime(),
        dev: m.dev(),
    })
}

/// Names in a folder as they are, sorted.
pub fn list_raw(path: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let mut out = Vec::new();
    for e in std::fs::read_dir(path)? {
        out.push(e?.file_name());
    }
    out.sort();
    Ok(out)
}

/// This process' file mode creation mask, unchanged.
pub fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("Umask:"));
    mask.and_then(|m| u32::from_str_radix(m.trim(), 8).ok()).unwrap_or(0o022)
}
