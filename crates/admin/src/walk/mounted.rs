//! Directories of a mount, which its daemon is asked about.

use super::index::{Answer, Index, has_more_than};
use super::{Directory, Page, Run, Tree};
use crate::failure::Failure;
use crate::local::{mount_name, mount_point, split, strange};
use client::control::{self, Completed, ControlError, Listed, Name, OfObjects, Reply, Request, Stripe};
use model::{Errno, Fid, LayoutSpec};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::msg::readdir::{GrowsInto, ReaddirReply};
use wire::msg::scan::{Cursor, ScanReply, Test};
use world::sys::mounts;
use world::sys::tree::{self, Folder, Node};
use world::sys::walk::{self, FullStat};

/// A walk of a mount from one path on.
pub struct Mounted {
    root: PathBuf,
    device: u64,
}

impl Mounted {
    /// `ENOENT` and the like for a path that is not there.
    pub fn new(root: &Path) -> Result<Mounted, Failure> {
        let seen = world::sys::files::stat(root, false);
        let device = seen.map_err(|e| Failure::io("cannot stat", &root.display().to_string(), e))?.dev;
        Ok(Mounted { root: root.to_path_buf(), device })
    }
}

impl Tree for Mounted {
    fn open(&self, path: &Path) -> Result<Option<Box<dyn Directory>>, Failure> {
        let opened = Folder::open(path).and_then(|f| f.stat().map(|s| (f, s.dev)));
        match opened {
            Ok((folder, device)) if device == self.device => {
                Ok(Some(Box::new(Opened { folder, path: path.to_path_buf() })))
            }
            Ok(_) => Ok(None),
            Err(e) if path != self.root && has_gone(&e) => Ok(None),
            Err(e) => Err(Failure::io("cannot list", &path.display().to_string(), e)),
        }
    }

    fn start(&self) -> Result<(Box<dyn Directory>, Listed), Failure> {
        let own = Start { path: self.root.clone() };
        let gone = || Failure::op("cannot stat", &self.root.display().to_string(), Errno::ENOENT);
        let listed = own.inode(&Name::default())?.ok_or_else(gone)?;
        Ok((Box::new(own), listed))
    }
}

/// The files below a directory of a mount, whose metadata server is asked.
pub struct MountedIndex {
    root: PathBuf,
    folder: Result<Folder, Failure>,
}

impl MountedIndex {
    pub fn new(root: &Path) -> MountedIndex {
        let shown = root.display().to_string();
        let folder = Folder::open(root).map_err(|e| Failure::io("cannot list", &shown, e));
        MountedIndex { root: root.to_path_buf(), folder }
    }
}

impl Index for MountedIndex {
    fn page(
        &self,
        after: Option<Cursor>,
        tests: &[Test],
        objects: Option<OfObjects>,
    ) -> Result<Completed, Answer> {
        let shown = self.root.display().to_string();
        let folder = match &self.folder {
            Ok(folder) => folder,
            Err(Failure::Op { errno: Errno::EACCES, .. }) => return Err(Answer::Closed),
            Err(f) => return Err(Answer::Failed(f.clone())),
        };
        let strange_page = |e| Answer::Failed(Failure::op("cannot understand what is below", &shown, e));
        match control::call(folder, &Request::Scan { after, tests: tests.to_vec(), objects }) {
            Ok(Reply::Completed(found)) => found.open().map_err(strange_page),
            Ok(Reply::Scanned(page)) => page.open().map(not_completed).map_err(strange_page),
            Ok(other) => Err(Answer::Failed(strange(&self.root, &other))),
            Err(e) => {
                let failure = Failure::control("cannot scan", &shown, &e);
                Err(match Errno(e.errno) {
                    Errno::EACCES => Answer::Closed,
                    // A server, or the mount's daemon, of an earlier version.
                    Errno::EOPNOTSUPP | Errno::EINVAL => Answer::Unknown(failure),
                    _ => Answer::Failed(failure),
                })
            }
        }
    }
}

/// A page of which the objects of no file were asked.
fn not_completed(page: ScanReply) -> Completed {
    let left = (0..).take(page.files.len()).collect();
    Completed { page, left }
}

/// Files of a small tree: a walk of so many costs nothing that is felt.
const SMALL: u64 = 1000;
/// Looking at an inode costs this part of listing a file, about.
const INODES_A_FILE: u64 = 32;

