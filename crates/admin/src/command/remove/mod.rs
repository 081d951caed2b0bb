//! `nacre remove`: an OST leaves the file system for good: it is drained, deactivated, and taken out of the
//! configuration, its index with it.
//!
//! Nothing is kept between two runs: where one was ended, the next one sees from the OST's standing.

use super::with_page;
use crate::command::drain::ost::{Ost, operands};
use crate::command::drain::work::Settings;
use crate::command::drain::{self, Outcome};
use crate::command::lost;
use crate::command::osts::targets;
use crate::command::registration::order_mgs;
use crate::command::set_param::set_permanent;
use crate::failure::Failure;
use crate::getopt::{self, Opt, flag, value};
use crate::interrupt::{self, Interrupt};
use crate::live::ProgressLine;
use crate::local;
use crate::{output, say};
use mgs::registration::Order;
use model::{Errno, TargetId, TargetKind};
use serde_json::json;
use std::ffi::OsString;
use std::time::Duration;
use world::sys::{self, Deadline};

/// Exit status: it is still part of the file system, because something is left there.
const EXIT_LEFT: i32 = 1;
/// Exit status: wrong usage, or it could not be taken out.
const EXIT_TROUBLE: i32 = 2;
/// How long mounts and metadata servers may take to hear that it is gone.
const CONFIG_PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

const USAGE: &str = "\
usage: nacre remove [--threads N] [--bandwidth MIB] [--json] [-q] OST [MOUNT]
       nacre remove --force [--json] OST [MOUNT]

Takes an OST (demo-OST0003, OST0003 or 3, of the file system that is mounted
here, or on MOUNT) out of the file system for good, on the node of the MGS:
moves what lies there to other OSTs (nacre drain) and, when nothing is left,
out of the configuration. Its index is not used again, but by a target made with
mkfs.nacre --replace. Run again it goes on where it was.

  --force          nothing is moved: the OST is dead, and deactivated; what lies
                   there is lost (nacre lost OST lists it, before and afterwards)
  --threads N      so many files at a time (8)
  --bandwidth MIB  each copies so many MiB a second, at most
  --json           one JSON document; -q: no live progress

exit status: 0 it is removed, 1 something is left there, 2 wrong usage or not done, 130 interrupted
";

const OPTS: &[Opt] = &[
    flag('\0', "force"),
    flag('\0', "json"),
    flag('q', "quiet"),
    value('\0', "threads"),
    value('\0', "bandwidth"),
];

struct Options {
    ost: OsString,
    mount: Option<OsString>,
    force: bool,
    json: bool,
    quiet: bool,
    settings: Settings,
}

fn parse(args: &[OsString]) -> Result<Options, Failure> {
    let p = getopt::parse(args, OPTS)?;
    let (ost, mount) = operands(&p)?;
    let settings = drain::settings(&p)?;
    Ok(Options { ost, mount, force: p.has("force"), json: p.has("json"), quiet: p.has("quiet"), settings })
}

/// What came of it.
#[derive(Default)]
struct Report {
    drained: Option<Outcome>,
    /// Files of which something is given up.
    lost: u64,
    removed: bool,
}

/// Whether the mount uses it; `None`: it does not know it any more.
fn is_active(ost: &Ost) -> Result<Option<bool>, Failure> {
    let all = targets(&ost.mount.dir)?;
    Ok(all.iter().find(|t| t.target == TargetId::ost(ost.index)).map(|t| t.active))
}

fn active_parameter(ost: &Ost) -> String {
    format!("osc.{}*.active", ost.label)
}

/// Whether nothing is left that keeps it. `EBUSY` if that is the operator's to decide.
fn give_up(
    ost: &Ost,
    o: &Options,
    r: &mut Report,
    (line, interrupt): (&ProgressLine, &Interrupt),
) -> Result<bool, Failure> {
    let refuse = |why: &str| Err(Failure::explained("cannot remove", &ost.label, Errno::EBUSY, why));
    match (is_active(ost)?, o.force) {
        // It was taken out before.
        (None, _) => Ok(true),
        (Some(true), true) => refuse(&format!(
            "it is in use: --force is for one that is dead; deactivate it first: lctl set_param -P {}=0",
            active_parameter(ost)
        )),
        (Some(true), false) => {
            let out = drain::drain(ost, o.settings, line, interrupt)?;
            let empty = out.is_empty() && out.tally.failed.is_empty();
            r.drained = Some(out);
            Ok(empty && !interrupt.stopped())
        }
        (Some(false), force) => {
            r.lost = lost::count(ost, interrupt)?;
            if r.lost > 0 && !force {
                return refuse(&format!(
                    "it is deactivated, and {} files have something there (nacre lost {}): activate it, or give them up with --force",
                    r.lost, ost.label
                ));
            }
            Ok(!interrupt.stopped())
        }
    }
}

