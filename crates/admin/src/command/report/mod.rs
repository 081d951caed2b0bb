//! `nacre report`: what layouts, owners, sizes and ages the files below some directories have, by one scan or
//! walk.

pub mod dirs;
mod tables;
mod tally;
#[cfg(test)]
mod tests;

use super::with_page;
use crate::command::find::candidate::Candidate;
use crate::command::getstripe::effective;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Opt, flag, value};
use crate::interrupt::{self, Interrupt};
use crate::walk::index::ScanPlan;
use crate::walk::{self, Directory, Mounted, MountedIndex, Place, Run, THREADS_MAX, Visitor};
use crate::{local, output, say};
use client::control::{Listed, OfObjects};
use indicatif::ProgressBar;
use model::LayoutSpec;
use model::mutex::Mutex;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tally::{Subject, Tally};

const USAGE: &str = "\
usage: nacre report striping|owners|sizes|ages DIR... [--threads N] [--index|--no-index] [--json]

Looks through all that lies below DIR and says what is there:
  striping   layouts: files, bytes, and who chose them by hand
  owners     users and groups: files, bytes, space
  sizes      how many files are how large
  ages       how long ago files were read and written

  --threads N   so many threads (default: as many as processors, at most 4)
  --index       asks the metadata server for its inodes; done without this too
                where that is less to do
  --no-index    reads every directory
  --json        one JSON document

exit status: 0, or the errno of the first failure (the rest is counted all the same), 4 wrong usage
";

const OPTS: &[Opt] =
    &[value('\0', "threads"), flag('\0', "index"), flag('\0', "no-index"), flag('\0', "json")];

/// What is asked for.
#[derive(Debug)]
struct Options {
    subject: Subject,
    roots: Vec<PathBuf>,
    threads: usize,
    /// Scan or walk; `None`: what is less to do.
    index: Option<bool>,
    json: bool,
}

fn parse(args: &[OsString]) -> Result<Options, Failure> {
    let p = getopt::parse(args, OPTS)?;
    let [subject, roots @ ..] = p.operands.as_slice() else {
        return Err(Failure::usage("a report of what? striping, owners, sizes or ages"));
    };
    let subject = Subject::parse(&subject.to_string_lossy())?;
    if roots.is_empty() {
        return Err(Failure::usage("no directory given"));
    }
    let threads = match p.value("threads") {
        None => walk::default_threads(),
        Some(n) => {
            let bad = || Failure::usage(format!("bad number of threads '{n}': 1 to {THREADS_MAX}"));
            n.parse().ok().filter(|n| (1..=THREADS_MAX).contains(n)).ok_or_else(bad)?
        }
    };
    let index = match (p.has("index"), p.has("no-index")) {
        (true, true) => return Err(Failure::usage("'--index' and '--no-index' exclude each other")),
        (false, false) => None,
        (yes, _) => Some(yes),
    };
    let roots = roots.iter().map(PathBuf::from).collect();
    Ok(Options { subject, roots, threads, index, json: p.has("json") })
}

/// Counts what a walk meets.
struct Counter {
    subject: Subject,
    tally: Mutex<Tally>,
}

impl Visitor for Counter {
    fn wants_inodes(&self) -> bool {
        true
    }

    fn max_depth(&self) -> u32 {
        u32::MAX
    }

    fn visit(&self, at: &Place<'_>, entries: Vec<Listed>, run: &Run<'_>) {
        let mut files = Vec::with_capacity(entries.len());
        each_file(at, entries, run, |c| files.push(c));
        let striped = self.subject == Subject::Striping && files.iter().any(Candidate::has_objects);
        let default = if striped { default_of(at, run) } else { None };
        let mut tally = self.tally.lock();
        for c in &files {
            tally.add(c, default.as_ref());
        }
    }
}