/// Whether to scan what is below `root`, or to walk. `wish`: what the user said; if nothing, a scan is made
/// where it is less to do, and `excludes` says that there are tests by which files drop out. `EXDEV` if a
/// scan is wished for and something else is mounted below: a walk does not see what is under that.
pub fn is_to_scan(
    tree: &Mounted,
    root: &Path,
    wish: Option<bool>,
    excludes: bool,
    run: &Run<'_>,
) -> Result<bool, Failure> {
    let shown = || root.display().to_string();
    let stat = world::sys::files::stat(root, false).map_err(|e| Failure::io("cannot stat", &shown(), e))?;
    if wish == Some(false) || !stat.is_dir() || (wish.is_none() && !excludes) {
        return Ok(false);
    }
    match (mounted_below(root)?, wish) {
        (Some(place), Some(_)) => {
            let why = format!("another file system is mounted at '{}'", place.display());
            return Err(Failure::explained("cannot scan", &shown(), Errno::EXDEV, &why));
        }
        (Some(_), None) => return Ok(false),
        (None, Some(_)) => return Ok(true),
        (None, None) => {}
    }
    let mount = mount_point(root)?;
    let is_mounted = world::sys::files::canonical(root).is_ok_and(|real| real == mount);
    if is_mounted && mount_name(&mount)?.root == Fid::ROOT {
        return Ok(true);
    }
    let used = mounts::used_inodes(root).map_err(|e| Failure::io("cannot stat", &shown(), e))?;
    Ok(has_more_than(tree, root, SMALL.max(used / INODES_A_FILE), run))
}

/// The first place below a directory where another file system is mounted.
fn mounted_below(root: &Path) -> Result<Option<PathBuf>, Failure> {
    let real = world::sys::files::canonical(root)
        .map_err(|e| Failure::io("cannot find", &root.display().to_string(), e))?;
    let all = mounts::list().map_err(|e| Failure::io("cannot read", "/proc/mounts", e))?;
    Ok(all.into_iter().map(|m| m.dir).find(|d| *d != real && d.starts_with(&real)))
}

/// Removed, or something else by now.
fn has_gone(e: &io::Error) -> bool {
    matches!(e.raw_os_error().map(Errno), Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE))
}

fn if_there<T>(r: io::Result<T>, what: &str, object: &Path) -> Result<Option<T>, Failure> {
    match r {
        Ok(v) => Ok(Some(v)),
        Err(e) if has_gone(&e) => Ok(None),
        Err(e) => Err(Failure::io(what, &object.display().to_string(), e)),
    }
}

fn answered(r: Result<Reply, ControlError>, what: &str, path: &Path) -> Result<Option<Reply>, Failure> {
    match r {
        Ok(reply) => Ok(Some(reply)),
        Err(e) if matches!(Errno(e.errno), Errno::ENOENT | Errno::ESTALE) => Ok(None),
        Err(e) => Err(Failure::control(what, &path.display().to_string(), &e)),
    }
}

fn one(reply: Option<Reply>, path: &Path) -> Result<Option<Listed>, Failure> {
    match reply {
        None => Ok(None),
        Some(Reply::Listing { mut entries, .. }) if entries.len() == 1 => Ok(entries.pop()),
        Some(other) => Err(strange(path, &other)),
    }
}

fn stripe(reply: Option<Reply>, path: &Path) -> Result<Option<Stripe>, Failure> {
    match reply {
        None => Ok(None),
        Some(Reply::Stripe(s)) => Ok(Some(*s)),
        Some(other) => Err(strange(path, &other)),
    }
}

/// A page as the metadata server says it. `EPROTO` for one that is none.
fn with_layouts(r: ReaddirReply) -> Result<Page, Errno> {
    let next = r.entries.last().map(|d| d.cookie).filter(|_| !r.end);
    let mut entries: Vec<Listed> = r.entries.into_iter().map(Listed::from).collect();
    let GrowsInto { specs, of } = r.grows_into.0.unwrap_or_default();
    let specs: Vec<Arc<LayoutSpec>> = specs.into_iter().map(Arc::new).collect();
    for (entry, spec) in of {
        let l = entries.get_mut(entry as usize).ok_or(Errno::EPROTO)?;
        let spec = specs.get(spec as usize).ok_or(Errno::EPROTO)?;
        if let Some(i) = &mut l.inode {
            i.grows_into = Some(spec.clone());
        }
    }
    Ok(Page { entries, next })
}

/// A directory that is open.
struct Opened {
    folder: Folder,
    path: PathBuf,
}

impl Opened {
    fn of(&self, name: &Name) -> PathBuf {
        self.path.join(OsStr::from_bytes(&name.0))
    }
}

impl Directory for Opened {
    fn page(&self, cookie: u64, inodes: bool) -> Result<Page, Failure> {
        let wanted = Request::Listing { cookie, inodes, grows_into: false };
        let reply = control::call(&self.folder, &wanted);
        match answered(reply, "cannot list", &self.path)? {
            // Removed while it was open.
            None => Ok(Page { entries: Vec::new(), next: None }),
            Some(Reply::Listing { entries, next }) => Ok(Page { entries, next }),
            Some(other) => Err(strange(&self.path, &other)),
        }
    }

