//! Walks through trees of files by several threads, with memory that does not depend on how many files there
//! are: directories are read by pages, depth first, and a thread that has nothing to do is given a directory
//! by one that has.
//!
//! What a directory tells of its entries comes with their names, many at once, from the metadata server
//! ([`Listed`]); everything else ([`Directory`]) is asked for one file at a time, by who needs it.

mod crew;
#[cfg(test)]
pub(crate) mod fake;
pub mod index;
mod mounted;

pub use crew::{THREADS_MAX, default_threads, walk, walk_below};
pub use mounted::{Mounted, MountedIndex, is_to_scan};

use crate::failure::{Failure, FirstError};
use crate::interrupt::Interrupt;
use client::control::{Listed, Name, Stripe};
use model::mutex::Mutex;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use wire::msg::scan::Test;
use world::sys::walk::FullStat;

/// Some entries of a directory.
#[derive(Debug)]
pub struct Page {
    pub entries: Vec<Listed>,
    /// The cookie of the next page, `None` at the end.
    pub next: Option<u64>,
}

/// A directory that is open. What is asked of an entry that has gone meanwhile is `None`.
pub trait Directory {
    /// Entries behind a cookie (0: from the first), with their inodes if wanted: then the right to search
    /// the directory is needed as well as that to read it (`EACCES`).
    fn page(&self, cookie: u64, inodes: bool) -> Result<Page, Failure>;
    /// As with inodes, sorted by name, and with what files are to get that outgrow them
    /// ([`Inode::grows_into`](client::control::Inode)) if the mount and its servers can say it.
    fn layouts(&self, cookie: u64) -> Result<Page, Failure> {
        self.page(cookie, true)
    }
    /// One entry with its inode.
    fn inode(&self, name: &Name) -> Result<Option<Listed>, Failure>;
    /// Size, space and times, of which object servers know a part; if `lazy` as this host keeps them.
    fn stat(&self, name: &Name, lazy: bool) -> Result<Option<FullStat>, Failure>;
    /// What new files of a directory get; of a file its layout.
    fn defaults(&self, name: &Name) -> Result<Option<Stripe>, Failure>;
    /// What new files of the directory itself get.
    fn own_defaults(&self) -> Result<Option<Stripe>, Failure>;
    fn xattr(&self, name: &Name, xattr: &OsStr) -> Result<Option<Vec<u8>>, Failure>;
}

/// Where directories are opened.
pub trait Tree: Sync {
    /// `None`: it has gone, or lies on another file system than the walk began on.
    fn open(&self, path: &Path) -> Result<Option<Box<dyn Directory>>, Failure>;
    /// The path that the walk begins at, as if it were the only entry of a directory.
    fn start(&self) -> Result<(Box<dyn Directory>, Listed), Failure>;
}

/// Where some entries are.
pub struct Place<'a> {
    pub dir: &'a dyn Directory,
    /// `None`: the entry is the path that the walk began at.
    pub path: Option<&'a Path>,
    /// The path that the walk began at, as it was given.
    pub root: &'a Path,
    /// Of the entries; 0 is the path that the walk began at.
    pub depth: u32,
    /// Of the page that they are.
    pub cookie: u64,
}

impl Place<'_> {
    /// Path of an entry, as it is shown.
    pub fn of(&self, name: &Name) -> PathBuf {
        match self.path {
            Some(p) => p.join(OsStr::from_bytes(&name.0)),
            None => self.root.to_path_buf(),
        }
    }
}

/// Who looks at what a walk meets.
pub trait Visitor: Sync {
    /// Whether each entry's inode is needed: then they come with the names.
    fn wants_inodes(&self) -> bool;
    /// Whether what files are to get that outgrow their inodes is needed as well ([`Directory::layouts`]).
    fn wants_layouts(&self) -> bool {
        false
    }
    /// Directories at this depth are not entered.
    fn max_depth(&self) -> u32;
    /// What else holds of all that it still wants: a scan that goes on may leave out what does not fit that.
    fn still_wanted(&self) -> Option<Test> {
        None
    }
    /// Some entries of one directory; called by several threads.
    fn visit(&self, at: &Place<'_>, entries: Vec<Listed>, run: &Run<'_>);
}

/// What a command's walks have in common: how far they are, what went wrong, whether they are to stop.
pub struct Run<'a> {
    pub interrupt: &'a Interrupt,
    /// `lfs find`: before each message.
    pub prefix: &'static str,
    errors: Mutex<FirstError>,
    pub seen: &'a AtomicU64,
}

impl<'a> Run<'a> {
    pub fn new(prefix: &'static str, interrupt: &'a Interrupt, seen: &'a AtomicU64) -> Run<'a> {
        Run { interrupt, prefix, errors: Mutex::default(), seen }
    }

    /// Says what failed; the walk goes on.
    pub fn report(&self, f: &Failure) {
        self.errors.lock().report(self.prefix, f);
    }

    pub fn finish(self) -> FirstError {
        self.errors.into_inner()
    }

    /// So many files more were met.
    fn count(&self, n: usize) {
        self.seen.fetch_add(n as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
