//! The threads of a walk.
//!
//! Each keeps the directories it has to read on a stack of its own, so it goes down before it goes on: what
//! it remembers is a page of names for each level. The directory at the bottom, which has most below it, goes
//! to a thread that waits for one.

use super::{Place, Run, Tree, Visitor};
use crate::failure::Failure;
use client::control::{Listed, Name};
use model::mutex::{Condvar, Mutex};
use model::{Errno, FileType};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use world::sys;

/// Most threads of a walk.
pub const THREADS_MAX: usize = 32;
const THREADS_DEFAULT: usize = 4;

/// As many as there are processors, four at most.
pub fn default_threads() -> usize {
    sys::idle::processors().clamp(1, THREADS_DEFAULT)
}

/// A directory to read from a cookie on.
struct Job {
    above: Arc<PathBuf>,
    /// `None`: `above` itself.
    name: Option<Name>,
    cookie: u64,
    /// Of its entries.
    depth: u32,
}

impl Job {
    fn path(&self) -> PathBuf {
        match &self.name {
            Some(n) => self.above.join(OsStr::from_bytes(&n.0)),
            None => self.above.to_path_buf(),
        }
    }
}

#[derive(Default)]
struct Shared {
    /// Never more than there are threads that wait.
    jobs: VecDeque<Job>,
    waiting: usize,
    ended: bool,
}

struct Crew<'a> {
    tree: &'a dyn Tree,
    visitor: &'a dyn Visitor,
    run: &'a Run<'a>,
    root: &'a Path,
    threads: usize,
    shared: Mutex<Shared>,
    more: Condvar,
}

/// Shows `visitor` everything from `root` on; within a directory each entry before what is below it, apart
/// from that in no order. Returns early when the command is to stop.
pub fn walk(tree: &dyn Tree, root: &Path, threads: usize, visitor: &dyn Visitor, run: &Run<'_>) {
    let (dir, listed) = match tree.start() {
        Ok(found) => found,
        Err(f) => return run.report(&f),
    };
    run.count(1);
    let below = listed.kind == FileType::Directory && visitor.max_depth() > 0;
    let at = Place { dir: &*dir, path: None, root, depth: 0, cookie: 0 };
    visitor.visit(&at, vec![listed], run);
    drop(dir);
    if below {
        walk_below(tree, root, (root, 0), threads, visitor, run);
    }
}

/// As [`walk`], from what is in a directory on, which is so many levels below the root.
pub fn walk_below(
    tree: &dyn Tree,
    root: &Path,
    (dir, depth): (&Path, u32),
    threads: usize,
    visitor: &dyn Visitor,
    run: &Run<'_>,
) {
    let threads = threads.clamp(1, THREADS_MAX);
    let first = Job { above: Arc::new(dir.to_path_buf()), name: None, cookie: 0, depth: depth + 1 };
    let shared = Mutex::new(Shared { jobs: VecDeque::from([first]), ..Shared::default() });
    let crew = Crew { tree, visitor, run, root, threads, shared, more: Condvar::default() };
    let numbers: Vec<usize> = (0..threads).collect();
    sys::at_once(&numbers, |_| crew.work());
}

impl Crew<'_> {
    fn work(&self) {
        let mut own = VecDeque::new();
        while let Some(job) = own.pop_back().or_else(|| self.take()) {
            if self.run.interrupt.stopped() {
                self.end();
                return;
            }
            self.read(&job, &mut own);
            self.give(&mut own);
        }
    }

    /// A job of another thread's; `None` when nobody has any more.
    fn take(&self) -> Option<Job> {
        let mut s = self.shared.lock();
        s.waiting += 1;
        loop {
            if s.ended {
                return None;
            }
            if let Some(job) = s.jobs.pop_front() {
                s.waiting -= 1;
                return Some(job);
            }
            if s.waiting == self.threads {
                s.ended = true;
                self.more.notify_all();
                return None;
            }
            s = self.more.wait(s);
        }
    }

    /// Hands the oldest directories to threads that wait.
    fn give(&self, own: &mut VecDeque<Job>) {
        if own.is_empty() || self.threads == 1 {
            return;
        }
        let mut s = self.shared.lock();
        while s.jobs.len() < s.waiting {
            let Some(job) = own.pop_front() else { break };
            s.jobs.push_back(job);
            self.more.notify_one();
        }
        assert!(s.jobs.len() <= self.threads, "a job is given to somebody who waits");
    }

    fn end(&self) {
        self.shared.lock().ended = true;
        self.more.notify_all();
    }

    /// Reads one page; what is left of the directory, and the directories on the page, come onto the stack.
    fn read(&self, job: &Job, own: &mut VecDeque<Job>) {
        let path = job.path();
        let found = self.tree.open(&path).and_then(|d| match d {
            Some(dir) => {
                let page = match self.visitor.wants_layouts() {
                    true => dir.layouts(job.cookie),
                    false => dir.page(job.cookie, self.visitor.wants_inodes()),
                };
                let page = match page {
                    // Who may not search it may still read the names.
                    Err(Failure::Op { errno: Errno::EACCES, .. }) => dir.page(job.cookie, false),
                    page => page,
                }?;
                Ok(Some((dir, page)))
            }
            None => Ok(None),
        });
        let (dir, page) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return,
            Err(f) => return self.run.report(&f),
        };
        self.run.count(page.entries.len());
        let below: Vec<Name> =
            if job.depth < self.visitor.max_depth() { directories(&page.entries) } else { Vec::new() };
        let at =
            Place { dir: &*dir, path: Some(&path), root: self.root, depth: job.depth, cookie: job.cookie };
        self.visitor.visit(&at, page.entries, self.run);
        let above = Arc::new(path);
        if let Some(next) = page.next {
            own.push_back(Job { above: above.clone(), name: None, cookie: next, depth: job.depth });
        }
        let job = |name| Job { above: above.clone(), name: Some(name), cookie: 0, depth: job.depth + 1 };
        own.extend(below.into_iter().rev().map(job));
    }
}

fn directories(entries: &[Listed]) -> Vec<Name> {
    entries.iter().filter(|e| e.kind == FileType::Directory).map(|e| e.name.clone()).collect()
}
