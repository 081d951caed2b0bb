//! `lfs find`: find(1) that also knows layouts. Predicates are and-ed, `!` negates the next one, their order
//! does not matter: what costs less is looked at first, and who is refused by it costs nothing more.

pub(crate) mod candidate;
mod format;
mod layout;
mod mode;
pub mod moment;
mod options;
mod predicate;
mod query;
mod range;
#[cfg(test)]
mod tests;

use crate::failure::{Failure, FirstError};
use crate::interrupt::{self, Interrupt};
use crate::walk::index::{self, ScanPlan};
use crate::walk::{self, Mounted, MountedIndex, Page, Place, Run, Visitor};
use crate::{local, output};
use candidate::{Candidate, Stage, Time};
use client::control::{Listed, Reply, Request};
use model::{Fid, FileType, Map};
use query::{Output, Query};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use world::sys::files;

pub const USAGE: &str = "PATH... [!] [-name GLOB] [-type bcdflps] [-size [+-]N[ckMGT]] [-blocks [+-]N] \
[-atime|-mtime|-ctime|-btime [+-]N[smhdwy]] [-newer[XY] FILE|TIME] [-user|-uid U] [-group|-gid G] \
[-perm [/-]MODE] [-links [+-]N] [-projid P] [-attrs [^]ATTR,..] [-xattr [^]NAME[=REGEX]] [-maxdepth N] \
[-mindepth N] [-stripe-count [+-]N] [-stripe-size [+-]N] [-stripe-index LIST] [-ost LIST] [-pool GLOB] \
[-layout raid0|mdt|released] [-component-count|-component-start|-component-end [+-]N] \
[-component-flags [^]FLAG,..] [-extension-size N] [-mirror-count N] [-mirror-state [^]STATE] [-foreign] \
[-mdt LIST] [-mdt-count N] [-mdt-hash HASH] [-skip PERCENT] [-threads N] [-lazy] [-index|-no-index] \
[-print|-print0|-printf FORMAT|-ls|-json]";

/// Of a page's entries at least one in so many has to be asked for, or each is asked for by itself.
const PAGE_SHARE: usize = 8;
/// And at least so many.
const PAGE_MIN: usize = 8;

/// Prints what a query fits of what a walk meets.
struct Finder<'a> {
    q: &'a Query,
}

impl Visitor for Finder<'_> {
    fn wants_inodes(&self) -> bool {
        let needed = |kind| self.q.stage(kind) > Stage::Name;
        let any = [FileType::Regular, FileType::Directory, FileType::Symlink].into_iter().any(needed);
        any && !self.q.picks_names()
    }

    fn max_depth(&self) -> u32 {
        self.q.max_depth
    }

    fn visit(&self, at: &Place<'_>, entries: Vec<Listed>, run: &Run<'_>) {
        output::bytes(&self.found(at, entries, run));
    }
}

