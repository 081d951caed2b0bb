//! Removing a directory: says what is in it, takes its name away, then what is in it.

use super::make::MountSite;
use crate::command::copy::delete;
use crate::command::find::candidate::{Candidate, Time};
use crate::command::find::moment::iso;
use crate::command::quota::{directory, set::order_limits};
use crate::command::report::{below, each_file};
use crate::failure::{Failure, FirstError};
use crate::interrupt::Interrupt;
use crate::local;
use crate::names;
use crate::size::human;
use crate::walk::{Place, Run, Visitor};
use client::control::Listed;
use model::mutex::Mutex;
use model::quota::LimitOrder;
use model::usage::{QuotaId, QuotaType};
use model::{Errno, Fid, Set};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use world::sys::tree::{Kind, Node};

/// Before the name of a directory that is being removed.
pub const GONE: &str = ".nacre-userdir-gone.";
/// Files with several names that are remembered, so that they are counted once.
const LINKED_MAX: usize = 1 << 20;
/// Users that are named.
const OWNERS_SHOWN: usize = 10;

/// How far it is.
#[derive(Default)]
pub struct Progress {
    pub seen: AtomicU64,
    pub removed: AtomicU64,
}

/// What a directory has in it.
#[derive(Default, Debug)]
pub struct Contents {
    pub directories: u64,
    /// All that is no directory.
    pub files: u64,
    /// Space.
    pub bytes: u64,
    /// Of each user: files and space, directories included.
    pub owners: BTreeMap<u32, (u64, u64)>,
    /// When the file that was accessed first, and last, was accessed: seconds since 1970.
    pub accessed: Option<(i64, i64)>,
    linked: Set<Fid>,
}

impl Contents {
    pub fn add(&mut self, c: &Candidate) {
        let attr = &c.inode().attr;
        let is_linked = attr.nlink > 1 && !c.is_dir() && self.linked.len() < LINKED_MAX;
        if is_linked && !self.linked.insert(attr.fid) {
            return;
        }
        let bytes = c.blocks().saturating_mul(512);
        self.bytes = self.bytes.saturating_add(bytes);
        let of = self.owners.entry(attr.uid).or_default();
        *of = (of.0 + 1, of.1.saturating_add(bytes));
        if c.is_dir() {
            self.directories += 1;
            return;
        }
        self.files += 1;
        let (at, _) = c.time(Time::Access);
        self.accessed = Some(self.accessed.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
    }

    fn heaviest(&self) -> Vec<(u32, (u64, u64))> {
        let mut all: Vec<_> = self.owners.iter().map(|(id, of)| (*id, *of)).collect();
        all.sort_by_key(|(id, (files, bytes))| (std::cmp::Reverse((*bytes, *files)), *id));
        all
    }

    pub fn text(&self, path: &Path) -> String {
        let (files, dirs) = (self.files, self.directories);
        let mut out = format!(
            "{}: {files} files and {dirs} directories of {}\n",
            path.display(),
            human(self.bytes, 1024)
        );
        let all = self.heaviest();
        for (id, (n, bytes)) in all.iter().take(OWNERS_SHOWN) {
            let _ = writeln!(out, "  {:<20} {:>10} {n:>10} files", names::user(*id), human(*bytes, 1024));
        }
        if let Some(more) = all.len().checked_sub(OWNERS_SHOWN).filter(|n| *n > 0) {
            let _ = writeln!(out, "  and {more} users more");
        }
        if let Some((first, last)) = self.accessed {
            let _ = writeln!(out, "  accessed between {} and {}", iso(first), iso(last));
        }
        out
    }

    pub fn row(&self, path: &Path) -> Value {
        let owner = |(id, (files, bytes)): (u32, (u64, u64))| json!({"uid": id, "user": names::user(id), "files": files, "bytes": bytes});
        let owners: Vec<Value> = self.heaviest().into_iter().map(owner).collect();
        json!({"path": path, "files": self.files, "directories": self.directories, "bytes": self.bytes,
               "owners": owners, "oldest_access": self.accessed.map(|a| a.0),
               "newest_access": self.accessed.map(|a| a.1)})
    }
}

struct Counter(Mutex<Contents>);

impl Visitor for Counter {
    fn wants_inodes(&self) -> bool {
        true
    }

    fn max_depth(&self) -> u32 {
        u32::MAX
    }

