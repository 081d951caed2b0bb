//! The files that a rule may be about, from the index that answers `lfs find`.

use super::rules::{Entry, Rule, at_latest};
use super::select::{Due, Selection};
use crate::command::find::candidate::{Candidate, Time};
use crate::command::report::each_file;
use crate::failure::{Failure, FirstError};
use crate::interrupt::Interrupt;
use crate::local;
use crate::walk::index::{self, ScanPlan};
use crate::walk::{self, Mounted, MountedIndex, Place, Run, Visitor};
use client::control::{Listed, Name, OfObjects};
use model::mutex::Mutex;
use model::{FileType, Timestamp};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use wire::msg::scan::Test;

/// What a rule takes.
pub struct Taken {
    /// In its order.
    pub entries: Vec<Entry>,
    /// All files that fit, and their space; `None`: those that it does not take were not looked at.
    pub fitting: Option<(u64, u64)>,
    /// The same of each user, of those that were looked at.
    pub users: BTreeMap<u32, (u64, u64)>,
    /// More are needed than it may take at once.
    pub has_more: bool,
}

/// Shows a selection what a walk meets.
pub struct SelectionVisitor<'a> {
    root: &'a Path,
    selection: Mutex<Selection<'a>>,
    /// Whether it is to be known of all that fit how many they are.
    counts_all: bool,
}

impl<'a> SelectionVisitor<'a> {
    pub fn new(rule: &'a Rule, due: &'a Due, now: i64, counts_all: bool) -> SelectionVisitor<'a> {
        let selection = Mutex::new(Selection::new(rule, due, now));
        SelectionVisitor { root: &rule.directory, selection, counts_all }
    }

    pub fn finish(self) -> Taken {
        let mut s = self.selection.into_inner();
        let fitting = self.counts_all.then_some(s.fitting);
        let (users, has_more) = (std::mem::take(&mut s.users), s.has_more());
        Taken { entries: s.into_entries(), fitting, users, has_more }
    }
}

impl Visitor for SelectionVisitor<'_> {
    fn wants_inodes(&self) -> bool {
        true
    }

    fn max_depth(&self) -> u32 {
        u32::MAX
    }

    fn still_wanted(&self) -> Option<Test> {
        let bound = self.selection.lock().bound().filter(|_| !self.counts_all);
        bound.map(|(time, latest)| at_latest(time, latest))
    }

    fn visit(&self, at: &Place<'_>, entries: Vec<Listed>, run: &Run<'_>) {
        let files = entries.into_iter().filter(|l| l.kind == FileType::Regular);
        each_file(at, files, run, |c| {
            let below = c.path.strip_prefix(self.root).unwrap_or(&c.path);
            let e = entry(&c, Name(below.as_os_str().as_bytes().to_vec()));
            self.selection.lock().offer(e);
        });
    }
}

/// A file of which everything was learned.
pub fn entry(c: &Candidate, path: Name) -> Entry {
    let attr = &c.inode().attr;
    let of = |t| {
        let (sec, nsec) = c.time(t);
        Timestamp { sec, nsec }
    };
    Entry {
        path,
        fid: attr.fid,
        uid: attr.uid,
        gid: attr.gid,
        projid: attr.projid,
        nlink: attr.nlink,
        size: c.size(),
        space: c.blocks().saturating_mul(512),
        atime: of(Time::Access),
        mtime: of(Time::Modify),
        ctime: of(Time::Change),
        btime: of(Time::Birth),
        pool: c.component().map(|c| c.pool.clone()).unwrap_or_default(),
        osts: c.layout().map(|l| l.objects().map(|o| o.ost).collect()).unwrap_or_default(),
    }
}

/// What a rule takes of a mounted file system. The error that is reported first is the second value: what was
/// not seen is not taken.
pub fn gather(
    rule: &Rule,
    due: &Due,
    (now, counts_all): (i64, bool),
    seen: &AtomicU64,
    interrupt: &Interrupt,
) -> Result<(Taken, FirstError), Failure> {
    let root: &PathBuf = &rule.directory;
    local::mount_point(root)?;
    let (tree, tests) = (Mounted::new(root)?, rule.tests(now));
    let run = Run::new("nacre policy", interrupt, seen);
    let visitor = SelectionVisitor::new(rule, due, now, counts_all);
    let threads = walk::default_threads();
    if walk::is_to_scan(&tree, root, None, true, &run)? {
        let objects = Some(OfObjects::Space);
        let plan = ScanPlan { root, tests: &tests, objects, threads, is_forced: false };
        index::scan(&tree, &MountedIndex::new(root), &plan, &visitor, &run);
    } else {
        walk::walk(&tree, root, threads, &visitor, &run);
    }
    Ok((visitor.finish(), run.finish()))
}
