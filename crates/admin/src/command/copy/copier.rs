//! The first pass: makes what is missing below DST, name by name, folders from the top down.
//!
//! Files are written under their own names, not under temporary ones: nothing has to be cleaned up after a
//! `kill -9`, hard links and layouts belong to the file that stays, and a small file costs a rename less. A
//! file that is not complete is told by its time of modification, which is set last.

use super::attributes::{self, DEFAULT_ACL, Outcome, Was};
use super::file::{self, FilePieces, Made};
use super::links::{Claim, Links};
use super::report::{Report, add};
use super::restore::{NotKept, Restore};
use super::rules::LayoutRule;
use crate::pool::{BLOCK_BYTES, Pool, Stop};
use model::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use world::sys::load::Buffer;
use world::sys::tree::{Folder, Kind, Listing, Node, Stat};

/// Names that are taken from a folder before its listing goes on: with the depth of the tree the bound of
/// what waits.
const LISTED_AT_ONCE: usize = 256;

/// A folder of SRC and what it becomes.
pub struct FolderPair {
    pub from: Folder,
    /// `None` in a dry run, where it may not be there.
    pub to: Option<Folder>,
    /// Below SRC and DST; empty for these two.
    pub path: PathBuf,
    /// Nothing lies in the copy yet.
    pub fresh: bool,
    /// New files get access lists from it.
    pub has_default_acl: bool,
    /// New files get its group.
    pub gives_group: bool,
    /// A restore makes the copy, now or before it was interrupted: nobody else has put anything there.
    pub begun: bool,
    /// The project of what is made in the copy, if files have some.
    pub project: Option<u32>,
    /// As it is in SRC; `None` for the folders that hold SRC and DST.
    stat: Option<Stat>,
    /// What DST itself is called, in the folder that holds it.
    renamed: Option<OsString>,
    parent: Option<Arc<FolderPair>>,
}

impl FolderPair {
    pub fn name_in_copy<'a>(&'a self, name: &'a OsStr) -> &'a OsStr {
        self.renamed.as_deref().unwrap_or(name)
    }

    /// Of a name in it, below SRC and DST.
    pub fn path_of(&self, name: &OsStr) -> PathBuf {
        if self.renamed.is_some() { PathBuf::new() } else { self.path.join(name) }
    }
}

pub enum Task {
    /// Goes on listing a folder.
    List(Arc<FolderPair>, Listing),
    One(Arc<FolderPair>, OsString),
    /// Copies a name of a file whose first name lies there: it cannot be a hard link to it.
    Alone(Arc<FolderPair>, OsString, PathBuf),
    /// Copies pieces of a large file.
    Pieces(Arc<FilePieces>),
}

/// What to copy, and how.
pub struct Options {
    pub src: PathBuf,
    pub dst: PathBuf,
    pub threads: usize,
    pub layouts: Vec<LayoutRule>,
    /// Removes what is gone from SRC.
    pub delete: bool,
    pub dry_run: bool,
    pub root: bool,
    /// Files above it are copied by several workers at once, and flushed before they count as complete.
    pub large_bytes: u64,
    /// Files come back from a snapshot; `None`: everything of DST may be replaced.
    pub restore: Option<Restore>,
}

pub struct CopyRun<'a> {
    pub options: &'a Options,
    pub report: &'a Report,
    pub stop: &'a Stop,
    pub pool: Pool<Task>,
    links: Links<(Arc<FolderPair>, OsString)>,
    /// The folder that holds DST, and what DST is called in it.
    base: (Folder, OsString),
    /// Device and inode of DST: it must not be met within SRC.
    within: OnceLock<(u64, u64)>,
    /// Who works here, and his group.
    pub user: (u32, u32),
}

/// The folder that holds a path, and its name there.
pub fn holder(path: &Path) -> io::Result<(Folder, OsString)> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((Folder::open(parent)?, name.to_os_string())),
        _ => Ok((Folder::open(path)?, OsString::from("."))),
    }
}

