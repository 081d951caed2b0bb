//! Trees of files of any kind, name by name below open folders: no path is walked twice, and no symbolic link
//! that somebody puts in place of a folder meanwhile leads out of the tree.

use super::load::LoadFile;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid};
use rustix::io::{Errno, retry_on_intr};

const TYPE_BITS: u32 = 0o170000;
const READ_FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Largest list of names, and largest value, of extended attributes that Linux has.
const XATTR_MAX_BYTES: usize = 64 << 10;

/// Longest path that is given to the kernel at once (PATH_MAX is 4096 with its zero byte).
const PATH_BYTES: usize = 4000;

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    File,
    Folder,
    Symlink,
    Fifo,
    Socket,
    /// A device, of characters or blocks.
    Device,
}

/// Seconds since 1970, and nanoseconds.
pub type Time = (i64, u32);

/// What lstat(2) tells, with times to the nanosecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    pub nlink: u64,
    /// Type and permissions.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Of a device: which.
    pub rdev: u64,
    pub size: u64,
    /// Of 512 bytes.
    pub blocks: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
}

impl Stat {
    pub fn kind(&self) -> Kind {
        match self.mode & TYPE_BITS {
            0o040000 => Kind::Folder,
            0o120000 => Kind::Symlink,
            0o010000 => Kind::Fifo,
            0o140000 => Kind::Socket,
            0o020000 | 0o060000 => Kind::Device,
            _ => Kind::File,
        }
    }

    /// Permissions with the set-id and sticky bits.
    pub fn permissions(&self) -> u32 {
        self.mode & !TYPE_BITS
    }

    /// Device and inode: the same of two names that are hard links.
    pub fn id(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }
}

impl From<rustix::fs::Stat> for Stat {
    #[allow(clippy::unnecessary_cast)] // widths differ between architectures
    fn from(s: rustix::fs::Stat) -> Stat {
        Stat {
            dev: s.st_dev as u64,
            ino: s.st_ino as u64,
            nlink: s.st_nlink as u64,
            mode: s.st_mode,
            uid: s.st_uid,
            gid: s.st_gid,
            rdev: s.st_rdev as u64,
            size: u64::try_from(s.st_size).unwrap_or(0),
            blocks: u64::try_from(s.st_blocks).unwrap_or(0),
            atime: (s.st_atime as i64, s.st_atime_nsec as u32),
            mtime: (s.st_mtime as i64, s.st_mtime_nsec as u32),
            ctime: (s.st_ctime as i64, s.st_ctime_nsec as u32),
        }
    }
}

/// An open directory.
pub struct Folder {
    fd: OwnedFd,
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Folder {
    /// Follows symbolic links. How long the path is does not matter.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let open = |at: &OwnedFd, p: &[u8]| rustix::fs::openat(at, p, READ_FOLDER, Mode::empty());
        let whole = path.as_os_str().as_bytes();
        if whole.len() <= PATH_BYTES {
            return Ok(Folder { fd: rustix::fs::open(path, READ_FOLDER, Mode::empty())? });
        }
        let cut = |p: &[u8]| p[..=PATH_BYTES.min(p.len() - 1)].iter().rposition(|c| *c == b'/');
        let (mut rest, mut fd) = (whole, None);
        while rest.len() > PATH_BYTES {
            let at = cut(rest).filter(|at| *at > 0).ok_or(io::ErrorKind::InvalidFilename)?;
            fd = Some(match &fd {
                None => rustix::fs::open(OsStr::from_bytes(&rest[..at]), READ_FOLDER, Mode::empty())?,
                Some(fd) => open(fd, &rest[..at])?,
            });
            let slashes = rest[at..].iter().take_while(|c| **c == b'/').count();
            rest = &rest[at + slashes..];
        }
        let fd = fd.expect("a long path has a first part");
        Ok(Folder { fd: if rest.is_empty() { fd } else { open(&fd, rest)? } })
    }

    /// `ENOTDIR` for a symbolic link too.
    pub fn folder(&self, name: &OsStr) -> io::Result<Folder> {
        let fd = rustix::fs::openat(&self.fd, name, READ_FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Folder { fd })
    }

