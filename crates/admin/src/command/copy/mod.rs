//! `nacre copy`: makes a directory, or a file, the copy of another, by many hands.
//!
//! `copier` walks SRC and makes what is missing (`file` the contents, `links` hard links, `attributes` the
//! rest), `delete` removes what is gone, `verify` reads both back; `report` has what came of it. `restore`
//! has what files keep beside that when they come back from a snapshot.

mod attributes;
pub(super) mod copier;
pub(super) mod delete;
mod file;
mod links;
pub(super) mod report;
mod restore;
mod rules;
#[cfg(test)]
mod tests;
mod verify;

pub(super) use restore::Restore;

use crate::failure::Failure;
use crate::live::ProgressLine;
use crate::output;
use crate::pool::{self, EXIT_INTERRUPTED, EXIT_USAGE, Stop, THREADS_MAX, default_threads};
use clap::Parser;
use client::control::{self, Request};
use copier::{CopyRun, Options};
use model::Errno;
use report::Report;
use rules::LayoutRule;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use verify::Share;
use world::sys::files;
use world::sys::tree::Folder;

const NAME: &str = "nacre copy";
/// Something is not the same.
const EXIT_DIFFERENT: i32 = 1;
/// Files above it are copied by pieces.
const LARGE_BYTES: u64 = 64 << 20;

/// Makes DST the copy of SRC, as 'cp -aT SRC DST' does, by many threads; a second run does what is missing
///
/// Trailing slashes mean nothing, symbolic links that SRC or DST are themselves are followed, those below are
/// copied. Exit status: 0 everything is the same, 1 something is not, 2 wrong usage, 130 interrupted.
#[derive(Parser, Clone, Debug)]
#[command(name = NAME, bin_name = NAME, disable_version_flag = true)]
struct Args {
    /// A directory or file of any file system
    src: PathBuf,
    /// What becomes its copy; the directory that holds it must be there
    dst: PathBuf,
    /// Workers (default: twice as many as processors)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX as u64))]
    threads: Option<u64>,
    /// Layout of new files: CONDITIONS:OPTIONS of lfs setstripe, as in 'size>=1G:-c 4 -S 16M'; the first that
    /// fits counts
    #[arg(long, value_name = "RULE")]
    layout: Vec<String>,
    /// Remove below DST what SRC does not have
    #[arg(long)]
    delete: bool,
    /// With --delete: also if SRC is empty, or could not be read in part
    #[arg(long, requires = "delete")]
    force: bool,
    /// Afterwards read both sides and compare: all files, or N% of them
    #[arg(long, value_name = "all|N%", value_parser = Share::parse)]
    verify: Option<Share>,
    /// Change nothing; count what would be done
    #[arg(long)]
    dry_run: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
    /// No live progress
    #[arg(short, long)]
    quiet: bool,
}

/// The command: arguments behind `copy`, exit status.
pub fn main(args: &[OsString]) -> i32 {
    let (args, stop) = match pool::begin::<Args>(NAME, args) {
        Ok(begun) => begun,
        Err(status) => return status,
    };
    let options = match options(&args) {
        Ok(o) => o,
        Err(f) => {
            eprintln!("{NAME}: {f}");
            return EXIT_USAGE;
        }
    };
    let report = Report::new(NAME, ProgressLine::for_terminal(args.quiet));
    let done = run(&args, &options, &report, &stop);
    report.clear();
    if let Err(f) = &done {
        eprintln!("{NAME}: {f}");
    }
    show(&args, &options, &report, &stop);
    match done {
        _ if stop.wanted() => EXIT_INTERRUPTED,
        Err(_) => EXIT_USAGE,
        Ok(()) if report.is_same() => 0,
        Ok(()) => EXIT_DIFFERENT,
    }
}

fn show(args: &Args, options: &Options, report: &Report, stop: &Stop) {
    if args.json {
        let mut doc = json!({
            "src": options.src,
            "dst": options.dst,
            "threads": options.threads,
            "dry_run": options.dry_run,
            "interrupted": stop.wanted(),
        });
        if let (Value::Object(all), Value::Object(more)) = (&mut doc, report.json()) {
            all.extend(more);
        }
        output::json(&doc);
    } else {
        let prefix = if options.dry_run { "would be done: " } else { "" };
        crate::put!("{prefix}{}", report.text());
        if stop.wanted() {
            crate::say!("interrupted: the same command goes on from here");
        }
    }
    output::flush();
}

