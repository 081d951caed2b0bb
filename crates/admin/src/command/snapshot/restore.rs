//! `nacre snapshot restore`: a file, or a tree, comes back from a snapshot.

use super::checked;
use super::record::{self, Here};
use super::within::{Served, Within, on_this_host};
use crate::command::copy::report::Report;
use crate::command::copy::{self, Restore};
use crate::failure::{Failure, FirstError};
use crate::getopt::Parsed;
use crate::live::ProgressLine;
use crate::local::{self, LocalMount};
use crate::output;
use crate::pool::{EXIT_INTERRUPTED, Stop, THREADS_MAX};
use client::Source;
use model::Errno;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use world::sys::{files, mounts, process};

const NAME: &str = "nacre snapshot restore";
const WHAT: &str = "cannot restore";
/// Something did not come back, or is there and is otherwise.
const EXIT_DIFFERENT: i32 = 1;

/// A path of the file system as it is now.
struct Lost {
    /// Without symbolic links, but for what it is itself.
    path: PathBuf,
    fsname: String,
    /// Below the root of the file system.
    below: PathBuf,
}

/// The directory that holds it, without symbolic links, and its name there.
fn settled(path: &Path, shown: &str) -> Result<PathBuf, Failure> {
    let absolute = files::absolute(path).map_err(|e| Failure::io("cannot look at", shown, e))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return files::canonical(&absolute).map_err(|e| Failure::io("cannot look at", shown, e));
    };
    match files::canonical(parent) {
        Ok(p) => Ok(p.join(name)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let why = "the directory that held it is gone as well: restore that, make it, or say another place with --to";
            Err(Failure::explained(WHAT, shown, Errno::ENOENT, why))
        }
        Err(e) => Err(Failure::io("cannot find the directory of", shown, e)),
    }
}

/// The nearest directory above a path that is there.
fn there_of(path: &Path) -> &Path {
    let is_there = |p: &&Path| files::stat(p, false).is_ok();
    path.ancestors().find(is_there).unwrap_or(Path::new("/"))
}

/// The Nacre mount that a path is in, whose file may be gone.
fn mount_of(path: &Path) -> Result<Option<LocalMount>, Failure> {
    let at = mounts::containing(path).map_err(|e| Failure::io("cannot read", "/proc/mounts", e))?;
    let Some(m) = at.filter(|m| m.fstype == local::FSTYPE) else { return Ok(None) };
    let name = local::mount_name(&m.dir)?;
    Ok(Some(LocalMount { dir: m.dir, source: m.source, name }))
}

impl Lost {
    /// `in_place`: it is to come back where it was, so that its directory has to be there.
    fn of(path: &Path, in_place: bool) -> Result<Lost, Failure> {
        let shown = path.display().to_string();
        let path = match settled(path, &shown) {
            Ok(p) => p,
            Err(e) if in_place => return Err(e),
            Err(_) => {
                // What is gone from above the path has no symbolic links to resolve any more.
                let absolute = files::absolute(path).map_err(|e| Failure::io("cannot look at", &shown, e))?;
                let there = there_of(&absolute).to_path_buf();
                let rest = absolute.strip_prefix(&there).unwrap_or(Path::new("")).to_path_buf();
                files::canonical(&there).map_err(|e| Failure::io("cannot look at", &shown, e))?.join(rest)
            }
        };
        let Some(m) = mount_of(&path)? else {
            let why = "it is on no Nacre file system that is mounted here: name the path as it was, below the mount";
            return Err(Failure::explained(WHAT, &shown, Errno::ENOTTY, why));
        };
        let source = Source::parse(&m.source)
            .map_err(|why| Failure::explained("cannot read the source of", &shown, Errno::EINVAL, &why))?;
        let root = source.subdir.trim_matches('/').to_string();
        let below = path.strip_prefix(&m.dir).unwrap_or(Path::new(""));
        Ok(Lost { below: Path::new(&root).join(below), fsname: m.name.fsname, path })
    }
}

/// What the command was told.
struct Wanted {
    name: String,
    lost: Lost,
    to: PathBuf,
    threads: Option<usize>,
    overwrite: bool,
}

fn wanted(p: &Parsed) -> Result<Wanted, Failure> {
    let [name, path] = p.operands.as_slice() else {
        return Err(Failure::usage("name a snapshot, and the path that is to come back from it"));
    };
    let name = checked(local::show(name))?;
    let lost = Lost::of(Path::new(path), p.value("to").is_none())?;
    if let Some(f) = p.value("fsname").filter(|f| *f != lost.fsname) {
        let why = format!("it is of file system {}, not of {f}", lost.fsname);
        return Err(Failure::explained(WHAT, &lost.path.display().to_string(), Errno::EXDEV, &why));
    }
    let to = p.value("to").map_or(Ok(lost.path.clone()), |t| settled(Path::new(t), t))?;
    let threads = p.number("threads", THREADS_MAX as u64)?;
    if threads == Some(0) {
        return Err(Failure::usage(format!("--threads: 1 to {THREADS_MAX}")));
    }
    Ok(Wanted { name, lost, to, threads: threads.map(|n| n as usize), overwrite: p.has("overwrite") })
}