    pub fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(&self.fd)?.into())
    }

    /// Of the name itself, also if it is a symbolic link.
    pub fn stat_at(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?.into())
    }

    /// As [`Folder::stat_at`]; `None` if nothing has the name.
    pub fn find(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(s) => Ok(Some(s.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Names below, from the first on.
    pub fn list(&self) -> io::Result<Listing> {
        Ok(Listing { dir: rustix::fs::Dir::read_from(&self.fd)? })
    }

    /// A file for reading; the access time stays as it is if this user may ask for that. Never waits for the
    /// other end of a FIFO.
    pub fn read_file(&self, name: &OsStr) -> io::Result<LoadFile> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let open = |flags| retry_on_intr(|| rustix::fs::openat(&self.fd, name, flags, Mode::empty()));
        match open(flags | OFlags::NOATIME) {
            Err(Errno::PERM) => Ok(open(flags)?.into()),
            other => Ok(other?.into()),
        }
    }

    /// A new file for reading and writing. `EEXIST` if the name is taken.
    pub fn create_file(&self, name: &OsStr, mode: u32) -> io::Result<LoadFile> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode);
        Ok(retry_on_intr(|| rustix::fs::openat(&self.fd, name, flags, mode))?.into())
    }

    /// A file that is there for reading and writing.
    pub fn write_file(&self, name: &OsStr) -> io::Result<LoadFile> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(retry_on_intr(|| rustix::fs::openat(&self.fd, name, flags, Mode::empty()))?.into())
    }

    pub fn make_folder(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(mode))?)
    }

    pub fn make_symlink(&self, name: &OsStr, target: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.fd, name)?)
    }

    /// A FIFO, a socket or a device, as `mode` has it in its type.
    pub fn make_node(&self, name: &OsStr, mode: u32, rdev: u64) -> io::Result<()> {
        let kind = FileType::from_raw_mode(mode);
        let mode = Mode::from_raw_mode(mode & !TYPE_BITS);
        Ok(rustix::fs::mknodat(&self.fd, name, kind, mode, rdev)?)
    }

    /// Another name for what lies at `old` below this folder; `old` itself may be a symbolic link.
    pub fn make_hard_link(&self, old: &Path, to: &Folder, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::linkat(&self.fd, old, &to.fd, name, AtFlags::empty())?)
    }

    /// A name of this folder gets another one in it; `EEXIST` if that is taken.
    pub fn rename_new(&self, old: &OsStr, new: &OsStr) -> io::Result<()> {
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        Ok(rustix::fs::renameat_with(&self.fd, old, &self.fd, new, flags)?)
    }

    /// Where a symbolic link points.
    pub fn read_symlink(&self, name: &OsStr) -> io::Result<OsString> {
        let target = rustix::fs::readlinkat(&self.fd, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Of anything but a folder.
    pub fn unlink(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Of an empty folder.
    pub fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?)
    }

    /// All that its file system has in memory is on disk when it returns: syncfs(2).
    pub fn sync_filesystem(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.fd)?)
    }
}

/// Names of a folder, in the file system's order.
pub struct Listing {
    dir: rustix::fs::Dir,
}

impl Iterator for Listing {
    type Item = io::Result<OsString>;

    fn next(&mut self) -> Option<io::Result<OsString>> {
        loop {
            match self.dir.next()? {
                Err(e) => return Some(Err(e.into())),
                Ok(e) if matches!(e.file_name().to_bytes(), b"." | b"..") => {}
                Ok(e) => return Some(Ok(OsStr::from_bytes(e.file_name().to_bytes()).to_os_string())),
            }
        }
    }
}

/// Something whose attributes are read and set: by an open file, or by its name (then of the name itself,
/// also if it is a symbolic link).
#[derive(Clone, Copy)]
pub enum Node<'a> {
    Open(BorrowedFd<'a>),
    Named(&'a Folder, &'a OsStr),
}