/// `path` without symbolic links, if it is there; otherwise its name below the directory that must be.
fn resolved(path: &Path) -> Result<PathBuf, Failure> {
    let shown = path.display().to_string();
    let missing = match files::canonical(path) {
        Ok(p) => return Ok(p),
        Err(e) => e,
    };
    if missing.kind() != io::ErrorKind::NotFound || files::stat(path, false).is_ok() {
        return Err(Failure::io("cannot look at", &shown, missing));
    }
    let absolute = files::absolute(path).map_err(|e| Failure::io("cannot look at", &shown, e))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(Failure::io("cannot look at", &shown, missing));
    };
    let parent = files::canonical(parent);
    Ok(parent.map_err(|e| Failure::io("cannot find the directory that is to hold", &shown, e))?.join(name))
}

fn options(args: &Args) -> Result<Options, Failure> {
    let shown = args.src.display().to_string();
    let src = files::canonical(&args.src).map_err(|e| Failure::io("cannot look at", &shown, e))?;
    let dst = resolved(&args.dst)?;
    if src.starts_with(&dst) || dst.starts_with(&src) {
        let why = "one of the two lies in the other";
        return Err(Failure::explained("cannot copy to", &dst.display().to_string(), Errno::EINVAL, why));
    }
    let layouts = args.layout.iter().map(|r| LayoutRule::parse(r)).collect::<Result<Vec<_>, _>>()?;
    let options = Options {
        src,
        dst,
        threads: args.threads.map_or_else(default_threads, |n| n as usize),
        layouts,
        delete: args.delete,
        dry_run: args.dry_run,
        root: world::sys::euid() == 0,
        large_bytes: LARGE_BYTES,
        restore: None,
    };
    if !options.layouts.is_empty() {
        must_have_layouts(&options.dst)?;
    }
    if args.delete && !args.force {
        let empty = delete::is_empty(&options).map_err(|e| Failure::io("cannot look at", &shown, e))?;
        if empty {
            let why = "it is empty: --delete would remove all of the copy; --force does it";
            return Err(Failure::explained("cannot copy", &shown, Errno::ENODATA, why));
        }
    }
    Ok(options)
}

/// What `nacre snapshot restore` does: `src` becomes `dst` as far as `restore` lets it. `src` has no symbolic
/// links in it. Errors on single files are in the report.
pub(super) fn bring_back(
    (src, dst): (&Path, &Path),
    restore: Restore,
    threads: Option<usize>,
    report: &Report,
    stop: &Stop,
) -> Result<(), Failure> {
    let o = Options {
        src: src.to_path_buf(),
        dst: dst.to_path_buf(),
        threads: threads.unwrap_or_else(default_threads),
        layouts: Vec::new(),
        delete: false,
        dry_run: false,
        root: world::sys::euid() == 0,
        large_bytes: LARGE_BYTES,
        restore: Some(restore),
    };
    all_passes(&o, (false, None), report, stop)
}

/// `--layout` means something on a Nacre file system only.
fn must_have_layouts(dst: &Path) -> Result<(), Failure> {
    let shown = dst.display().to_string();
    let held = match Folder::open(dst) {
        Ok(f) => Ok(f),
        Err(_) => copier::holder(dst).map(|(f, _)| f),
    };
    let held = held.map_err(|e| Failure::io("cannot look at", &shown, e))?;
    let asked = control::call(&held, &Request::Getname);
    asked.map(drop).map_err(|e| Failure::control("cannot use --layout for", &shown, &e))
}

/// All passes.
fn run(args: &Args, o: &Options, report: &Report, stop: &Stop) -> Result<(), Failure> {
    all_passes(o, (args.force, args.verify), report, stop)
}

fn all_passes(
    o: &Options,
    (force, verify): (bool, Option<Share>),
    report: &Report,
    stop: &Stop,
) -> Result<(), Failure> {
    let failed = |what: &'static str| move |e| Failure::io(what, &o.src.display().to_string(), e);
    let copier = CopyRun::new(o, report, stop).map_err(failed("cannot begin to copy"))?;
    if report.shows_progress() {
        report.count_in_background(&o.src, stop);
    }
    copier.run().map_err(failed("cannot begin to copy"))?;
    drop(copier);
    if o.delete && !stop.wanted() {
        if report.is_same() || force {
            delete::run(o, report, stop).map_err(failed("cannot remove what is gone from"))?;
        } else {
            let why = "nothing was deleted because of the errors above (--force does it all the same)";
            report.difference(&o.dst, why);
        }
    }
    if !o.dry_run && !stop.wanted() {
        let held = copier::holder(&o.dst).and_then(|(f, name)| f.folder(&name).or(Ok(f)));
        let synced = held.and_then(|f| f.sync_filesystem());
        synced.map_err(|e| Failure::io("cannot flush", &o.dst.display().to_string(), e))?;
    }
    if let Some(share) = verify.filter(|_| !o.dry_run && !stop.wanted()) {
        verify::run(o, report, stop, share).map_err(failed("cannot verify the copy of"))?;
    }
    Ok(())
}