    fn layouts(&self, cookie: u64) -> Result<Page, Failure> {
        let wanted = Request::Listing { cookie, inodes: true, grows_into: true };
        let reply = control::call(&self.folder, &wanted);
        let mut page = match answered(reply, "cannot list", &self.path)? {
            None => Page { entries: Vec::new(), next: None },
            Some(Reply::Layouts(said)) => {
                let shown = || self.path.display().to_string();
                let page = said.open().and_then(with_layouts);
                page.map_err(|e| Failure::op("cannot understand what is in", &shown(), e))?
            }
            // A mount of an earlier version.
            Some(Reply::Listing { entries, next }) => Page { entries, next },
            Some(other) => return Err(strange(&self.path, &other)),
        };
        page.entries.sort_unstable_by(|a, b| a.name.0.cmp(&b.name.0));
        Ok(page)
    }

    fn inode(&self, name: &Name) -> Result<Option<Listed>, Failure> {
        let path = self.of(name);
        let reply = control::call(&self.folder, &Request::Inode { name: Some(name.clone()) });
        one(answered(reply, "cannot stat", &path)?, &path)
    }

    fn stat(&self, name: &Name, lazy: bool) -> Result<Option<FullStat>, Failure> {
        let found = walk::stat_in(&self.folder, OsStr::from_bytes(&name.0), lazy);
        if_there(found, "cannot stat", &self.of(name))
    }

    fn defaults(&self, name: &Name) -> Result<Option<Stripe>, Failure> {
        let path = self.of(name);
        let reply = control::call(&self.folder, &Request::Getstripe { name: Some(name.clone()) });
        stripe(answered(reply, "cannot get layout of", &path)?, &path)
    }

    fn own_defaults(&self) -> Result<Option<Stripe>, Failure> {
        let reply = control::call(&self.folder, &Request::Getstripe { name: None });
        stripe(answered(reply, "cannot get layout of", &self.path)?, &self.path)
    }

    fn xattr(&self, name: &Name, xattr: &OsStr) -> Result<Option<Vec<u8>>, Failure> {
        let found = Node::Named(&self.folder, OsStr::from_bytes(&name.0)).xattr(xattr);
        Ok(if_there(found, "cannot read an extended attribute of", &self.of(name))?.flatten())
    }
}

/// The path that a walk begins at, which may be a file; names say nothing here.
struct Start {
    path: PathBuf,
}

impl Start {
    /// It is opened itself, or if that is not possible its directory.
    fn ask(&self, what: &str, make: impl Fn(Option<Name>) -> Request) -> Result<Option<Reply>, Failure> {
        let fail = |e: &ControlError| Failure::control(what, &self.path.display().to_string(), e);
        let kind = world::sys::files::stat(&self.path, false);
        let opened = match kind {
            Ok(s) if s.is_dir() || s.is_file() => control::open(&self.path),
            _ => Err(Errno::ELOOP.into()),
        };
        let call = |fd: OwnedFd, name| control::call(&fd, &make(name));
        let reply = match (opened, split(&self.path)) {
            (Ok(fd), _) => call(fd, None),
            (Err(e), (_, None)) => return Err(fail(&e)),
            (Err(_), (dir, name)) => control::open(&dir).and_then(|fd| call(fd, name)),
        };
        answered(reply, what, &self.path)
    }
}

impl Directory for Start {
    fn page(&self, _cookie: u64, _inodes: bool) -> Result<Page, Failure> {
        let entries = self.inode(&Name::default())?.into_iter().collect();
        Ok(Page { entries, next: None })
    }

    fn inode(&self, _name: &Name) -> Result<Option<Listed>, Failure> {
        let reply = self.ask("cannot stat", |name| Request::Inode { name })?;
        let mut listed = one(reply, &self.path)?;
        if let Some(l) = &mut listed {
            let shown = self.path.file_name().unwrap_or(self.path.as_os_str());
            l.name = Name(shown.as_bytes().to_vec());
        }
        Ok(listed)
    }

    fn stat(&self, _name: &Name, lazy: bool) -> Result<Option<FullStat>, Failure> {
        if_there(walk::stat(&self.path, lazy), "cannot stat", &self.path)
    }

    fn defaults(&self, _name: &Name) -> Result<Option<Stripe>, Failure> {
        stripe(self.ask("cannot get layout of", |name| Request::Getstripe { name })?, &self.path)
    }

    /// Of the directory that the path is in.
    fn own_defaults(&self) -> Result<Option<Stripe>, Failure> {
        let (dir, _) = split(&self.path);
        let reply = control::open(&dir).and_then(|fd| control::call(&fd, &Request::Getstripe { name: None }));
        stripe(answered(reply, "cannot get layout of", &dir)?, &dir)
    }

    fn xattr(&self, _name: &Name, xattr: &OsStr) -> Result<Option<Vec<u8>>, Failure> {
        let found = tree::xattr(&self.path, xattr);
        Ok(if_there(found, "cannot read an extended attribute of", &self.path)?.flatten())
    }
}