/// Everything that is known of each of these entries that is there still.
pub(super) fn each_file(
    at: &Place<'_>,
    entries: impl IntoIterator<Item = Listed>,
    run: &Run<'_>,
    mut f: impl FnMut(Candidate),
) {
    for l in entries {
        if run.interrupt.stopped() {
            break;
        }
        let mut c = Candidate::new(at.of(&l.name), at.depth, l);
        match look(&mut c, at.dir) {
            Ok(true) => f(c),
            Ok(false) => {}
            Err(e) => run.report(&e),
        }
    }
}

/// Learns what is to be counted; false if the file has gone.
pub(super) fn look(c: &mut Candidate, dir: &dyn Directory) -> Result<bool, Failure> {
    if c.listed.inode.is_none() {
        match dir.inode(c.name())? {
            Some(l) => c.listed.inode = l.inode,
            None => return Ok(false),
        }
    }
    if c.listed.inode.is_none() {
        return Ok(false);
    }
    if c.has_objects() && !c.inode().is_complete {
        c.stat = dir.stat(c.name(), false)?;
        return Ok(c.stat.is_some());
    }
    Ok(true)
}

/// What the directory gives new files; `None` if nobody can say.
fn default_of(at: &Place<'_>, run: &Run<'_>) -> Option<LayoutSpec> {
    match at.dir.own_defaults() {
        Ok(s) => s.map(|s| effective(&s).0),
        Err(f) => {
            run.report(&f);
            None
        }
    }
}

/// Shows a visitor all that lies below a directory, with the space of objects, by a scan or a walk. `index`:
/// which of them; `None`: what is less to do.
pub(super) fn below(
    root: &Path,
    (index, threads): (Option<bool>, usize),
    visitor: &dyn Visitor,
    run: &Run<'_>,
) -> Result<(), Failure> {
    local::mount_point(root)?;
    let tree = Mounted::new(root)?;
    if walk::is_to_scan(&tree, root, index, true, run)? {
        let scanning = ScanPlan {
            root,
            tests: &[],
            objects: Some(OfObjects::Space),
            threads,
            is_forced: index.is_some(),
        };
        walk::index::scan(&tree, &MountedIndex::new(root), &scanning, visitor, run);
    } else {
        walk::walk(&tree, root, threads, visitor, run);
    }
    Ok(())
}

fn count(o: &Options, seen: &AtomicU64, interrupt: &Interrupt) -> (Tally, FirstError) {
    let run = Run::new("nacre report", interrupt, seen);
    let counter = Counter { subject: o.subject, tally: Mutex::new(Tally::new(o.subject)) };
    for root in &o.roots {
        if interrupt.stopped() {
            break;
        }
        if let Err(f) = below(root, (o.index, o.threads), &counter, &run) {
            run.report(&f);
        }
    }
    (counter.tally.into_inner(), run.finish())
}

fn report(o: &Options) -> FirstError {
    let seen = Arc::new(AtomicU64::new(0));
    // Shown on a terminal only.
    let bar = ProgressBar::new_spinner();
    let (ticking, counted) = (bar.clone(), seen.clone());
    let tick = move || {
        ticking.set_message(format!("{} files looked at", counted.load(Ordering::Relaxed)));
        ticking.tick();
    };
    let ((tally, mut errors), signalled) = interrupt::guarded(tick, |i| count(o, &seen, i));
    bar.finish_and_clear();
    if o.json {
        let complete = signalled.is_none() && errors.exit_code() == 0;
        let rows = tally.rows(world::sys::wall_seconds());
        output::json(&json!({"subject": o.subject.name(), "complete": complete, "rows": rows,
            "total": tally.total_row()}));
    } else {
        for line in tally.lines() {
            say!("{line}");
        }
    }
    if let Some(code) = signalled {
        errors.interrupted("nacre report", code);
    }
    errors
}

/// The command: arguments behind `report`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    let run = |args: &[OsString]| parse(args).map(|o| report(&o).exit_code());
    with_page(("nacre report", USAGE), args, Failure::exit_code, run)
}
