//! `nacre fsck`: looks at the folders of stopped targets and says what is wrong with them.
//!
//! By default nothing is changed: targets are opened as their servers would open them, journal replay
//! included, but on a disk that keeps all changes in memory (`overlay`). `names` checks a metadata target,
//! `objects` an object target by itself, `cross` the one against the other; `report` prints.

mod across;
pub(crate) mod cross;
pub(crate) mod names;
pub(crate) mod objects;
mod online;
mod options;
mod overlay;
mod report;
pub mod targets;

pub use options::FsckOptions;
pub use report::{EXIT_CLEAN, EXIT_CORRECTED, EXIT_ERRORS_LEFT, EXIT_OPERATIONAL, EXIT_USAGE};

use report::{Problem, Report};
use std::ffi::OsString;
use std::io::Write;
use targets::Role;
use world::World;
use world::sys::files;

const USAGE: &str = "\
usage: nacre fsck [--repair [--cut-journal] | -p] [--read-data] [--json] [--quiet] DIR...
       nacre fsck --online [--across | --repair] [--stop] [--json] [--quiet] [TARGET...]

Checks the targets in DIR (the folder of nacre up, or folders of targets). They must be stopped.
Nothing is changed without --repair.

With --online the servers of this host check their targets (all, or those given by label or folder) as they are at one
moment, and go on serving: names, links, attributes, layouts, records of objects. Interrupted, it goes on in the server;
asked again, it shows how that stands. With --across each metadata target here checks its whole file system, one target
against the other, as lctl lfsck_start does; with --repair it mends that, and puts what has no place any more into
.lustre/lost+found.

  --repair      remove leaked objects and data of no file, mend the reverse index, counts and back-pointers
  -p, -a        as --repair (what fsck(8) asks for at boot); never --cut-journal
  --cut-journal a target whose journal is damaged does not start: says what is lost if the journal ends at the damage;
                with --repair it does then. Nothing that was before is lost
  --read-data   read every byte of every object as well
  --json        one JSON document instead of lines
  --quiet       problems and the summary only
  --across      with --online: objects against layouts as well; nothing is changed
  --stop        with --online: stop what is under way

exit status: 0 clean, 1 errors corrected, 4 errors left, 8 could not check, 16 wrong usage
";

/// The command: arguments behind `fsck`, exit status of fsck(8).
pub fn main(args: &[OsString]) -> i32 {
    if args.iter().any(|a| a == "--help" || a == "-h") {
        print!("{USAGE}");
        return EXIT_CLEAN;
    }
    match FsckOptions::parse(args) {
        Ok(o) if o.online => online::run(&o, &mut std::io::stdout()),
        Ok(o) => {
            // The table's engine panics over pages that make no sense; the store turns that into an error, so
            // one line says enough.
            std::panic::set_hook(Box::new(|p| eprintln!("nacre fsck: {p}")));
            run(o, &mut std::io::stdout())
        }
        Err(e) => {
            eprintln!("nacre fsck: {e}\n\n{USAGE}");
            EXIT_USAGE
        }
    }
}

/// Checks on the host's disk; prints to `out` (what prevents the check, too). Returns the exit status.
pub fn run(mut opts: FsckOptions, out: &mut (dyn Write + Send)) -> i32 {
    for p in &mut opts.paths {
        match files::canonical(&*p) {
            Ok(c) => *p = c.to_string_lossy().into_owned(),
            Err(e) => {
                let _ = writeln!(out, "nacre fsck: '{p}': {e}");
                return EXIT_OPERATIONAL;
            }
        }
    }
    let (world, runtime) = match world::real::start(2) {
        Ok(w) => w,
        Err(e) => {
            let _ = writeln!(out, "nacre fsck: cannot start: {e}");
            return EXIT_OPERATIONAL;
        }
    };
    let status = runtime.block_on(check(&world, &opts, out));
    runtime.shutdown();
    status
}

/// The same on any world.
pub async fn check(world: &World, opts: &FsckOptions, out: &mut (dyn Write + Send)) -> i32 {
    let mut report = Report::new(out, opts);
    match check_targets(world, opts, &mut report).await {
        Ok(()) => report.finish(),
        Err(e) => {
            report.failed(&e);
            EXIT_OPERATIONAL
        }
    }
}

/// The error is a sentence for the user: what could not be checked, and what to do.
async fn check_targets(world: &World, opts: &FsckOptions, report: &mut Report<'_>) -> Result<(), String> {
    let folders = targets::discover(world, &opts.paths)?;
    let mut open = Vec::new();
    let mut result = Ok(());
    for dir in folders {
        match targets::open(world, &dir, opts.repair, opts.cut_journal) {
            Ok(t) => open.push(t),
            Err(e) => {
                result = Err(e);
                break;
            }
        }
    }
    if result.is_ok() {
        result = check_same(&open, opts, report).await;
    }
    // Also those that were opened before another one could not be.
    for t in open {
        let label = t.label.clone();
        let closed = t.close().await;
        result = result.and(closed.map_err(|e| format!("{label}: {e}")));
    }
    result
}

async fn check_same(
    open: &[targets::Target],
    opts: &FsckOptions,
    report: &mut Report<'_>,
) -> Result<(), String> {
    targets::same_file_system(open)?;
    report.targets = open.iter().map(|t| t.label.clone()).collect();
    check_open(open, opts, report).await
}

async fn check_open(
    open: &[targets::Target],
    opts: &FsckOptions,
    report: &mut Report<'_>,
) -> Result<(), String> {
    for t in open {
        assert!(t.cut.is_empty() || opts.cut_journal, "a journal is cut if an administrator says so");
        for d in &t.cut {
            let mut p = Problem::new(&t.label, "cut-journal", targets::cut_words(d));
            p.repaired = opts.repair;
            report.problem(p);
        }
        if !t.cut.is_empty() && t.role == Role::Mdt {
            names::pass_over_lost_sequences(t).await?;
        }
        let damaged = t.mgt.as_ref().and_then(|db| mgs::read_configuration(&**db).err());
        if let Some(e) = damaged {
            report.problem(Problem::new("MGS", "bad-configuration", format!("{e}, in '{}'", t.dir)));
        }
    }
    let mdt = open.iter().find(|t| t.role == Role::Mdt);
    let names = match mdt {
        Some(t) => {
            report.say(&format!("{}: names, links, attributes, layouts", t.label));
            names::check(t, opts.repair, report).await?;
            Some(cross::Names::load(t)?)
        }
        None => {
            report.note("no metadata target among the folders: objects are not compared with layouts");
            None
        }
    };
    for t in open.iter().filter(|t| t.role == Role::Ost) {
        report.say(&format!("{}: objects", t.label));
        objects::check(t, names.as_ref(), opts, report).await?;
        if let Some(n) = &names {
            cross::check(t, n, opts.repair, report).await?;
        }
    }
    if let Some(n) = &names {
        let given = open.iter().filter_map(|t| t.ost_index()).collect();
        n.note_missing_osts(&given, report)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