impl Node<'_> {
    /// A path of it that no symbolic link on the way can lead elsewhere.
    fn path(dir: &Folder, name: &OsStr) -> PathBuf {
        Path::new("/proc/self/fd").join(dir.fd.as_raw_fd().to_string()).join(name)
    }

    pub fn stat(&self) -> io::Result<Stat> {
        match self {
            Node::Open(f) => Ok(rustix::fs::fstat(f)?.into()),
            Node::Named(d, n) => d.stat_at(n),
        }
    }

    /// `None` leaves one of them as it is.
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match self {
            Node::Open(f) => Ok(rustix::fs::fchown(f, uid, gid)?),
            Node::Named(d, n) => Ok(rustix::fs::chownat(d, *n, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?),
        }
    }

    /// Permissions with the set-id and sticky bits; `EOPNOTSUPP` for a symbolic link.
    pub fn set_permissions(&self, mode: u32) -> io::Result<()> {
        let mode = Mode::from_raw_mode(mode & !TYPE_BITS);
        match self {
            Node::Open(f) => Ok(rustix::fs::fchmod(f, mode)?),
            Node::Named(d, n) => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let held = rustix::fs::openat(d, *n, flags, Mode::empty())?;
                if rustix::fs::fstat(&held)?.st_mode & TYPE_BITS == 0o120000 {
                    return Err(Errno::OPNOTSUPP.into());
                }
                let path = Path::new("/proc/self/fd").join(held.as_raw_fd().to_string());
                Ok(rustix::fs::chmod(path, mode)?)
            }
        }
    }

    pub fn set_times(&self, atime: Time, mtime: Time) -> io::Result<()> {
        let spec = |t: Time| Timespec { tv_sec: t.0, tv_nsec: t.1.into() };
        let times = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
        match self {
            Node::Open(f) => Ok(rustix::fs::futimens(f, &times)?),
            Node::Named(d, n) => Ok(rustix::fs::utimensat(d, *n, &times, AtFlags::SYMLINK_NOFOLLOW)?),
        }
    }

    /// Names of its extended attributes; none where the file system has no such thing.
    pub fn xattrs(&self) -> io::Result<Vec<OsString>> {
        let list = |buf: &mut [u8]| match self {
            Node::Open(f) => rustix::fs::flistxattr(f, buf),
            Node::Named(d, n) => rustix::fs::llistxattr(Node::path(d, n), buf),
        };
        let Some(all) = grown(list)? else { return Ok(Vec::new()) };
        let names = all.split(|b| *b == 0).filter(|n| !n.is_empty());
        Ok(names.map(|n| OsStr::from_bytes(n).to_os_string()).collect())
    }

    /// `None` if it has no such attribute.
    pub fn xattr(&self, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
        grown(|buf: &mut [u8]| match self {
            Node::Open(f) => rustix::fs::fgetxattr(f, name, buf),
            Node::Named(d, n) => rustix::fs::lgetxattr(Node::path(d, n), name, buf),
        })
    }

    pub fn set_xattr(&self, name: &OsStr, value: &[u8]) -> io::Result<()> {
        let flags = rustix::fs::XattrFlags::empty();
        match self {
            Node::Open(f) => Ok(rustix::fs::fsetxattr(f, name, value, flags)?),
            Node::Named(d, n) => Ok(rustix::fs::lsetxattr(Node::path(d, n), name, value, flags)?),
        }
    }

    /// What is not there stays so.
    pub fn remove_xattr(&self, name: &OsStr) -> io::Result<()> {
        let done = match self {
            Node::Open(f) => rustix::fs::fremovexattr(f, name),
            Node::Named(d, n) => rustix::fs::lremovexattr(Node::path(d, n), name),
        };
        match done {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }
}

/// An extended attribute of what `path` names (a symbolic link itself), `None` if there is none of this name.
pub fn xattr(path: &Path, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
    grown(|buf: &mut [u8]| rustix::fs::lgetxattr(path, name, buf))
}