impl Finder<'_> {
    /// The lines of what fits.
    fn found(&self, at: &Place<'_>, entries: Vec<Listed>, run: &Run<'_>) -> Vec<u8> {
        if at.depth < self.q.min_depth {
            return Vec::new();
        }
        let of = |l: Listed| Candidate::new(at.of(&l.name), at.depth, l);
        let mut left: Vec<Candidate> = entries.into_iter().map(of).collect();
        let met = left.len();
        self.keep(Stage::Name, &mut left, at, run);
        self.learn_inodes(&mut left, met, at, run);
        self.keep(Stage::Inode, &mut left, at, run);
        let mut out = Vec::new();
        for mut c in left {
            if run.interrupt.stopped() {
                break;
            }
            match self.look_closer(&mut c, at) {
                Ok(true) => self.print(&c, &mut out),
                Ok(false) => {}
                Err(f) => run.report(&f),
            }
        }
        out
    }

    fn keep(&self, stage: Stage, left: &mut Vec<Candidate>, at: &Place<'_>, run: &Run<'_>) {
        left.retain(|c| match self.q.fits(stage, c, at.dir) {
            Ok(fits) => fits,
            Err(f) => {
                run.report(&f);
                false
            }
        });
    }

    /// Inodes of those of which something is to be known, of `met` on the page: all of it at once if many are
    /// needed. Who has gone meanwhile is left out.
    fn learn_inodes(&self, left: &mut Vec<Candidate>, met: usize, at: &Place<'_>, run: &Run<'_>) {
        let lacks = |c: &Candidate| c.listed.inode.is_none() && self.q.stage(c.kind()) > Stage::Name;
        let lacking = left.iter().filter(|c| lacks(c)).count();
        if lacking >= PAGE_MIN && lacking * PAGE_SHARE >= met && at.path.is_some() {
            // Who may not search the directory is told so name by name.
            if let Ok(Page { entries, .. }) = at.dir.page(at.cookie, true) {
                let mut found: Map<(Fid, Vec<u8>), Listed> = Map::default();
                found.extend(entries.into_iter().map(|l| ((l.fid, l.name.0.clone()), l)));
                for c in left.iter_mut().filter(|c| lacks(c)) {
                    if let Some(l) = found.remove(&(c.listed.fid, c.listed.name.0.clone())) {
                        c.listed.inode = l.inode;
                    }
                }
            }
        }
        left.retain_mut(|c| {
            if !lacks(c) {
                return true;
            }
            if run.interrupt.stopped() {
                return false;
            }
            match at.dir.inode(c.name()) {
                Ok(Some(l)) => c.listed = Listed { name: c.listed.name.clone(), ..l },
                Ok(None) => return false,
                Err(f) => {
                    run.report(&f);
                    return false;
                }
            }
            c.listed.inode.is_some()
        });
    }

    /// What costs a question about this file alone. False if it does not fit or has gone.
    fn look_closer(&self, c: &mut Candidate, at: &Place<'_>) -> Result<bool, Failure> {
        let needed = self.q.stage(c.kind());
        if c.is_dir() && needed >= Stage::Question && self.q.needs_defaults() {
            c.defaults = at.dir.defaults(c.name())?;
        }
        if !self.q.fits(Stage::Question, c, at.dir)? {
            return Ok(false);
        }
        if needed == Stage::Objects && c.has_objects() && !c.inode().is_complete {
            c.stat = at.dir.stat(c.name(), self.q.lazy)?;
            if c.stat.is_none() {
                return Ok(false);
            }
        }
        Ok(self.q.fits(Stage::Objects, c, at.dir)? && !self.is_skipped(c.listed.fid))
    }

    /// Of all files the same share each time, whatever the order.
    fn is_skipped(&self, fid: Fid) -> bool {
        let hash = fid
            .to_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
        (hash >> 32) % 100 < u64::from(self.q.skip)
    }

    fn print(&self, c: &Candidate, out: &mut Vec<u8>) {
        match &self.q.output {
            Output::Lines | Output::Zeros => {
                out.extend_from_slice(c.path.as_os_str().as_bytes());
                out.push(if self.q.output == Output::Zeros { 0 } else { b'\n' });
            }
            Output::Format(f) => f.render(c, out),
            Output::Json => out.extend_from_slice(format!("{}\n", row(c)).as_bytes()),
        }
    }
}

fn row(c: &Candidate) -> serde_json::Value {
    let attr = &c.inode().attr;
    let layout = c.layout().zip(c.component()).map(|(l, main)| {
        json!({"pattern": crate::command::getstripe::pattern_word(main.pattern),
            "stripe_count": main.objects.len(), "stripe_size": main.stripe_size, "pool": main.pool,
            "components": l.components.len(), "osts": l.objects().map(|o| o.ost).collect::<Vec<_>>()})
    });
    let path = c.path.to_string_lossy();
    json!({"path": path, "fid": c.listed.fid.to_string(), "type": mode::letter(c.kind()).to_string(),
        "size": c.size(), "blocks": c.blocks(), "mode": attr.mode & 0o7777, "nlink": attr.nlink,
        "uid": attr.uid, "gid": attr.gid, "projid": attr.projid, "atime": c.time(Time::Access).0,
        "mtime": c.time(Time::Modify).0, "ctime": c.time(Time::Change).0, "btime": c.time(Time::Birth).0,
        "layout": layout})
}