    fn visit(&self, at: &Place<'_>, entries: Vec<Listed>, run: &Run<'_>) {
        each_file(at, entries, run, |c| self.0.lock().add(&c));
    }
}

/// One directory that is to go.
pub struct Removal {
    pub site: MountSite,
    pub name: String,
    /// Its name while it goes.
    hidden: String,
    /// It has that name already, from an earlier run.
    pub is_begun: bool,
    uid: u32,
    gid: u32,
}

impl Removal {
    /// The directory, or what an earlier run left of it.
    pub fn find(under: &Path, name: &str) -> Result<Removal, Failure> {
        let (site, hidden) = (MountSite::open(under)?, format!("{GONE}{name}"));
        let shown = under.join(name).display().to_string();
        let look =
            |n: &str| site.folder().find(OsStr::new(n)).map_err(|e| Failure::io("cannot look at", &shown, e));
        // What was begun is ended first: then its name is free.
        let (stat, is_begun) = match look(&hidden)? {
            Some(s) => (s, true),
            None => (look(name)?.ok_or_else(|| Failure::op("cannot remove", &shown, Errno::ENOENT))?, false),
        };
        if stat.kind() != Kind::Folder {
            return Err(Failure::op("cannot remove", &shown, Errno::ENOTDIR));
        }
        let (uid, gid) = (stat.uid, stat.gid);
        Ok(Removal { site, name: name.to_string(), hidden, is_begun, uid, gid })
    }

    fn now(&self) -> &str {
        if self.is_begun { &self.hidden } else { &self.name }
    }

    /// Looks through all of it.
    pub fn contents(
        &self,
        under: &Path,
        interrupt: &Interrupt,
        progress: &Progress,
    ) -> Result<(Contents, FirstError), Failure> {
        let run = Run::new("nacre userdir", interrupt, &progress.seen);
        let counter = Counter(Mutex::default());
        below(&under.join(self.now()), (None, crate::walk::default_threads()), &counter, &run)?;
        Ok((counter.0.into_inner(), run.finish()))
    }

    /// Whose limits were for this directory: its project's, its user's, or its group's. Its own, if it has
    /// any, go with it.
    fn limited(&self, under: &Path) -> Result<Vec<LimitOrder>, Failure> {
        let path = under.join(self.now());
        match directory::look(&path) {
            Ok((_, Some(_))) => return Ok(Vec::new()),
            Err(f) if Errno(f.exit_code()) != Errno::EOPNOTSUPP => return Err(f),
            _ => {}
        }
        let project = local::inode_of(&path, "cannot get the project of")?.attr.projid;
        let of = |of, id| QuotaId { of, id };
        let all = [
            of(QuotaType::Project, project),
            of(QuotaType::User, self.uid),
            of(QuotaType::Group, if self.uid == 0 { self.gid } else { 0 }),
        ];
        Ok(all.into_iter().filter(|q| q.id != 0).map(|of| LimitOrder::UseDefault { of }).collect())
    }

    /// Removes it. What was begun and stopped is gone on with by a second run.
    pub fn run(
        &mut self,
        under: &Path,
        with_limits: bool,
        interrupt: &Interrupt,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let shown = under.join(&self.name).display().to_string();
        let failed = |what: &'static str| {
            let shown = shown.clone();
            move |e| Failure::io(what, &shown, e)
        };
        let orders = if with_limits { self.limited(under)? } else { Vec::new() };
        let (name, hidden) = (OsStr::new(&self.name), OsStr::new(&self.hidden));
        if !self.is_begun {
            self.site.folder().rename_new(name, hidden).map_err(failed("cannot rename"))?;
            self.is_begun = true;
        }
        // From here on nobody but root finds a way into it.
        Node::Named(self.site.folder(), hidden).set_permissions(0).map_err(failed("cannot close"))?;
        for order in &orders {
            order_limits(self.site.mount(), order)?;
        }
        let there = self.site.folder().stat_at(hidden).map_err(failed("cannot look at"))?;
        let mut go_on = || {
            progress.removed.fetch_add(1, Relaxed);
            !interrupt.stopped()
        };
        match delete::remove(self.site.folder(), hidden, &there, &mut go_on) {
            Ok(_) => Ok(()),
            Err(e) if interrupt.stopped() => Err(Failure::io("was stopped while it removed", &shown, e)),
            Err(e) => Err(Failure::io("cannot remove all of", &shown, e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_is_shown_with_its_owners_and_times() {
        let mut c = Contents { directories: 3, files: 12, bytes: 5 << 20, ..Contents::default() };
        c.owners = BTreeMap::from([(70_001, (14, 4 << 20)), (70_002, (1, 1 << 20))]);
        c.accessed = Some((1_782_720_000, 1_799_996_400));
        let expected = "\
/m/home/anna: 12 files and 3 directories of 5.0M
  70001                      4.0M         14 files
  70002                      1.0M          1 files
  accessed between 2026-06-29T08:00:00Z and 2027-01-15T07:00:00Z
";
        assert_eq!(c.text(Path::new("/m/home/anna")), expected);
        let row = c.row(Path::new("/m/home/anna"));
        assert_eq!(
            (&row["owners"][0]["uid"], &row["oldest_access"]),
            (&json!(70_001), &json!(1_782_720_000))
        );
        c.owners = (0..13).map(|n| (80_000 + n, (1, 512))).collect();
        assert!(c.text(Path::new("/m")).contains("  and 3 users more\n"));
    }
}
