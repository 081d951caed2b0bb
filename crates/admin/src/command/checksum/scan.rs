//! The walk of a scan: every file below a directory is read once.

use super::state::State;
use super::sum::{Checksum, ChecksumKind};
use super::tally::{Finding, Totals};
use crate::live::ProgressLine;
use crate::pool::{Pool, Stop};
use crate::size::human;
use model::Errno;
use model::mutex::Mutex;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use world::sys::load::{Buffer, monotonic_ns};
use world::sys::tree::{Folder, Kind, Listing, Node, Stat};

const LISTED_AT_ONCE: usize = 256;

/// What to look at, and how.
pub struct Options {
    pub dir: PathBuf,
    pub xattr: OsString,
    pub kind: ChecksumKind,
    /// Gives files their checksum that have none.
    pub set: bool,
    /// Seconds since 1970: only files that were modified since.
    pub since: Option<i64>,
    pub threads: usize,
}

/// A directory whose own files are looked at.
struct Place {
    folder: Folder,
    /// Below the directory of the scan.
    path: PathBuf,
    /// An earlier scan looked at its files.
    done: bool,
    tally: Mutex<Totals>,
}

enum Task {
    List(Arc<Place>, Listing),
    One(Arc<Place>, OsString),
}

struct Scan<'a> {
    options: &'a Options,
    stop: &'a Stop,
    line: &'a ProgressLine,
    pool: Pool<Task>,
    state: Mutex<Option<State>>,
    total: Mutex<Totals>,
    files: AtomicU64,
    bytes: AtomicU64,
    began_ns: u64,
}

/// Looks at all. `before` is what an earlier scan found that this one goes on with. Returns all that is
/// known, and the state file if there is one.
pub fn run(
    options: &Options,
    stop: &Stop,
    line: &ProgressLine,
    state: Option<State>,
    before: Totals,
) -> io::Result<(Totals, Option<State>)> {
    let folder = Folder::open(&options.dir)?;
    let s = Scan {
        options,
        stop,
        line,
        pool: Pool::new(stop),
        state: Mutex::new(state),
        files: AtomicU64::new(before.files),
        bytes: AtomicU64::new(before.bytes),
        total: Mutex::new(before),
        began_ns: monotonic_ns(),
    };
    s.enter(folder, PathBuf::new())?;
    let left = s.pool.run(options.threads, |task, buffer| match task {
        Task::List(p, listing) => s.list(p, listing),
        Task::One(p, name) => s.one(p, &name, buffer),
    });
    // What was found in directories that are not done counts, and is found again by the next scan.
    for task in left {
        let (Task::List(p, _) | Task::One(p, _)) = task;
        s.left(p);
    }
    Ok((s.total.into_inner(), s.state.into_inner()))
}