/// Files of some OSTs below `root`, from the index of the metadata servers, for a query that wants to know no
/// more than names: the tree is not walked, and no OST is asked. Not in the order of a walk.
fn look_up(f: &Finder<'_>, osts: &[u16], mount: &Path, root: &Path, run: &Run<'_>) -> Result<(), Failure> {
    let real =
        files::canonical(root).map_err(|e| Failure::io("cannot find", &root.display().to_string(), e))?;
    // As a walk from `root` would name it.
    let shown = |name: &[u8]| {
        let path = mount.join(OsStr::from_bytes(name));
        let below = path.strip_prefix(&real).ok()?;
        Some(if below.as_os_str().is_empty() { root.to_path_buf() } else { root.join(below) })
    };
    let mut seen = std::collections::BTreeSet::new();
    for &ost in osts {
        let mut after = None;
        loop {
            if run.interrupt.stopped() {
                return Ok(());
            }
            let (found, next) = match local::ask(mount, &Request::OstFiles { ost, after })? {
                Reply::OstFiles { files, next } => (files, next),
                other => return Err(local::strange(mount, &other)),
            };
            for (fid, names) in found {
                // A file on two of the OSTs, or with objects on one that lie apart in the index.
                if osts.len() > 1 && !seen.insert(fid) {
                    continue;
                }
                for path in names.iter().filter_map(|n| shown(&n.0)) {
                    show_indexed(f, root, &path);
                }
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(())
}

fn show_indexed(f: &Finder<'_>, root: &Path, path: &Path) {
    let depth = (path.components().count() - root.components().count()) as u32;
    if (f.q.min_depth..=f.q.max_depth).contains(&depth) && f.q.fits_indexed(path) {
        output::path(path, f.q.output == Output::Zeros);
    }
}

/// The mount that a start path lies on; a symbolic link is not followed.
fn mount_of(root: &Path) -> Result<PathBuf, Failure> {
    let shown = || root.display().to_string();
    let stat = files::stat(root, false).map_err(|e| Failure::io("cannot find", &shown(), e))?;
    if stat.is_dir() || stat.is_file() {
        local::mount_point(root)
    } else {
        local::mount_point(&local::split(root).0)
    }
}

fn find_below(f: &Finder<'_>, root: &Path, run: &Run<'_>) -> Result<(), Failure> {
    let mount = mount_of(root)?;
    // Others than root see what they could list.
    let is_plain = f.q.index.is_none() && f.q.needs_no_look() && world::sys::euid() == 0;
    if let Some(osts) = f.q.osts().filter(|_| is_plain) {
        return look_up(f, osts, &mount, root, run);
    }
    let threads = f.q.threads.unwrap_or_else(walk::default_threads);
    let (tree, tests) = (Mounted::new(root)?, f.q.tests());
    if walk::is_to_scan(&tree, root, f.q.index, f.q.excludes_inodes(), run)? {
        let scanning = ScanPlan {
            root,
            tests: &tests,
            objects: f.q.wanted_of_objects(),
            threads,
            is_forced: f.q.index.is_some(),
        };
        index::scan(&tree, &MountedIndex::new(root), &scanning, f, run);
    } else {
        walk::walk(&tree, root, threads, f, run);
    }
    Ok(())
}

fn find(q: &Query, roots: &[PathBuf], interrupt: &Interrupt) -> FirstError {
    let seen = AtomicU64::new(0);
    let run = Run::new("lfs find", interrupt, &seen);
    for root in roots {
        if interrupt.stopped() {
            break;
        }
        if let Err(f) = find_below(&Finder { q }, root, &run) {
            run.report(&f);
        }
    }
    run.finish()
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let (roots, q) = Query::parse(args)?;
    if roots.is_empty() {
        return Err(Failure::usage("no path given"));
    }
    let (mut errors, signalled) = interrupt::guarded(|| {}, |i| find(&q, &roots, i));
    if let Some(code) = signalled {
        errors.interrupted("lfs find", code);
    }
    Ok(errors)
}
