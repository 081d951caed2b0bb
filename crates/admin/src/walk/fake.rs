//! A tree in memory that counts what is asked of it.

use super::index::{Answer, Index};
use super::{Directory, Page, Tree};
use crate::failure::Failure;
use client::control::{Completed, Inode, Listed, Name, OfObjects, Stripe};
use model::layout::{COMPONENT_INIT, EOF};
use model::{Attr, Errno, Fid, FileType, Layout, LayoutSpec, Timestamp};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use wire::msg::scan::{self, Condition, Cursor, Number, ROOT_PLACE, ScanReply, Test};
use world::sys::walk::FullStat;

/// Entries of a page.
pub const PAGE: usize = 16;

/// One file of the tree.
#[derive(Clone, Debug)]
pub struct FakeFile {
    pub attr: Attr,
    pub layout: Option<Layout>,
    pub default: Option<LayoutSpec>,
    /// What it is to get when it outgrows its inode.
    pub grows_into: Option<LayoutSpec>,
    pub xattrs: Vec<(&'static str, Vec<u8>)>,
    /// What its object servers make of size and times, or their refusal.
    pub stat: Result<FullStat, Errno>,
    /// Listing it is refused, or asking for what is in it.
    pub refused: Option<Errno>,
    pub may_not_search: bool,
}

impl FakeFile {
    /// What a mount says of it when it is asked for its layout alone.
    pub fn stripe(&self) -> Stripe {
        Stripe {
            fid: self.attr.fid,
            kind: self.attr.kind,
            layout: self.layout.clone(),
            default: self.default.clone(),
            fs_default: None,
            mdt_bytes: None,
            grows_into: self.grows_into.clone(),
        }
    }
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
    /// Of a version whose pages do not say what files grow into.
    pub is_of_old: bool,
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
        special: 0,
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

impl FakeFile {
    /// With what its objects know; `None` if they do not say.
    fn completed(&self) -> Option<FakeFile> {
        let (s, of) = (self.stat.ok()?, |(sec, nsec): (i64, u32)| Timestamp { sec, nsec });
        let has_objects = self.layout.as_ref().is_some_and(|l| l.objects().next().is_some());
        let mut f = self.clone();
        if has_objects {
            (f.attr.size, f.attr.blocks) = (s.size, s.blocks);
            (f.attr.atime, f.attr.mtime, f.attr.ctime) = (of(s.atime), of(s.mtime), of(s.ctime));
        }
        Some(f)
    }
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
            grows_into: None,
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
        let inode = inodes.then(|| Inode::new(f.attr.clone(), f.layout.clone()));
        Some(Listed { name, kind: f.attr.kind, fid: f.attr.fid, inode })
    }