/// Out of the configuration, for good.
fn take_out(ost: &Ost) -> Result<(), Failure> {
    if is_active(ost)?.is_some() {
        match set_permanent(&active_parameter(ost), "0", false) {
            // It was taken out a moment ago.
            Err(Failure::Op { errno: Errno::ENOENT, .. }) | Ok(()) => {}
            Err(f) => return Err(f),
        }
    }
    order_mgs(&ost.label, &Order::Retire).map(drop)
}

/// Until this mount and the metadata servers have forgotten it. False: not within a minute, or not waited
/// for.
fn forgotten(ost: &Ost, interrupt: &Interrupt) -> Result<bool, Failure> {
    let end = Deadline::after(CONFIG_PATIENCE);
    let pattern = format!("osp.{}-osc-*.active", ost.label);
    loop {
        let all = targets(&ost.mount.dir)?;
        let mut known = all.iter().any(|t| t.target == TargetId::ost(ost.index));
        for t in all.iter().filter(|t| t.target.kind == TargetKind::Mdt && t.active) {
            known |= !local::target_params(&ost.mount.dir, t.target, &pattern)?.is_empty();
        }
        if !known || interrupt.stopped() || end.passed() {
            return Ok(!known);
        }
        sys::sleep(LOOK_AGAIN);
    }
}

fn remove(ost: &Ost, o: &Options, line: &ProgressLine, interrupt: &Interrupt) -> Result<Report, Failure> {
    let mut r = Report::default();
    if give_up(ost, o, &mut r, (line, interrupt))? {
        line.show(|| format!("{}: waiting until it is forgotten everywhere", ost.label));
        take_out(ost)?;
        r.removed = true;
        if !forgotten(ost, interrupt)? && !interrupt.stopped() {
            line.print(&format!("nacre remove: a server does not know yet that {} is gone", ost.label));
        }
    }
    Ok(r)
}

fn print(ost: &Ost, o: &Options, r: &Report) {
    let moved = r.drained.as_ref().map_or(0, |d| d.tally.moved);
    let failed = r.drained.as_ref().map_or(0, |d| d.tally.failed.len());
    if o.json {
        let left = r.drained.as_ref().and_then(|d| d.left.as_deref()?.parse::<u64>().ok());
        output::json(&json!({"ost": ost.label, "removed": r.removed, "files_moved": moved,
            "failed_count": failed, "objects_left": left, "files_lost": r.lost}));
        return;
    }
    if let Some(d) = &r.drained {
        d.tally.failed.values().for_each(|f| say!("{}: {}", f.path.display(), f.what));
        let left = d.left.as_deref().unwrap_or("an unknown number of");
        say!("{}: {moved} files moved, {failed} could not be, {left} objects left", ost.label);
    }
    if r.lost > 0 {
        say!("{}: {} files lose something: nacre lost {} lists them", ost.label, r.lost, ost.label);
    }
    if r.removed {
        say!(
            "{}: removed from the file system; its server ends if it has no other target, and its folder can go",
            ost.label
        );
    } else {
        say!("{}: not removed: it goes on with what is left when it is run again", ost.label);
    }
}

fn run(o: &Options) -> Result<i32, Failure> {
    let ost = Ost::find_or_gone(&o.ost, o.mount.as_deref())?;
    let line = ProgressLine::for_terminal(o.quiet || o.json);
    let (r, signalled) = interrupt::guarded(|| {}, |i| remove(&ost, o, &line, i));
    line.clear();
    let r = r?;
    print(&ost, o, &r);
    Ok(match (r.removed, signalled) {
        (true, _) => 0,
        (false, Some(code)) => code,
        (false, None) => EXIT_LEFT,
    })
}

/// The command: arguments behind `remove`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre remove", USAGE), args, |_| EXIT_TROUBLE, |args| run(&parse(args)?))
}
