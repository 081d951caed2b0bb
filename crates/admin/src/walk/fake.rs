//! A tree in memory that counts what is asked of it.

use super::{Directory, Page, Tree};
use crate::failure::Failure;
use client::control::{Inode, Listed, Name, Stripe};
use model::layout::{COMPONENT_INIT, EOF};
use model::{Attr, Errno, Fid, FileType, Layout, LayoutSpec, Timestamp};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use world::sys::walk::FullStat;

/// Entries of a page.
pub const PAGE: usize = 16;

/// One file of the tree.
#[derive(Clone, Debug)]
pub struct FakeFile {
    pub attr: Attr,
    pub layout: Option<Layout>,
    pub default: Option<LayoutSpec>,
    pub xattrs: Vec<(&'static str, Vec<u8>)>,
    /// What its object servers make of size and times, or their refusal.
    pub stat: Result<FullStat, Errno>,
    /// Listing it is refused, or asking for what is in it.
    pub refused: Option<Errno>,
    pub may_not_search: bool,
}

/// How often what was asked.
#[derive(Default)]
pub struct Asked {
    pub plain_pages: AtomicUsize,
    pub full_pages: AtomicUsize,
    pub inodes: AtomicUsize,
    pub stats: AtomicUsize,
    pub defaults: AtomicUsize,
    pub xattrs: AtomicUsize,
}

#[derive(Default)]
pub struct Fake {
    pub files: BTreeMap<PathBuf, FakeFile>,
    pub root: PathBuf,
    pub asked: Arc<Asked>,
}

pub fn attr(kind: FileType, oid: u32) -> Attr {
    Attr {
        fid: Fid::new(0x200000401, oid, 0),
        kind,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        projid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: Timestamp::ZERO,
        mtime: Timestamp::ZERO,
        ctime: Timestamp::ZERO,
        btime: Timestamp::ZERO,
        mtime_stamp: Timestamp::ZERO,
        flags: 0,
        version: 0,
    }
}

/// A layout on these OSTs, of one component.
pub fn striped(osts: &[u16], stripe_size: u32, pool: &str) -> Layout {
    let l = Layout::plain(Fid::new(1, 2, 0), stripe_size, pool, osts);
    assert_eq!((l.components[0].flags, l.components[0].end), (COMPONENT_INIT, EOF));
    l
}

impl Fake {
    /// A tree with its root.
    pub fn new() -> Fake {
        let mut f = Fake { root: PathBuf::from("/m"), ..Fake::default() };
        f.add("", FileType::Directory);
        f
    }

    /// A file or directory below the root, to be changed as wanted.
    pub fn add(&mut self, path: &str, kind: FileType) -> &mut FakeFile {
        let path = if path.is_empty() { self.root.clone() } else { self.root.join(path) };
        let attr = attr(kind, self.files.len() as u32 + 1);
        let zero = (0, 0);
        let stat = FullStat { size: 0, blocks: 0, atime: zero, mtime: zero, ctime: zero, btime: None };
        let layout = (kind == FileType::Regular).then(|| Layout::on_mdt(65536));
        let file = FakeFile {
            attr,
            layout,
            default: None,
            xattrs: Vec::new(),
            stat: Ok(stat),
            refused: None,
            may_not_search: false,
        };
        self.files.entry(path).or_insert(file)
    }

    fn listed(&self, path: &Path, inodes: bool) -> Option<Listed> {
        let f = self.files.get(path)?;
        let name = Name(path.file_name().unwrap_or_default().as_bytes().to_vec());
        let inode = inodes.then(|| Inode { attr: f.attr.clone(), layout: f.layout.clone() });
        Some(Listed { name, kind: f.attr.kind, fid: f.attr.fid, inode })
    }

