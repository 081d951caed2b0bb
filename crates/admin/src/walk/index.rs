//! What a walk would meet, from the metadata server's inodes: no directory is read, but those that are closed
//! to the caller, where a walk says what there is to say.

use super::crew::walk_below;
use super::{Directory, Page, Place, Run, Tree, Visitor};
use crate::failure::Failure;
use client::control::{Completed, Inode, Listed, Name, OfObjects, Stripe};
use model::mutex::Mutex;
use model::{Errno, Fid, FileType};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wire::msg::scan::{self, Cursor, Found, ROOT_PLACE, ScanReply, Test};
use world::sys;
use world::sys::walk::FullStat;

/// Who answers scans.
pub trait Index: Sync {
    /// Files below the directory at which the walk begins, behind a cursor, that may fit all tests. What
    /// objects know of them is added if it is wanted; of files that are left each is asked by itself.
    fn page(
        &self,
        after: Option<Cursor>,
        tests: &[Test],
        objects: Option<OfObjects>,
    ) -> Result<Completed, Answer>;
}

/// Why there is no page.
#[derive(Debug)]
pub enum Answer {
    /// The caller may not read and search the directory at which the walk begins.
    Closed,
    /// Servers or the mount do not know what a scan is.
    Unknown(Failure),
    Failed(Failure),
}

/// What a scan is about, and how it is done.
pub struct ScanPlan<'a> {
    pub root: &'a Path,
    pub tests: &'a [Test],
    /// What is wanted of what only objects know.
    pub objects: Option<OfObjects>,
    pub threads: usize,
    /// A failure if servers do not know what a scan is, or else a walk instead.
    pub is_forced: bool,
}

/// How far it is.
#[derive(Default)]
struct State {
    after: Option<Cursor>,
    has_ended: bool,
    too_long: u64,
    /// Files whose records cannot be read, each of which is reported once.
    damaged: BTreeSet<Fid>,
}

struct Scanner<'a> {
    tree: &'a dyn Tree,
    index: &'a dyn Index,
    scanning: &'a ScanPlan<'a>,
    visitor: &'a dyn Visitor,
    run: &'a Run<'a>,
    state: Mutex<State>,
}

/// Shows `visitor` everything from the root on that may fit the tests, in no order. Returns early when the
/// command is to stop.
pub fn scan(tree: &dyn Tree, index: &dyn Index, s: &ScanPlan<'_>, visitor: &dyn Visitor, run: &Run<'_>) {
    let (dir, listed) = match tree.start() {
        Ok(found) => found,
        Err(f) => return run.report(&f),
    };
    run.count(1);
    let below = listed.kind == FileType::Directory && visitor.max_depth() > 0;
    let at = Place { dir: &*dir, path: None, root: s.root, depth: 0, cookie: 0 };
    visitor.visit(&at, vec![listed], run);
    drop(dir);
    if !below {
        return;
    }
    let scanner = Scanner { tree, index, scanning: s, visitor, run, state: Mutex::default() };
    match scanner.first() {
        Ok(page) => scanner.show(page),
        Err(Answer::Closed) => return scanner.walk(s.root, 0),
        Err(Answer::Unknown(_)) if !s.is_forced => return scanner.walk(s.root, 0),
        Err(Answer::Unknown(f) | Answer::Failed(f)) => return run.report(&f),
    }
    sys::together(s.threads.clamp(1, super::THREADS_MAX), |_| scanner.work());
    let left_out = scanner.state.lock().too_long;
    if left_out > 0 {
        let shown = s.root.display().to_string();
        let why = format!("{left_out} names are left out");
        run.report(&Failure::explained("cannot look at all below", &shown, Errno::ENAMETOOLONG, &why));
    }
}

impl Scanner<'_> {
    fn first(&self) -> Result<Completed, Answer> {
        self.next(&mut self.state.lock())
    }

    /// The page behind the last one; who has asked for it lets others ask for the next.
    fn next(&self, state: &mut State) -> Result<Completed, Answer> {
        let mut tests = self.scanning.tests.to_vec();
        tests.extend(self.visitor.still_wanted());
        tests.truncate(scan::TESTS_MAX);
        let found = self.index.page(state.after, &tests, self.scanning.objects)?;
        let page = &found.page;
        state.has_ended = page.next.is_none();
        state.after = page.next;
        state.too_long += u64::from(page.too_long);
        self.run.count(page.looked as usize);
        Ok(found)
    }

    fn work(&self) {
        loop {
            let page = {
                let mut state = self.state.lock();
                if state.has_ended || self.run.interrupt.stopped() {
                    return;
                }
                let page = self.next(&mut state);
                state.has_ended |= page.is_err();
                page
            };
            match page {
                Ok(page) => self.show(page),
                Err(Answer::Closed) => {
                    // It was closed meanwhile.
                    let shown = self.scanning.root.display().to_string();
                    return self.run.report(&Failure::op("cannot list", &shown, Errno::EACCES));
                }
                Err(Answer::Unknown(f) | Answer::Failed(f)) => return self.run.report(&f),
            }
        }
    }

    fn walk(&self, dir: &Path, depth: u32) {
        let threads = if depth == 0 { self.scanning.threads } else { 1 };
        walk_below(self.tree, self.scanning.root, (dir, depth), threads, self.visitor, self.run);
    }

    fn show(&self, found: Completed) {
        let Completed { mut page, left } = found;
        let files = std::mem::take(&mut page.files);
        for fid in &page.damaged {
            if self.state.lock().damaged.insert(*fid) {
                self.run.report(&Failure::op("cannot stat", &fid.to_string(), Errno::EIO));
            }
        }
        let Some(dirs) = paths(self.scanning.root, &page) else {
            let shown = self.scanning.root.display().to_string();
            return self.run.report(&Failure::op("cannot understand what is below", &shown, Errno::EPROTO));
        };
        let place = |parent: u32| match parent {
            ROOT_PLACE => Some((self.scanning.root, 0)),
            n => dirs.get(n as usize).map(|(p, d)| (p.as_path(), *d)),
        };
        for (parent, entries) in by_directory(files, &left) {
            let Some((path, depth)) = place(parent) else { continue };
            if depth >= self.visitor.max_depth() || self.run.interrupt.stopped() {
                continue;
            }
            let dir = Later { tree: self.tree, path, opened: OnceCell::new() };
            let at =
                Place { dir: &dir, path: Some(path), root: self.scanning.root, depth: depth + 1, cookie: 0 };
            self.visitor.visit(&at, entries, self.run);
        }
        for closed in &page.closed {
            let Some((path, depth)) = place(closed.parent) else { continue };
            if depth + 1 < self.visitor.max_depth() && !self.run.interrupt.stopped() {
                self.walk(&path.join(OsStr::from_bytes(&closed.name)), depth + 1);
            }
        }
    }
}