impl<'a> CopyRun<'a> {
    /// `src` and `dst` of the options have no symbolic links in them.
    pub fn new(options: &'a Options, report: &'a Report, stop: &'a Stop) -> io::Result<CopyRun<'a>> {
        let base = holder(&options.dst)?;
        let within = OnceLock::new();
        if let Some(s) = base.0.find(&base.1)?.filter(|s| s.kind() == Kind::Folder) {
            within.get_or_init(|| s.id());
        }
        let (pool, links) = (Pool::new(stop), Links::default());
        let user = (world::sys::euid(), world::sys::egid());
        Ok(CopyRun { options, report, stop, pool, links, base, within, user })
    }

    /// All of it. Errors are in the report.
    pub fn run(&self) -> io::Result<()> {
        let (from, name) = holder(&self.options.src)?;
        let (to, renamed) = holder(&self.options.dst)?;
        let has_default_acl = Node::Open(to.as_fd()).xattr(DEFAULT_ACL.as_ref())?.is_some();
        let gives_group = to.stat()?.mode & 0o2000 != 0;
        let project = self.options.restore.as_ref().and_then(|r| r.project_in(&to));
        let top = FolderPair {
            from,
            to: Some(to),
            path: PathBuf::new(),
            fresh: false,
            has_default_acl,
            gives_group,
            begun: false,
            project,
            stat: None,
            renamed: Some(renamed),
            parent: None,
        };
        self.pool.push(Task::One(Arc::new(top), name));
        let left = self.pool.run(self.options.threads, |task, buffer| match task {
            Task::List(b, listing) => self.list(b, listing),
            Task::One(b, name) => self.one(b, name, buffer),
            Task::Alone(b, name, first) => self.alone(b, name, &first, buffer),
            Task::Pieces(large) => file::pieces(self, large, buffer),
        });
        assert!(left.is_empty() || self.stop.wanted(), "only a stop leaves work undone");
        // FilePieces files that nobody goes on with are removed.
        let mut buffer = Buffer::new(BLOCK_BYTES);
        for task in left {
            if let Task::Pieces(large) = task {
                file::pieces(self, large, &mut buffer);
            }
        }
        Ok(())
    }

    /// Where it lies in SRC, for messages.
    pub fn shown(&self, path: &Path) -> PathBuf {
        if path.as_os_str().is_empty() { self.options.src.clone() } else { self.options.src.join(path) }
    }

    /// What ended because everything ends is no error of its own.
    pub fn failed(&self, path: &Path, what: &str, e: io::Error) {
        let canceled = e.raw_os_error() == Some(Errno::ECANCELED.0);
        if !(canceled && self.stop.wanted()) {
            self.report.error(&self.shown(path), what, e);
        }
    }

    fn list(&self, b: Arc<FolderPair>, mut listing: Listing) {
        let mut names = Vec::new();
        while names.len() < LISTED_AT_ONCE {
            match listing.next() {
                Some(Ok(name)) => names.push(name),
                Some(Err(e)) => {
                    self.report.error(&self.shown(&b.path), "list", e);
                    break;
                }
                None => break,
            }
        }
        let more = names.len() == LISTED_AT_ONCE;
        let one = |n| Task::One(b.clone(), n);
        if more {
            self.pool
                .push_all(std::iter::once(Task::List(b.clone(), listing)).chain(names.into_iter().map(one)));
        } else {
            self.pool.push_all(names.into_iter().map(one));
        }
        self.left(b);
    }

    fn one(&self, b: Arc<FolderPair>, name: OsString, buffer: &mut Buffer) {
        if let Err((what, e)) = self.entry(&b, &name, buffer) {
            self.failed(&b.path_of(&name), what, e);
        }
        self.report.show("copy");
        self.stop.step();
        self.left(b);
    }

    fn alone(&self, b: Arc<FolderPair>, name: OsString, first: &Path, buffer: &mut Buffer) {
        let path = b.path_of(&name);
        let mut work = || {
            let Some(wanted) = b.from.find(&name).map_err(|e| ("look at", e))? else { return Ok(()) };
            let Some(to) = &b.to else { return Ok(()) };
            let there = to.find(b.name_in_copy(&name)).map_err(|e| ("look at the copy of", e))?;
            // No other name waits for it.
            let wanted = Stat { nlink: 1, ..wanted };
            match wanted.kind() {
                Kind::File => file::copy(self, &b, &name, wanted, there, buffer).map(drop),
                _ => self.special(&b, &name, wanted, there),
            }
        };
        match work() {
            Ok(()) => {
                let first = self.options.dst.join(first);
                let why = format!(
                    "is a file of its own now, and no hard link to '{}' as it was: files in its directory are \
                     of another project",
                    first.display()
                );
                self.report.difference(&self.options.dst.join(&path), &why);
            }
            Err((what, e)) => self.failed(&path, what, e),
        }
        self.left(b);
    }

    /// A task on a folder is done. With the last one the folder is complete, and perhaps its parents.
    pub fn left(&self, b: Arc<FolderPair>) {
        let mut last = Arc::into_inner(b);
        while let Some(b) = last {
            if !self.stop.wanted() {
                self.complete(&b);
            }
            last = b.parent.and_then(Arc::into_inner);
        }
    }

    /// What is made in a folder changes its times, and what it may not allow could not be made later.
    fn complete(&self, b: &FolderPair) {
        let (Some(stat), Some(to)) = (&b.stat, &b.to) else { return };
        if self.options.dry_run {
            return;
        }
        if let Some(r) = self.options.restore.as_ref().filter(|_| self.may_replace(b)) {
            self.not_kept(&b.path, r.set_folder_project(&b.from, to));
        }
        let (from, to) = (b.from.as_fd(), to.as_fd());
        if !self.may_replace(b) {
            self.differs(&b.path, Node::Open(from), stat, Node::Open(to));
            return;
        }
        let was = if b.fresh { Was::Made } else { Was::There };
        match Node::Open(to).stat() {
            Ok(now) => {
                let marked = self.options.restore.as_ref().filter(|_| b.begun);
                let first = marked.filter(|_| !self.options.root && stat.mode & 0o200 == 0);
                if let Some(r) = first {
                    r.unmark(Node::Open(to));
                }
                let out =
                    attributes::set(Node::Open(from), stat, Node::Open(to), &now, was, self.options.root);
                self.outcome(&b.path, out, b.fresh);
                if let Some(r) = marked.filter(|_| first.is_none()) {
                    r.unmark(Node::Open(to));
                }
            }
            Err(e) => self.report.error(&self.shown(&b.path), "look at the copy of", e),
        }
    }

    /// Whether what lies in a folder of the copy may become another: always, but where a restore finds what
    /// it did not make itself.
    pub fn may_replace(&self, b: &FolderPair) -> bool {
        self.options.restore.as_ref().is_none_or(|r| r.overwrite || b.begun)
    }

    /// Says what is otherwise with something that is there and is left alone.
    pub fn differs(&self, path: &Path, from: Node<'_>, wanted: &Stat, to: Node<'_>) {
        let is_folder = wanted.kind() == Kind::Folder;
        let compared = to.stat().and_then(|now| {
            // What was made or removed in a folder since changed its time, and is meant to.
            let now = if is_folder { Stat { mtime: wanted.mtime, ..now } } else { now };
            attributes::compare(from, wanted, to, &now, self.options.root)
        });
        match compared {
            Ok(all) if all.is_empty() => {}
            Ok(all) => {
                let what = format!("is there, and its {}: --overwrite sets that", all.join(", its "));
                self.report.difference(&self.options.dst.join(path), &what);
            }
            Err(e) => self.report.error(&self.options.dst.join(path), "look at", e),
        }
    }

    pub fn outcome(&self, path: &Path, out: Outcome, made: bool) {
        if out.changed && !made {
            add(&self.report.counts.attributes_set, 1);
        }
        if out.owner_not_kept {
            add(&self.report.counts.owners_not_kept, 1);
        }
        for (what, e) in out.problems {
            self.report.error(&self.shown(path), &what, e);
        }
    }

    /// What a file that comes back could not be given.
    pub fn not_kept(&self, path: &Path, what: NotKept) {
        if what.project {
            add(&self.report.counts.projects_not_kept, 1);
        }
        for why in what.others {
            self.report.difference(&self.options.dst.join(path), &why);
        }
    }

    fn entry(&self, b: &Arc<FolderPair>, name: &OsStr, buffer: &mut Buffer) -> Result<(), Failed> {
        // A name that went since it was listed is a change like any other made a moment earlier.
        let Some(wanted) = b.from.find(name).map_err(|e| ("look at", e))? else { return Ok(()) };
        add(&self.report.counts.names, 1);
        let there = match &b.to {
            Some(to) if !b.fresh => to.find(b.name_in_copy(name)).map_err(|e| ("look at the copy of", e))?,
            _ => None,
        };
        if wanted.kind() == Kind::Folder {
            return self.enter(b, name, wanted, there);
        }
        if wanted.nlink > 1 {
            match self.links.claim(wanted.id(), (b.clone(), name.to_os_string())) {
                Claim::Wait => return Ok(()),
                Claim::Link((b, name), path) => {
                    return match self.link(&b, &name, &path)? {
                        Linked::Is => Ok(()),
                        Linked::Cannot => {
                            self.pool.push(Task::Alone(b, name, path));
                            Ok(())
                        }
                    };
                }
                Claim::Copy(_) => {}
            }
        }
        let made = match wanted.kind() {
            Kind::File => file::copy(self, b, name, wanted, there, buffer),
            _ => self.special(b, name, wanted, there).map(|()| Made::Now),
        };
        match made {
            // Who copies the last piece goes on.
            Ok(Made::Later) => Ok(()),
            Ok(Made::Now) => {
                self.linked(b, name, &wanted, true);
                Ok(())
            }
            Err(e) => {
                self.linked(b, name, &wanted, false);
                Err(e)
            }
        }
    }

    /// The first name of a file is there, or is not to be: other names that waited for it go on.
    pub fn linked(&self, b: &FolderPair, name: &OsStr, wanted: &Stat, made: bool) {
        if wanted.nlink < 2 {
            return;
        }
        let path = b.path_of(name);
        let waiting = if made {
            self.links.made(wanted.id(), &path, wanted.nlink)
        } else {
            self.links.failed(wanted.id())
        };
        for (b, name) in waiting {
            if !made {
                self.pool.push(Task::One(b, name));
                continue;
            }
            match self.link(&b, &name, &path) {
                Ok(Linked::Is) => {}
                Ok(Linked::Cannot) => {
                    self.pool.push(Task::Alone(b, name, path.clone()));
                    continue;
                }
                Err((what, e)) => self.report.error(&self.shown(&b.path_of(&name)), what, e),
            }
            self.left(b);
        }
    }

    /// Makes a name a hard link to what was copied to `path`.
    fn link(&self, b: &FolderPair, name: &OsStr, path: &Path) -> Result<Linked, Failed> {
        let what = "make a hard link for";
        let Some(to) = b.to.as_ref().filter(|_| !self.options.dry_run) else {
            add(&self.report.counts.hard_links_made, 1);
            return Ok(Linked::Is);
        };
        let old = Path::new(&self.base.1).join(path);
        let (dir, last) = (old.parent().unwrap_or(Path::new("")), old.file_name().unwrap_or_default());
        let held = if dir.as_os_str().is_empty() { None } else { Some(walk(&self.base.0, dir)) };
        let held = held.transpose().map_err(|e| (what, e))?;
        let first = held.as_ref().unwrap_or(&self.base.0);
        let wanted = first.stat_at(last).map_err(|e| (what, e))?;
        let name = b.name_in_copy(name);
        let restore = self.options.restore.as_ref();
        if let Some(there) = to.find(name).map_err(|e| ("look at the copy of", e))? {
            if there.id() == wanted.id() {
                add(&self.report.counts.skipped, 1);
                return Ok(Linked::Is);
            }
            if restore.is_some_and(|r| !r.may_link((first, last), to)) {
                return Ok(Linked::Cannot);
            }
            self.make_room(b, (to, name), &there)?;
        }
        match first.make_hard_link(Path::new(last), to, name) {
            Ok(()) => {
                add(&self.report.counts.hard_links_made, 1);
                Ok(Linked::Is)
            }
            Err(e) if restore.is_some() && e.raw_os_error() == Some(Errno::EXDEV.0) => Ok(Linked::Cannot),
            Err(e) => Err((what, e)),
        }
    }

    /// Takes away what is in the way of something else.
    pub fn make_room(
        &self,
        b: &FolderPair,
        (to, name): (&Folder, &OsStr),
        there: &Stat,
    ) -> Result<(), Failed> {
        if let Some(r) = self.options.restore.as_ref().filter(|_| !self.may_replace(b)) {
            let ours = there.kind() == Kind::File && r.is_begun(Node::Named(to, name));
            if !ours {
                return Err((
                    "replace (which --overwrite does) what is there in place of",
                    Errno::EEXIST.into(),
                ));
            }
        }
        if there.kind() != Kind::Folder {
            return to.unlink(name).map_err(|e| ("replace the copy of", e));
        }
        if self.options.restore.is_some() {
            return Err(("replace the directory (move it away first) in place of", Errno::EISDIR.into()));
        }
        if !self.options.delete {
            let why = "replace the directory (which --delete would) that lies in place of";
            return Err((why, Errno::EISDIR.into()));
        }
        let removed = super::delete::remove(to, name, there, &mut || !self.stop.wanted());
        removed.map(drop).map_err(|e| ("remove the directory in place of", e))
    }

    fn enter(
        &self,
        b: &Arc<FolderPair>,
        name: &OsStr,
        wanted: Stat,
        there: Option<Stat>,
    ) -> Result<(), Failed> {
        let path = b.path_of(name);
        if self.within.get() == Some(&wanted.id()) {
            return Err(("copy the destination into itself:", Errno::ELOOP.into()));
        }
        let from = b.from.folder(name).map_err(|e| ("open", e))?;
        let listing = from.list().map_err(|e| ("list", e))?;
        let is_there = there.is_some_and(|t| t.kind() == Kind::Folder);
        let mut next = FolderPair {
            from,
            to: None,
            path,
            fresh: !is_there,
            has_default_acl: false,
            gives_group: false,
            begun: !is_there,
            project: None,
            stat: Some(wanted),
            renamed: None,
            parent: Some(b.clone()),
        };
        match (&b.to, self.options.dry_run) {
            (Some(to), true) if is_there => {
                next.to = Some(to.folder(b.name_in_copy(name)).map_err(|e| ("open the copy of", e))?);
            }
            (Some(to), false) => {
                let (folder, has_default_acl) = self.folder(to, b, b.name_in_copy(name), there)?;
                let now = folder.stat().map_err(|e| ("look at the copy of", e))?;
                if b.renamed.is_some() {
                    self.within.get_or_init(|| now.id());
                }
                next.gives_group = now.mode & 0o2000 != 0;
                if let Some(r) = &self.options.restore {
                    next.begun = next.fresh || r.is_begun(Node::Open(folder.as_fd()));
                    if next.begun {
                        r.mark(Node::Open(folder.as_fd()));
                    }
                    if self.may_replace(&next) {
                        let not_kept = r.set_default(&next.from, &folder);
                        self.not_kept(&next.path, not_kept);
                    }
                    next.project = r.project_in(&folder);
                }
                (next.to, next.has_default_acl) = (Some(folder), has_default_acl);
            }
            _ => {}
        }
        add(if is_there { &self.report.counts.skipped } else { &self.report.counts.folders_made }, 1);
        self.pool.push(Task::List(Arc::new(next), listing));
        Ok(())
    }

    /// The folder in the copy, made if it is missing, so that this user can make files in it; and whether it
    /// gives new files access lists.
    fn folder(
        &self,
        to: &Folder,
        b: &FolderPair,
        name: &OsStr,
        there: Option<Stat>,
    ) -> Result<(Folder, bool), Failed> {
        let made = match there {
            Some(t) if t.kind() == Kind::Folder => None,
            other => {
                if let Some(t) = other {
                    self.make_room(b, (to, name), &t)?;
                }
                to.make_folder(name, 0o700).map_err(|e| ("make directory", e))?;
                Some(())
            }
        };
        let named = Node::Named(to, name);
        if let (None, Some(t)) = (made, there)
            && !self.options.root
            && t.mode & 0o700 != 0o700
        {
            named.set_permissions(t.permissions() | 0o700).map_err(|e| ("open the copy of", e))?;
        }
        let folder = to.folder(name).map_err(|e| ("open the copy of", e))?;
        let node = Node::Open(folder.as_fd());
        if made.is_none() {
            let acl = node.xattr(DEFAULT_ACL.as_ref()).map_err(|e| ("look at the copy of", e))?;
            return Ok((folder, acl.is_some()));
        }
        // What it inherited is not the source's, and must not go on to its files.
        if b.has_default_acl {
            for acl in ["system.posix_acl_access", DEFAULT_ACL] {
                node.remove_xattr(acl.as_ref()).map_err(|e| ("make directory", e))?;
            }
        }
        Ok((folder, false))
    }

    /// Symbolic links, FIFOs, sockets, devices.
    fn special(&self, b: &FolderPair, name: &OsStr, wanted: Stat, there: Option<Stat>) -> Result<(), Failed> {
        let counts = &self.report.counts;
        let is_link = wanted.kind() == Kind::Symlink;
        let target =
            if is_link { b.from.read_symlink(name).map_err(|e| ("read", e))? } else { OsString::new() };
        let new = b.name_in_copy(name);
        let same = match (&there, &b.to) {
            (Some(t), Some(_)) if t.mode & 0o170000 != wanted.mode & 0o170000 => false,
            (Some(_), Some(to)) if is_link => to.read_symlink(new).is_ok_and(|t| t == target),
            (Some(t), Some(_)) => t.rdev == wanted.rdev,
            _ => false,
        };
        let Some(to) = b.to.as_ref().filter(|_| !self.options.dry_run) else {
            let made = if is_link { &counts.symlinks_made } else { &counts.nodes_made };
            add(if same { &counts.skipped } else { made }, 1);
            return Ok(());
        };
        if !same {
            if let Some(t) = &there {
                self.make_room(b, (to, new), t)?;
            }
            if is_link {
                to.make_symlink(new, &target).map_err(|e| ("make the copy of", e))?;
            } else {
                let mode = wanted.mode & !0o7077;
                to.make_node(new, mode, wanted.rdev).map_err(|e| ("make the copy of", e))?;
            }
        }
        let made = if is_link { &counts.symlinks_made } else { &counts.nodes_made };
        add(if same { &counts.skipped } else { made }, 1);
        let node = Node::Named(to, new);
        if same && !self.may_replace(b) {
            self.differs(&b.path_of(name), Node::Named(&b.from, name), &wanted, node);
            return Ok(());
        }
        if let Some(r) = &self.options.restore {
            self.not_kept(&b.path_of(name), r.set_project((&b.from, name), (to, new), b.project));
        }
        let now = node.stat().map_err(|e| ("look at the copy of", e))?;
        let out = attributes::set(
            Node::Named(&b.from, name),
            &wanted,
            node,
            &now,
            was(same, b.has_default_acl && !is_link),
            self.options.root,
        );
        self.outcome(&b.path_of(name), out, !same);
        Ok(())
    }
}

/// Whether a name is a hard link to a file, or cannot be one.
enum Linked {
    Is,
    Cannot,
}

/// What failed, and why.
pub type Failed = (&'static str, io::Error);

pub fn was(there: bool, acl: bool) -> Was {
    match (there, acl) {
        (true, _) => Was::There,
        (false, true) => Was::MadeWithAcl,
        (false, false) => Was::Made,
    }
}

/// The folder at `path` below another, through no symbolic link.
fn walk(base: &Folder, path: &Path) -> io::Result<Folder> {
    let mut at: Option<Folder> = None;
    for part in path.components() {
        at = Some(at.as_ref().unwrap_or(base).folder(part.as_os_str())?);
    }
    at.ok_or_else(|| Errno::EINVAL.into())
}