/// Calls with a small buffer, then with the largest that can be needed. `None`: no such attribute, or a file
/// system without any.
fn grown(mut f: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<Option<Vec<u8>>> {
    let mut small = [0; 512];
    match f(&mut small) {
        Ok(n) => return Ok(Some(small[..n].to_vec())),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
        Err(Errno::RANGE) => {}
        Err(e) => return Err(e.into()),
    }
    let mut large = vec![0; XATTR_MAX_BYTES];
    match f(&mut large) {
        Ok(n) => {
            assert!(n <= large.len(), "the kernel fills no more than it was given");
            large.truncate(n);
            Ok(Some(large))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The next stretch of data of a file within `from..to`, as (begin, end); `None`: nothing but a hole. All of
/// it where the file system cannot say.
pub fn next_data(file: impl AsFd, from: u64, to: u64) -> io::Result<Option<(u64, u64)>> {
    assert!(from <= to, "a range ends behind its begin");
    if from == to {
        return Ok(None);
    }
    let begin = match rustix::fs::seek(&file, SeekFrom::Data(from)) {
        Ok(at) if at >= to => return Ok(None),
        Ok(at) => at,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((from, to))),
        Err(e) => return Err(e.into()),
    };
    let end = match rustix::fs::seek(&file, SeekFrom::Hole(begin)) {
        Ok(at) => at.min(to),
        // The file was cut meanwhile.
        Err(Errno::NXIO) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    Ok((end > begin).then_some((begin, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("nacre-tree-{}-{name}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        dir
    }

    #[test]
    fn every_kind_of_file_is_made_and_told_apart() {
        let dir = scratch("kinds");
        let d = Folder::open(&dir).unwrap();
        let name = |n: &'static str| OsStr::new(n);
        drop(d.create_file(name("file"), 0o600).unwrap());
        d.make_folder(name("folder"), 0o700).unwrap();
        d.make_symlink(name("link"), name("nowhere")).unwrap();
        d.make_node(name("fifo"), 0o010600, 0).unwrap();
        d.make_node(name("socket"), 0o140600, 0).unwrap();
        d.make_hard_link(Path::new("file"), &d, name("again")).unwrap();
        let kind = |n| d.stat_at(OsStr::new(n)).unwrap().kind();
        assert_eq!(kind("file"), Kind::File);
        assert_eq!(kind("folder"), Kind::Folder);
        assert_eq!(kind("link"), Kind::Symlink);
        assert_eq!((kind("fifo"), kind("socket")), (Kind::Fifo, Kind::Socket));
        assert_eq!(d.read_symlink(name("link")).unwrap(), name("nowhere"));
        d.rename_new(name("again"), name("renamed")).unwrap();
        let taken = d.rename_new(name("renamed"), name("file")).unwrap_err();
        assert_eq!((taken.kind(), kind("renamed")), (io::ErrorKind::AlreadyExists, Kind::File));
        assert_eq!(d.stat_at(name("file")).unwrap().id(), d.stat_at(name("renamed")).unwrap().id());
        assert_eq!(d.folder(name("link")).err().unwrap().raw_os_error(), Some(libc::ENOTDIR));
        let mut names: Vec<_> = d.list().unwrap().map(Result::unwrap).collect();
        names.sort();
        assert_eq!(names, ["fifo", "file", "folder", "link", "renamed", "socket"]);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn attributes_are_set_by_name_and_by_file() {
        let dir = scratch("attributes");
        let d = Folder::open(&dir).unwrap();
        let f = d.create_file(OsStr::new("f"), 0o600).unwrap();
        d.make_symlink(OsStr::new("l"), OsStr::new("f")).unwrap();
        let (open, link) = (Node::Open(f.as_fd()), Node::Named(&d, OsStr::new("l")));
        open.set_permissions(0o640).unwrap();
        open.set_times((1, 2), (3, 4)).unwrap();
        link.set_times((5, 6), (7, 8)).unwrap();
        assert_eq!(link.set_permissions(0o600).unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
        let s = Node::Named(&d, OsStr::new("f")).stat().unwrap();
        assert_eq!((s.permissions(), s.atime, s.mtime), (0o640, (1, 2), (3, 4)));
        assert_eq!(link.stat().unwrap().mtime, (7, 8));
        let value = vec![7; 2000];
        let attr = OsStr::new("user.test");
        match open.set_xattr(attr, &value) {
            Ok(()) => {
                assert_eq!(open.xattrs().unwrap(), [attr]);
                let named = Node::Named(&d, OsStr::new("f"));
                assert_eq!(named.xattr(attr).unwrap(), Some(value));
                named.remove_xattr(attr).unwrap();
                named.remove_xattr(attr).unwrap();
                assert_eq!(open.xattr(attr).unwrap(), None);
            }
            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EOPNOTSUPP)),
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn stretches_of_data_end_where_holes_begin() {
        let dir = scratch("holes");
        let d = Folder::open(&dir).unwrap();
        let f = d.create_file(OsStr::new("f"), 0o600).unwrap();
        f.write_at(&[1; 4096], 1 << 20).unwrap();
        f.set_len(4 << 20).unwrap();
        let mut at = 0;
        let mut seen = 0;
        while let Some((begin, end)) = next_data(&f, at, 4 << 20).unwrap() {
            assert!(begin >= at && end > begin);
            seen += u64::from(begin <= 1 << 20 && end >= (1 << 20) + 4096);
            at = end;
        }
        assert_eq!(seen, 1);
        assert_eq!(next_data(&f, 5, 5).unwrap(), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn folders_are_opened_however_long_their_paths_are() {
        let top = std::env::temp_dir().join(format!("tree{}", std::process::id()));
        std::fs::create_dir_all(&top).unwrap();
        let (mut path, name) = (top.clone(), "n".repeat(200));
        let mut at = Folder::open(&top).unwrap();
        for _ in 0..30 {
            rustix::fs::mkdirat(&at, name.as_str(), Mode::from_raw_mode(0o700)).unwrap();
            path.push(&name);
            at = Folder::open(&path).unwrap();
        }
        assert!(path.as_os_str().len() > PATH_BYTES);
        rustix::fs::mkdirat(&at, "last", Mode::from_raw_mode(0o700)).unwrap();
        let last = OsStr::new("last");
        assert!(crate::sys::walk::stat_in(&at, last, false).unwrap().mtime.0 > 0);
        assert!(Folder::open(&path.join("none")).is_err_and(|e| e.kind() == io::ErrorKind::NotFound));
        assert_eq!(Node::Named(&at, last).xattr(OsStr::new("user.none")).unwrap(), None);
        drop(at);
        std::fs::remove_dir_all(&top).unwrap();
    }
}