/// Where the snapshot can be read: where it was said, where it is mounted on this host, or, for root on the
/// host of the MGS, mounted for this.
fn reach(p: &Parsed, w: &Wanted, stop: &Stop) -> Result<Within, Failure> {
    if let Some(dir) = p.value("from") {
        return Within::said(dir, &w.name, &w.lost.fsname);
    }
    if let Some(found) = on_this_host(&w.name, &w.lost.fsname) {
        return Ok(found);
    }
    let here: Result<Here, Failure> = record::here(WHAT, Some(&w.lost.fsname));
    match here {
        Ok(here) => Served::of(&here, &w.name, stop).and_then(Served::mounted),
        Err(f) => Err(elsewhere(f, w)),
    }
}

/// Only root on the host of the MGS can have it served: what everybody else can do.
fn elsewhere(f: Failure, w: &Wanted) -> Failure {
    let Failure::Op { errno, .. } = f else { return f };
    let why = format!(
        "snapshot {} is mounted nowhere on this host. Root on the host of the MGS needs nothing for it; elsewhere, \
         and for ordinary users, root has to serve it ('nacre snapshot mount {}' on the host of the MGS) and to \
         mount it here by the command that this prints; then this command finds it",
        w.name, w.name
    );
    Failure::explained(WHAT, &w.lost.path.display().to_string(), errno, &why)
}

/// The path in the snapshot, through no symbolic link that leads out of it.
fn source(within: &Within, w: &Wanted) -> Result<PathBuf, Failure> {
    let src = within.root(&w.lost.below)?;
    let shown = w.lost.below.display().to_string();
    if src == within.dir {
        return Ok(src);
    }
    let gone = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => {
            let why = format!("snapshot {} has nothing of this name", w.name);
            Failure::explained(WHAT, &shown, Errno::ENOENT, &why)
        }
        _ => Failure::io("cannot look in the snapshot at", &shown, e),
    };
    let parent = files::canonical(src.parent().unwrap_or(&within.dir)).map_err(gone)?;
    if !parent.starts_with(&within.dir) {
        let why =
            "a part of its path was a symbolic link to somewhere else then: name the path that this led to";
        return Err(Failure::explained(WHAT, &shown, Errno::EXDEV, why));
    }
    let src = parent.join(src.file_name().unwrap_or_default());
    files::stat(&src, false).map_err(gone)?;
    Ok(src)
}

fn show(p: &Parsed, w: &Wanted, (src, report): (&Path, &Report), stop: &Stop) {
    if p.has("json") {
        let mut doc = json!({
            "fsname": w.lost.fsname,
            "snapshot": w.name,
            "path": local::show(w.lost.below.as_os_str()),
            "src": local::show(src.as_os_str()),
            "dst": local::show(w.to.as_os_str()),
            "interrupted": stop.wanted(),
        });
        if let (Value::Object(all), Value::Object(more)) = (&mut doc, report.json()) {
            all.extend(more);
        }
        output::json(&doc);
    } else {
        crate::put!("{}", report.text());
        if stop.wanted() {
            crate::say!("interrupted: the same command goes on from here");
        }
    }
    output::flush();
}

/// Brings it back. What is there and is otherwise, and what could not be made, is printed.
fn bring(p: &Parsed, w: &Wanted, within: &Within, stop: &Stop) -> Result<FirstError, Failure> {
    let src = source(within, w)?;
    let layouts = mount_of(&w.to)?.is_some();
    let restore = Restore { mark: within.fsname.clone(), overwrite: w.overwrite, layouts };
    let report = Report::new(NAME, ProgressLine::for_terminal(p.has("quiet")));
    if !layouts {
        report.note("the destination is on no Nacre file system: layouts and projects stay behind");
    }
    let done = copy::bring_back((&src, &w.to), restore, w.threads, &report, stop);
    report.clear();
    let mut errors = FirstError::default();
    if let Err(f) = &done {
        errors.report(NAME, f);
    }
    show(p, w, (&src, &report), stop);
    if stop.wanted() {
        errors = FirstError::default();
        errors.ended(EXIT_INTERRUPTED);
    } else if !report.is_same() {
        errors.ended(EXIT_DIFFERENT);
    }
    Ok(errors)
}

/// `nacre snapshot restore NAME PATH`.
pub(super) fn run(p: &Parsed) -> Result<FirstError, Failure> {
    let w = wanted(p)?;
    let stop = Stop::default();
    stop.handle_signals(NAME).map_err(|e| Failure::io("cannot watch for", "signals", e))?;
    process::raise_open_files();
    let within = reach(p, &w, &stop)?;
    let done = match stop.wanted() {
        true => Err(Failure::op(WHAT, &w.lost.path.display().to_string(), Errno::EINTR)),
        false => bring(p, &w, &within, &stop),
    };
    let left = within.leave();
    let mut errors = done?;
    if let Err(f) = left {
        errors.report(NAME, &f);
    }
    Ok(errors)
}