    fn opened(&self, path: &Path, itself: bool) -> Box<dyn Directory> {
        let below = |p: &&PathBuf| p.parent() == Some(path);
        let entries: Vec<PathBuf> = self.files.keys().filter(below).cloned().collect();
        let files = Fake { files: self.files.clone(), root: self.root.clone(), asked: self.asked.clone() };
        Box::new(FakeDirectory { files, path: path.to_path_buf(), entries, itself })
    }
}

impl Tree for Fake {
    fn open(&self, path: &Path) -> Result<Option<Box<dyn Directory>>, Failure> {
        match self.files.get(path) {
            None => Ok(None),
            Some(FakeFile { refused: Some(e), .. }) => {
                Err(Failure::op("cannot list", &path.display().to_string(), *e))
            }
            Some(_) => Ok(Some(self.opened(path, false))),
        }
    }

    fn start(&self) -> Result<(Box<dyn Directory>, Listed), Failure> {
        let listed = self.listed(&self.root, true).expect("the root is there");
        Ok((self.opened(&self.root, true), listed))
    }
}

struct FakeDirectory {
    files: Fake,
    path: PathBuf,
    entries: Vec<PathBuf>,
    itself: bool,
}

impl FakeDirectory {
    fn file(&self, name: &Name) -> Option<&FakeFile> {
        let below = self.path.join(OsStr::from_bytes(&name.0));
        self.files.files.get(if self.itself { &self.path } else { &below })
    }

    fn may_not_search(&self) -> bool {
        self.files.files[&self.path].may_not_search && !self.itself
    }

    fn denied(&self) -> Failure {
        Failure::op("cannot stat", &self.path.display().to_string(), Errno::EACCES)
    }
}

fn count(n: &AtomicUsize) {
    n.fetch_add(1, Ordering::Relaxed);
}

impl Directory for FakeDirectory {
    fn page(&self, cookie: u64, inodes: bool) -> Result<Page, Failure> {
        let asked = &self.files.asked;
        count(if inodes { &asked.full_pages } else { &asked.plain_pages });
        if inodes && self.may_not_search() {
            return Err(self.denied());
        }
        let from = cookie as usize;
        let to = (from + PAGE).min(self.entries.len());
        let entries = self.entries[from..to].iter().filter_map(|p| self.files.listed(p, inodes)).collect();
        Ok(Page { entries, next: (to < self.entries.len()).then_some(to as u64) })
    }

    fn inode(&self, name: &Name) -> Result<Option<Listed>, Failure> {
        count(&self.files.asked.inodes);
        if self.may_not_search() {
            return Err(self.denied());
        }
        Ok(self.files.listed(&self.path.join(OsStr::from_bytes(&name.0)), true))
    }

    fn stat(&self, name: &Name, _lazy: bool) -> Result<Option<FullStat>, Failure> {
        count(&self.files.asked.stats);
        let object = self.path.join(OsStr::from_bytes(&name.0)).display().to_string();
        self.file(name).map(|f| f.stat.map_err(|e| Failure::op("cannot stat", &object, e))).transpose()
    }

    fn defaults(&self, name: &Name) -> Result<Option<Stripe>, Failure> {
        count(&self.files.asked.defaults);
        let of = |f: &FakeFile| Stripe {
            fid: f.attr.fid,
            kind: f.attr.kind,
            layout: None,
            default: f.default.clone(),
            fs_default: None,
            mdt_bytes: None,
            grows_into: None,
        };
        Ok(self.file(name).map(of))
    }

    fn own_defaults(&self) -> Result<Option<Stripe>, Failure> {
        let above = FakeDirectory {
            files: Fake { files: self.files.files.clone(), ..Fake::default() },
            path: self.path.clone(),
            entries: Vec::new(),
            itself: true,
        };
        above.defaults(&Name::default())
    }

    fn xattr(&self, name: &Name, xattr: &OsStr) -> Result<Option<Vec<u8>>, Failure> {
        count(&self.files.asked.xattrs);
        let all = self.file(name).map(|f| f.xattrs.as_slice()).unwrap_or_default();
        Ok(all.iter().find(|(n, _)| OsStr::new(n) == xattr).map(|(_, v)| v.clone()))
    }
}
