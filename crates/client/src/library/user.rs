//! Who works in a file system: calls that name files by their paths.
//!
//! Paths begin at the root of the mount, with a slash or without: there is no working directory. So do
//! symbolic links with a slash at their front.

use super::error::{Failed, Result};
use super::file::OpenFile;
use super::flags::{KNOWN, O_ACCMODE, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_TRUNC};
use super::walk::{Place, Walk};
use crate::control::Stripe;
use crate::llite::permission;
use crate::stats::Verb;
use crate::{Admin, Call, Fs, FsSpace, admin};
use model::perm::MAY_READ;
use model::{Attr, Errno, Fid, FileType, LayoutSpec, SetAttr, SetTime};
use std::future::Future;
use std::sync::Arc;
use wire::msg::lookup::Entry;

/// Bytes of names that are asked for at a time.
const PAGE_BYTES: u32 = 1 << 20;
/// How often an open looks again because a name appeared, or went, in between.
const RACES_MAX: u32 = 16;

/// An ordinary user or root, made by [`crate::Client::user`].
#[derive(Clone)]
pub struct User {
    pub(super) fs: Arc<Fs>,
    pub(super) call: Arc<Call>,
}

/// One entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    pub name: Vec<u8>,
    pub fid: Fid,
    pub kind: FileType,
}

impl User {
    pub(super) fn new(fs: Arc<Fs>, call: Call) -> User {
        User { fs, call: Arc::new(call) }
    }

    pub fn uid(&self) -> u32 {
        self.call.cred.uid
    }

    pub(super) fn call(&self) -> Call {
        (*self.call).clone()
    }