impl Scan<'_> {
    fn enter(&self, folder: Folder, path: PathBuf) -> io::Result<()> {
        let listing = folder.list()?;
        let done = self.state.lock().as_ref().is_some_and(|s| s.has(&path));
        let place = Place { folder, path, done, tally: Mutex::default() };
        self.pool.push(Task::List(Arc::new(place), listing));
        Ok(())
    }

    fn list(&self, p: Arc<Place>, mut listing: Listing) {
        let mut names = Vec::new();
        let mut more = true;
        while more && names.len() < LISTED_AT_ONCE {
            match listing.next() {
                Some(Ok(n)) => names.push(n),
                Some(Err(e)) => {
                    self.error(&p, OsStr::new(""), "cannot list", e);
                    more = false;
                }
                None => more = false,
            }
        }
        if more {
            self.pool.push(Task::List(p.clone(), listing));
        }
        self.pool.push_all(names.into_iter().map(|n| Task::One(p.clone(), n)));
        self.left(p);
    }

    fn one(&self, p: Arc<Place>, name: &OsStr, buffer: &mut Buffer) {
        match p.folder.find(name) {
            Ok(Some(s)) if s.kind() == Kind::Folder => {
                let entered = p.folder.folder(name).and_then(|f| self.enter(f, p.path.join(name)));
                if let Err(e) = entered {
                    self.error(&p, name, "cannot open directory", e);
                }
            }
            Ok(Some(s)) if s.kind() == Kind::File && !p.done => {
                if self.options.since.is_none_or(|t| s.mtime.0 >= t) {
                    self.file(&p, name, &s, buffer);
                }
            }
            Ok(_) => {}
            Err(e) => self.error(&p, name, "cannot look at", e),
        }
        self.line.show(|| {
            let (files, bytes) = (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
            let seconds = monotonic_ns().saturating_sub(self.began_ns) as f64 / 1e9;
            let rate = (bytes as f64 / seconds.max(0.1)) as u64;
            format!("scan: {files} files, {}B, {}B/s", human(bytes, 1024), human(rate, 1024))
        });
        if !p.done {
            self.stop.step();
        }
        self.left(p);
    }

    /// With the last task on a directory its files are done, unless the scan is ended.
    fn left(&self, p: Arc<Place>) {
        let Some(p) = Arc::into_inner(p) else { return };
        let tally = p.tally.into_inner();
        self.total.lock().add(&tally);
        if p.done || self.stop.wanted() {
            return;
        }
        if let Some(state) = self.state.lock().as_mut()
            && let Err(e) = state.done(&p.path, &tally)
        {
            self.line.print(&format!("nacre checksum: cannot write the state file: {}", Errno::from(e)));
            self.stop.now();
        }
    }

    fn path(&self, p: &Place, name: &OsStr) -> PathBuf {
        let dir = if p.path.as_os_str().is_empty() {
            self.options.dir.clone()
        } else {
            self.options.dir.join(&p.path)
        };
        if name.is_empty() { dir } else { dir.join(name) }
    }

    fn error(&self, p: &Place, name: &OsStr, what: &str, e: io::Error) {
        let (path, errno) = (self.path(p, name), Errno::from(e));
        self.line.print(&format!("nacre checksum: {what} '{}': {errno}", path.display()));
        let path = path.to_string_lossy().into_owned();
        let what = format!("{what}: {}", errno.text());
        p.tally.lock().error(Finding { path, what, kept: None, found: None, errno: Some(errno.0) });
    }

    fn file(&self, p: &Place, name: &OsStr, before: &Stat, buffer: &mut Buffer) {
        p.tally.lock().files += 1;
        self.files.fetch_add(1, Ordering::Relaxed);
        if let Err((what, e)) = self.compare(p, name, before, buffer) {
            let ended = e.raw_os_error() == Some(Errno::ECANCELED.0) && self.stop.wanted();
            if !ended {
                self.error(p, name, what, e);
            }
        }
    }

    fn compare(
        &self,
        p: &Place,
        name: &OsStr,
        before: &Stat,
        buffer: &mut Buffer,
    ) -> Result<(), (&'static str, io::Error)> {
        let o = self.options;
        let kept = Node::Named(&p.folder, name).xattr(&o.xattr);
        let kept = kept.map_err(|e| ("cannot read the checksum of", e))?;
        if kept.is_none() && !o.set {
            p.tally.lock().without += 1;
            return Ok(());
        }
        let file = p.folder.read_file(name).map_err(|e| ("cannot open", e))?;
        let mut sum = Checksum::new(o.kind);
        let mut at = 0;
        loop {
            if self.stop.wanted() {
                return Err(("cannot go on with", Errno::ECANCELED.into()));
            }
            let n = file.read_at(buffer, at).map_err(|e| ("cannot read", e))?;
            sum.add(&buffer[..n]);
            at += n as u64;
            self.bytes.fetch_add(n as u64, Ordering::Relaxed);
            if n < buffer.len() {
                break;
            }
            self.stop.step();
        }
        let found = sum.text();
        let node = Node::Open(file.as_fd());
        let now = node.stat().map_err(|e| ("cannot look at", e))?;
        let mut tally = p.tally.lock();
        tally.bytes += at;
        if (now.id(), now.size, now.mtime) != (before.id(), before.size, before.mtime) {
            tally.changed += 1;
            return Ok(());
        }
        let Some(kept) = kept else {
            drop(tally);
            node.set_xattr(&o.xattr, found.as_bytes()).map_err(|e| ("cannot set the checksum of", e))?;
            p.tally.lock().set += 1;
            return Ok(());
        };
        if o.kind.read(&kept).is_some_and(|k| k == found) {
            tally.matched += 1;
            return Ok(());
        }
        let kept = String::from_utf8_lossy(&kept).into_owned();
        let path = self.path(p, name);
        self.line.print(&format!("nacre checksum: '{}': kept {kept}, found {found}", path.display()));
        let (path, what) = (shown(&path), "has another checksum than is kept".to_string());
        tally.mismatch(Finding { path, what, kept: Some(kept), found: Some(found), errno: None });
        Ok(())
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
