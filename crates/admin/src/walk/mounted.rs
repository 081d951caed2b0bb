//! Directories of a mount, which its daemon is asked about.

use super::{Directory, Page, Tree};
use crate::failure::Failure;
use crate::local::{split, strange};
use client::control::{self, ControlError, Listed, Name, Reply, Request, Stripe};
use model::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
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
        let reply = control::call(&self.folder, &Request::Listing { cookie, inodes });
        match answered(reply, "cannot list", &self.path)? {
            // Removed while it was open.
            None => Ok(Page { entries: Vec::new(), next: None }),
            Some(Reply::Listing { entries, next }) => Ok(Page { entries, next }),
            Some(other) => Err(strange(&self.path, &other)),
        }
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