/// Path and depth of each directory of a page. `None`: one stands before its parent.
fn paths(root: &Path, page: &ScanReply) -> Option<Vec<(PathBuf, u32)>> {
    let mut out: Vec<(PathBuf, u32)> = Vec::with_capacity(page.dirs.len());
    for d in &page.dirs {
        let name = OsStr::from_bytes(&d.name);
        out.push(match d.parent {
            ROOT_PLACE => (root.join(name), 1),
            n => out.get(n as usize).map(|(p, depth)| (p.join(name), depth + 1))?,
        });
    }
    Some(out)
}

fn by_directory(files: Vec<Found>, left: &[u32]) -> BTreeMap<u32, Vec<Listed>> {
    let mut out: BTreeMap<u32, Vec<Listed>> = BTreeMap::new();
    let left: BTreeSet<u32> = left.iter().copied().collect();
    for (f, place) in files.into_iter().zip(0..) {
        let Found { attr, layout, names } = f;
        let (kind, fid, is_complete) = (attr.kind, attr.fid, !left.contains(&place));
        let inode = Inode { is_complete, ..Inode::new(attr, layout) };
        let inodes = std::iter::repeat_n(inode, names.len());
        for (scan::Name { parent, name }, inode) in names.into_iter().zip(inodes) {
            out.entry(parent).or_default().push(Listed { name: Name(name), kind, fid, inode: Some(inode) });
        }
    }
    out
}

/// A directory that is opened when something is asked of it.
struct Later<'a> {
    tree: &'a dyn Tree,
    path: &'a Path,
    opened: OnceCell<Result<Option<Box<dyn Directory>>, Failure>>,
}

impl Later<'_> {
    /// What it answers; `gone` if it is not there any more.
    fn ask<T>(&self, gone: T, f: impl FnOnce(&dyn Directory) -> Result<T, Failure>) -> Result<T, Failure> {
        match self.opened.get_or_init(|| self.tree.open(self.path)) {
            Ok(Some(dir)) => f(&**dir),
            Ok(None) => Ok(gone),
            Err(e) => Err(e.clone()),
        }
    }
}

impl Directory for Later<'_> {
    fn page(&self, cookie: u64, inodes: bool) -> Result<Page, Failure> {
        self.ask(Page { entries: Vec::new(), next: None }, |d| d.page(cookie, inodes))
    }

    fn layouts(&self, cookie: u64) -> Result<Page, Failure> {
        self.ask(Page { entries: Vec::new(), next: None }, |d| d.layouts(cookie))
    }

    fn inode(&self, name: &Name) -> Result<Option<Listed>, Failure> {
        self.ask(None, |d| d.inode(name))
    }

    fn stat(&self, name: &Name, lazy: bool) -> Result<Option<FullStat>, Failure> {
        self.ask(None, |d| d.stat(name, lazy))
    }

    fn defaults(&self, name: &Name) -> Result<Option<Stripe>, Failure> {
        self.ask(None, |d| d.defaults(name))
    }

    fn own_defaults(&self) -> Result<Option<Stripe>, Failure> {
        self.ask(None, |d| d.own_defaults())
    }

    fn xattr(&self, name: &Name, xattr: &OsStr) -> Result<Option<Vec<u8>>, Failure> {
        self.ask(None, |d| d.xattr(name, xattr))
    }
}

/// Whether there are more than so many files below the root, as far as the caller may list them.
pub fn has_more_than(tree: &dyn Tree, root: &Path, bound: u64, run: &Run<'_>) -> bool {
    let (mut left, mut met) = (vec![root.to_path_buf()], 0u64);
    while let Some(path) = left.pop() {
        let Ok(Some(dir)) = tree.open(&path) else { continue };
        let mut cookie = 0;
        while let Ok(page) = dir.page(cookie, false) {
            met += page.entries.len() as u64;
            if met > bound || run.interrupt.stopped() {
                return true;
            }
            let dirs = page.entries.iter().filter(|e| e.kind == FileType::Directory);
            left.extend(dirs.map(|e| path.join(OsStr::from_bytes(&e.name.0))));
            match page.next {
                Some(next) => cookie = next,
                None => break,
            }
        }
    }
    false
}