    fn opened(&self, path: &Path, itself: bool) -> Box<dyn Directory> {
        let below = |p: &&PathBuf| p.parent() == Some(path);
        let entries: Vec<PathBuf> = self.files.keys().filter(below).cloned().collect();
        let files = Fake {
            files: self.files.clone(),
            root: self.root.clone(),
            asked: self.asked.clone(),
            is_of_old: self.is_of_old,
        };
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

impl Fake {
    /// Whether an inode says that a test does not hold: what is known to objects only is looked at if it was
    /// added.
    fn is_excluded(f: &FakeFile, t: &Test, is_complete: bool) -> bool {
        let a = &f.attr;
        let (regular, directory) = (a.kind == FileType::Regular, a.kind == FileType::Directory);
        let layout = f.layout.as_ref().filter(|_| regular);
        let striped = !is_complete && layout.is_some_and(|l| l.objects().next().is_some());
        let main = layout
            .and_then(|l| l.components.iter().rev().find(|c| !c.objects.is_empty()).or(l.components.last()));
        let of_main = |n: Option<usize>| if directory { None } else { Some(n.map_or(-1, |n| n as i64)) };
        let number = |of: Number| match of {
            Number::Uid => Some(i64::from(a.uid)),
            Number::Gid => Some(i64::from(a.gid)),
            Number::Project => Some(i64::from(a.projid)),
            Number::Links => Some(i64::from(a.nlink)),
            Number::Size => (!striped).then_some(a.size as i64),
            Number::Space => (!striped).then_some(a.blocks as i64 * 512),
            Number::Atime => Some(a.atime.sec),
            Number::Mtime => (!striped).then_some(a.mtime.sec),
            Number::Ctime => (!striped).then_some(a.ctime.sec),
            Number::Btime => Some(a.btime.sec),
            Number::StripeCount => of_main(main.map(|c| c.objects.len())),
            Number::StripeSize => of_main(main.map(|c| c.stripe_size as usize)),
        };
        let holds = match &t.condition {
            Condition::Types(bits) => Some(bits >> a.kind.d_type() & 1 == 1),
            Condition::Within(of, from, to) => number(*of).map(|n| (*from..=*to).contains(&n)),
            Condition::Flags { with, without } => Some(a.flags & with == *with && a.flags & without == 0),
            Condition::Mode { mask, bits } => Some(a.mode & mask == *bits),
            Condition::Osts(list) => Some(layout.is_some_and(|l| l.objects().any(|o| list.contains(&o.ost)))),
            Condition::FirstOst(list) => {
                Some(main.and_then(|c| c.objects.first()).is_some_and(|o| list.contains(&o.ost)))
            }
            Condition::Pool(_) if directory => None,
            Condition::Pool(name) => Some(main.is_some_and(|c| c.pool.as_bytes() == name)),
        };
        holds == Some(t.negated)
    }

    /// Whether all directories from the root to that one may be listed; if not, whether it is the first.
    fn reached(&self, dir: &Path) -> bool {
        let shut = |p: &Path| self.files.get(p).is_some_and(|f| f.refused.is_some() || f.may_not_search);
        dir.starts_with(&self.root) && !dir.ancestors().take_while(|p| p.starts_with(&self.root)).any(shut)
    }
}

impl Index for Fake {
    fn page(
        &self,
        after: Option<Cursor>,
        tests: &[Test],
        objects: Option<OfObjects>,
    ) -> Result<Completed, Answer> {
        if !self.reached(&self.root) {
            return Err(Answer::Closed);
        }
        let from = after.map_or(0, |c| c.file.oid);
        let (mut page, mut left) = (ScanReply::default(), Vec::new());
        let mut all: Vec<_> = self.files.iter().filter(|(p, _)| **p != self.root).collect();
        all.sort_by_key(|(_, f)| f.attr.fid.oid);
        all.retain(|(_, f)| f.attr.fid.oid > from);
        let is_last = all.len() <= PAGE;
        let mut places: BTreeMap<PathBuf, u32> = BTreeMap::from([(self.root.clone(), ROOT_PLACE)]);
        for (path, f) in all.into_iter().take(PAGE) {
            page.looked += 1;
            page.next = (!is_last).then_some(Cursor { file: f.attr.fid, name: None });
            let parent = path.parent().expect("it is below the root");
            if !self.reached(parent) {
                continue;
            }
            let mut way: Vec<&Path> = parent.ancestors().take_while(|p| !places.contains_key(*p)).collect();
            while let Some(dir) = way.pop() {
                let above = places[dir.parent().expect("it is below the root")];
                let name = dir.file_name().unwrap_or_default().as_bytes().to_vec();
                places.insert(dir.to_path_buf(), page.dirs.len() as u32);
                page.dirs.push(scan::Directory { fid: self.files[dir].attr.fid, parent: above, name });
            }
            let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
            let name = scan::Name { parent: places[parent], name };
            if f.attr.kind == FileType::Directory && !self.reached(path) {
                page.closed.push(name.clone());
            }
            let completed = objects.and_then(|_| f.completed());
            if objects.is_some() && completed.is_none() {
                left.push(page.files.len() as u32);
            }
            let is_complete = completed.is_some();
            let f = completed.unwrap_or_else(|| f.clone());
            if !tests.iter().any(|t| Fake::is_excluded(&f, t, is_complete)) {
                let (attr, layout) = (f.attr, f.layout);
                page.files.push(scan::Found { attr, layout, names: vec![name] });
            } else if !is_complete {
                left.pop();
            }
        }
        if objects.is_none() {
            left = (0..page.files.len() as u32).collect();
        }
        Ok(Completed { page, left })
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

    fn layouts(&self, cookie: u64) -> Result<Page, Failure> {
        let mut page = self.page(cookie, true)?;
        for l in page.entries.iter_mut().filter(|_| !self.files.is_of_old) {
            let grows_into = self.file(&l.name).and_then(|f| f.grows_into.clone()).map(Arc::new);
            if let Some(i) = &mut l.inode {
                i.grows_into = grows_into;
            }
        }
        Ok(page)
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
        if self.may_not_search() {
            return Err(self.denied());
        }
        Ok(self.file(name).map(FakeFile::stripe))
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