    pub(super) fn walk(&self) -> Walk<'_> {
        Walk::new(&self.fs, &self.call)
    }

    /// What came of a call, in words. Nothing is answered from what is kept once the file system is
    /// unmounted.
    pub(super) async fn told<T>(
        &self,
        what: &str,
        object: &[u8],
        work: impl Future<Output = std::result::Result<T, Failed>>,
    ) -> Result<T> {
        let r = if self.fs.cx.is_closed() { Err(Errno::ESHUTDOWN.into()) } else { work.await };
        r.map_err(|f| f.of(what, object))
    }

    /// open(2). `mode` is that of a file that is made (O_CREAT), before the umask. A directory can be opened
    /// for reading, to make it durable; a device, FIFO or socket cannot (`ENXIO`).
    pub async fn open(&self, path: impl AsRef<[u8]>, flags: u32, mode: u32) -> Result<OpenFile> {
        let path = path.as_ref();
        self.told("open", path, self.open_path(path, flags, mode)).await
    }

    /// Makes a file with a layout, and opens it for writing. `EEXIST` if the name is there.
    pub async fn create_striped(
        &self,
        path: impl AsRef<[u8]>,
        mode: u32,
        spec: LayoutSpec,
    ) -> Result<OpenFile> {
        let path = path.as_ref();
        let work = async {
            spec.check()?;
            let place = self.walk().place(path).await?;
            let flags = super::flags::O_WRONLY | O_CREAT | O_EXCL;
            let name = place.name(Errno::EEXIST)?;
            if place.slash {
                return Err(Errno::EISDIR.into());
            }
            self.create_at(path, &place, name, flags, mode, Some(spec)).await
        };
        self.told("create", path, work).await
    }

    async fn open_path(&self, path: &[u8], flags: u32, mode: u32) -> std::result::Result<OpenFile, Failed> {
        let makes_dir = flags & O_CREAT != 0 && flags & O_DIRECTORY != 0;
        if flags & !KNOWN != 0 || flags & O_ACCMODE == O_ACCMODE || makes_dir {
            return Err(Failed::because(Errno::EINVAL, format!("flags 0o{flags:o} are none of open")));
        }
        let mut walk = self.walk();
        if flags & O_CREAT == 0 {
            let e = walk.file(path, flags & O_NOFOLLOW == 0).await?;
            return self.open_entry(path, &e, flags).await;
        }
        let mut place = walk.place(path).await?;
        let mut races = 0;
        while races < RACES_MAX {
            let there = if flags & O_EXCL != 0 { Errno::EEXIST } else { Errno::EISDIR };
            let name = place.name(there)?;
            if place.slash {
                return Err(Errno::EISDIR.into());
            }
            let found = match walk.lookup(&place.dir, name).await {
                Err(Failed { errno: Errno::ENOENT, .. }) => None,
                r => Some(r?),
            };
            match found {
                Some(_) if flags & O_EXCL != 0 => return Err(Errno::EEXIST.into()),
                Some(e) if e.attr.kind == FileType::Symlink && flags & O_NOFOLLOW == 0 => {
                    place = walk.follow(&e).await?;
                }
                Some(e) if e.attr.kind == FileType::Directory => return Err(Errno::EISDIR.into()),
                Some(e) => match self.open_entry(path, &e, flags).await {
                    // Somebody removed it meanwhile: then it is made.
                    Err(Failed { errno: Errno::ENOENT | Errno::ESTALE, .. }) => races += 1,
                    r => return r,
                },
                None => match self.create_at(path, &place, name, flags, mode, None).await {
                    // Something that is no regular file appeared.
                    Err(Failed { errno: Errno::EEXIST, .. }) if flags & O_EXCL == 0 => races += 1,
                    r => return r,
                },
            }
        }
        Err(Failed::because(Errno::EAGAIN, "the name comes and goes".to_string()))
    }

    async fn create_at(
        &self,
        path: &[u8],
        place: &Place,
        name: &[u8],
        flags: u32,
        mode: u32,
        spec: Option<LayoutSpec>,
    ) -> std::result::Result<OpenFile, Failed> {
        let parent = place.dir.attr.fid;
        let made = self.fs.clone().create(self.call(), parent, name.to_vec(), mode & 0o7777, flags, spec);
        let (_, handle) = made.await?;
        Ok(OpenFile::file(self, path, handle))
    }

    async fn open_entry(
        &self,
        path: &[u8],
        e: &Arc<Entry>,
        flags: u32,
    ) -> std::result::Result<OpenFile, Failed> {
        let fid = e.attr.fid;
        match e.attr.kind {
            FileType::Symlink => Err(Errno::ELOOP.into()),
            FileType::Directory if flags & (O_ACCMODE | O_TRUNC) != 0 => Err(Errno::EISDIR.into()),
            FileType::Directory => {
                self.may_list(e).await?;
                permission::open(&self.fs, &self.call, e, flags).await?;
                Ok(OpenFile::directory(self, path, self.fs.watch_errors(fid)))
            }
            _ if flags & O_DIRECTORY != 0 => Err(Errno::ENOTDIR.into()),
            FileType::Regular => {
                permission::open(&self.fs, &self.call, e, flags).await?;
                let handle = self.fs.clone().open(self.call(), fid, flags).await?;
                Ok(OpenFile::file(self, path, handle))
            }
            _ => Err(Failed::because(Errno::ENXIO, "a device, FIFO or socket".to_string())),
        }
    }

    async fn may_list(&self, dir: &Arc<Entry>) -> std::result::Result<(), Errno> {
        self.fs.run(Verb::Getxattr, permission::access(&self.fs, &self.call, dir, MAY_READ)).await
    }

    /// Attributes of a file; a symbolic link at the end is followed.
    pub async fn stat(&self, path: impl AsRef<[u8]>) -> Result<Attr> {
        self.stat_with(path.as_ref(), true).await
    }

    /// The same of the link itself.
    pub async fn lstat(&self, path: impl AsRef<[u8]>) -> Result<Attr> {
        self.stat_with(path.as_ref(), false).await
    }

    async fn stat_with(&self, path: &[u8], follow: bool) -> Result<Attr> {
        let work = async {
            let e = self.walk().file(path, follow).await?;
            Ok(self.fs.clone().getattr(self.call(), e.attr.fid).await?)
        };
        self.told("stat", path, work).await
    }

    /// All entries of a directory but `.` and `..`.
    pub async fn readdir(&self, path: impl AsRef<[u8]>) -> Result<Vec<DirEntry>> {
        let path = path.as_ref();
        let work = async {
            let dir = self.walk().file(path, true).await?;
            if dir.attr.kind != FileType::Directory {
                return Err(Errno::ENOTDIR.into());
            }
            self.may_list(&dir).await?;
            let mut all = Vec::new();
            let mut cookie = 0;
            loop {
                let page = self.fs.clone().readdir(self.call(), dir.attr.fid, cookie, PAGE_BYTES, false);
                let (entries, _, end) = page.await?;
                let Some(last) = entries.last() else { return Ok(all) };
                cookie = last.cookie;
                all.extend(entries.into_iter().map(|d| DirEntry { name: d.name, fid: d.fid, kind: d.kind }));
                if end {
                    return Ok(all);
                }
            }
        };
        self.told("list", path, work).await
    }

    /// Where a symbolic link leads. `EINVAL` for anything else.
    pub async fn readlink(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let work = async {
            let e = self.walk().file(path, false).await?;
            if e.attr.kind != FileType::Symlink {
                return Err(Failed::because(Errno::EINVAL, "it is no symbolic link".to_string()));
            }
            Ok(self.fs.clone().readlink(self.call(), e.attr.fid).await?)
        };
        self.told("read the link", path, work).await
    }

    async fn set(&self, what: &str, path: &[u8], follow: bool, set: SetAttr) -> Result<()> {
        let work = async {
            let e = self.walk().file(path, follow).await?;
            self.fs.clone().setattr(self.call(), e.attr.fid, set).await?;
            Ok(())
        };
        self.told(what, path, work).await
    }

    /// chmod(2). The owner's and root's right.
    pub async fn chmod(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<()> {
        let set = SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() };
        self.set("change the mode of", path.as_ref(), true, set).await
    }

    /// chown(2): `None` leaves it as it is. Owners may choose among their groups, anything else is root's.
    pub async fn chown(&self, path: impl AsRef<[u8]>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let set = SetAttr { uid, gid, ..SetAttr::default() };
        self.set("change the owner of", path.as_ref(), true, set).await
    }

    /// The same of a symbolic link itself.
    pub async fn lchown(&self, path: impl AsRef<[u8]>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let set = SetAttr { uid, gid, ..SetAttr::default() };
        self.set("change the owner of", path.as_ref(), false, set).await
    }

    /// utimensat(2): times of access and change; `None` leaves one as it is. "Now" for both may who may
    /// write, anything else the owner.
    pub async fn utimes(
        &self,
        path: impl AsRef<[u8]>,
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
    ) -> Result<()> {
        let set = SetAttr { atime, mtime, ..SetAttr::default() };
        self.set("set the times of", path.as_ref(), true, set).await
    }

    /// truncate(2), for who may write the file.
    pub async fn truncate(&self, path: impl AsRef<[u8]>, size: u64) -> Result<()> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.set("truncate", path.as_ref(), true, set).await
    }

    /// FS_*_FL flags (chattr(1)). Immutable and append-only are root's to change, the others the owner's.
    pub async fn setflags(&self, path: impl AsRef<[u8]>, flags: u32) -> Result<()> {
        let path = path.as_ref();
        let work = async {
            let e = self.walk().file(path, true).await?;
            Ok(admin::set_flags(&self.fs, self.call(), e.attr.fid, flags, None).await?)
        };
        self.told("change the flags of", path, work).await
    }

    /// A layout for a file that has none yet, or a directory's default for new files (`None`: it has none any
    /// more). The owner's and root's right. `EEXIST` for a file that has one: see [`User::create_striped`].
    pub async fn setstripe(&self, path: impl AsRef<[u8]>, spec: Option<LayoutSpec>) -> Result<()> {
        let path = path.as_ref();
        let work = async {
            let e = self.walk().file(path, true).await?;
            admin::setstripe(&self.fs, self.call(), &e.attr, spec).await.map_err(of_control)
        };
        self.told("set the stripes of", path, work).await
    }

    /// Where a file's bytes lie, or what new files of a directory get.
    pub async fn getstripe(&self, path: impl AsRef<[u8]>) -> Result<Stripe> {
        let path = path.as_ref();
        let work = async {
            let e = self.walk().file(path, true).await?;
            Ok(admin::stripe(&self.fs, &self.call, &e.attr).await?)
        };
        self.told("ask for the stripes of", path, work).await
    }

    /// A symbolic link at the end is not followed.
    pub async fn path2fid(&self, path: impl AsRef<[u8]>) -> Result<Fid> {
        let path = path.as_ref();
        let work = async { Ok(self.walk().file(path, false).await?.attr.fid) };
        self.told("ask for the FID of", path, work).await
    }

    /// Paths of a file below the mount's root, without a slash at their front. Only those that the user could
    /// find by listing directories; `EACCES` if there is no other.
    pub async fn fid2path(&self, fid: Fid) -> Result<Vec<Vec<u8>>> {
        let work = async { Ok(Admin(&self.fs).getpath(self.call(), fid).await?.0) };
        self.told("ask for the paths of", fid.to_string().as_bytes(), work).await
    }

    /// Space of the file system that a path lies in: of this one.
    pub async fn statfs(&self, path: impl AsRef<[u8]>) -> Result<FsSpace> {
        let path = path.as_ref();
        let work = async {
            self.walk().file(path, true).await?;
            Ok(self.fs.clone().statfs().await?)
        };
        self.told("ask for the space of", path, work).await
    }
}

fn of_control(e: crate::control::ControlError) -> Failed {
    let errno = Errno(e.errno);
    if e.message == errno.text() { errno.into() } else { Failed::because(errno, e.message) }
}
