//! The second pass: removes below DST what is gone from SRC.

use super::copier::{Options, holder};
use super::report::{Report, add};
use crate::pool::{Pool, Stop};
use model::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use world::sys::tree::{Folder, Kind, Listing, Node, Stat};

/// Names that are looked at before some of them are removed.
const LISTED_AT_ONCE: usize = 1024;

/// A directory that is in both trees.
struct Pair {
    from: Folder,
    to: Folder,
    /// Below both.
    path: PathBuf,
}

/// Removes a name and, if it is a directory, all below it that lies on the same file system. Returns how many
/// names that were. `go_on` is asked after each of them (`ECANCELED`).
pub fn remove(dir: &Folder, name: &OsStr, there: &Stat, go_on: &mut dyn FnMut() -> bool) -> io::Result<u64> {
    if there.kind() != Kind::Folder {
        return dir.unlink(name).map(|()| 1);
    }
    let mut removed = 0;
    // Directories that are being emptied, the deepest last.
    let mut open: Vec<(Folder, Listing, OsString)> = vec![enter(dir, name, there)?];
    while let Some((folder, listing, _)) = open.last_mut() {
        let Some(next) = listing.next() else {
            let (_, _, name) = open.pop().expect("it is the last one");
            let above = open.last().map_or(dir, |(f, _, _)| f);
            above.remove_folder(&name)?;
            removed += 1;
            if !open.is_empty() && !go_on() {
                return Err(Errno::ECANCELED.into());
            }
            continue;
        };
        let name = next?;
        let s = folder.stat_at(&name)?;
        if s.dev != there.dev {
            return Err(Errno::EXDEV.into());
        }
        if s.kind() == Kind::Folder {
            let deeper = enter(folder, &name, &s)?;
            open.push(deeper);
        } else {
            folder.unlink(&name)?;
            removed += 1;
            if !go_on() {
                return Err(Errno::ECANCELED.into());
            }
        }
    }
    Ok(removed)
}

/// Opens a directory that is to be emptied, also one that its owner must not change.
fn enter(dir: &Folder, name: &OsStr, there: &Stat) -> io::Result<(Folder, Listing, OsString)> {
    if there.mode & 0o700 != 0o700 && world::sys::euid() == there.uid && there.uid != 0 {
        Node::Named(dir, name).set_permissions(there.permissions() | 0o700)?;
    }
    let folder = dir.folder(name)?;
    let listing = folder.list()?;
    Ok((folder, listing, name.to_os_string()))
}

/// Whether SRC has nothing in it.
pub fn is_empty(options: &Options) -> io::Result<bool> {
    let (from, name) = holder(&options.src)?;
    if from.stat_at(&name)?.kind() != Kind::Folder {
        return Ok(false);
    }
    Ok(from.folder(&name)?.list()?.next().is_none())
}

/// Removes all that SRC does not have. Errors are in the report.
pub fn run(options: &Options, report: &Report, stop: &Stop) -> io::Result<()> {
    let ((from, name), (to, new)) = (holder(&options.src)?, holder(&options.dst)?);
    let is_folder = |s: Option<Stat>| s.is_some_and(|s| s.kind() == Kind::Folder);
    if !is_folder(from.find(&name)?) || !is_folder(to.find(&new)?) {
        return Ok(());
    }
    let pool = Pool::new(stop);
    pool.push(Pair { from: from.folder(&name)?, to: to.folder(&new)?, path: PathBuf::new() });
    pool.run(options.threads, |pair, _| {
        if let Err(e) = one(&pool, options, report, stop, &pair) {
            let canceled = e.raw_os_error() == Some(Errno::ECANCELED.0);
            if !(canceled && stop.wanted()) {
                report.error(&options.dst.join(&pair.path), "remove what is gone below", e);
            }
        }
        report.show("delete");
    });
    Ok(())
}

fn one(pool: &Pool<Pair>, o: &Options, report: &Report, stop: &Stop, pair: &Pair) -> io::Result<()> {
    let stat = pair.to.stat()?;
    let locked = !o.root && stat.mode & 0o200 == 0;
    let mut changed = false;
    let mut listing = pair.to.list()?;
    loop {
        let names: Vec<OsString> = listing.by_ref().take(LISTED_AT_ONCE).collect::<io::Result<_>>()?;
        for name in &names {
            if stop.wanted() {
                break;
            }
            let there = pair.to.find(name)?;
            // Only what is known to be gone is removed: an error tells of nothing.
            match (pair.from.find(name), there) {
                (Ok(None), Some(there)) if there.dev != stat.dev => {
                    let e = Errno::EXDEV.into();
                    report.error(&o.dst.join(&pair.path).join(name), "remove what is mounted at", e);
                }
                (Ok(None), Some(_)) if o.dry_run => add(&report.counts.deleted, 1),
                (Ok(None), Some(there)) => {
                    if locked && !changed {
                        Node::Open(pair.to.as_fd()).set_permissions(stat.permissions() | 0o200)?;
                    }
                    changed = true;
                    match remove(&pair.to, name, &there, &mut || !stop.wanted()) {
                        Ok(n) => add(&report.counts.deleted, n),
                        Err(e) => report.error(&o.dst.join(&pair.path).join(name), "remove", e),
                    }
                }
                (Ok(Some(s)), Some(t)) if s.kind() == Kind::Folder && t.kind() == Kind::Folder => {
                    let (from, to) = (pair.from.folder(name)?, pair.to.folder(name)?);
                    pool.push(Pair { from, to, path: pair.path.join(name) });
                }
                (Ok(_), _) => {}
                (Err(e), _) => report.error(&o.src.join(&pair.path).join(name), "look at", e),
            }
        }
        if names.len() < LISTED_AT_ONCE || stop.wanted() {
            break;
        }
    }
    if changed {
        let to = Node::Open(pair.to.as_fd());
        if locked {
            to.set_permissions(stat.permissions())?;
        }
        to.set_times(stat.atime, stat.mtime)?;
    }
    Ok(())
}
