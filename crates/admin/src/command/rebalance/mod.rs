//! `nacre rebalance`: files go from the fullest OSTs to the emptiest ones, until all are about as full.
//!
//! Nothing is kept between two runs: how full the OSTs are says what is left to do.

mod background;
mod work;

use super::with_page;
use crate::command::osts::{chosen_file_systems, removals_pending};
use crate::failure::Failure;
use crate::getopt::{self, Opt, flag, value};
use crate::interrupt::{self, Interrupt};
use crate::live::ProgressLine;
use crate::local::{self, LocalMount, strange};
use crate::size::human;
use crate::{output, say};
use client::control::{Reply, Request, TargetSpace};
use model::TargetKind;
use model::rebalance::{OstSpace, Place, Plan};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::time::Duration;
use work::{Mover, Step, Tally};
use world::sys::{self, Deadline};

/// Exit status: they are not as even as asked for.
const EXIT_UNEVEN: i32 = 1;
/// Exit status: wrong usage, or it could not be done.
const EXIT_TROUBLE: i32 = 2;
/// Percent.
const THRESHOLD_DEFAULT: u64 = 5;
/// Passes over the OSTs: each looks anew at how full they are.
const PASSES_MAX: usize = 20;
/// How long OSTs may take to remove what was moved away from them.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(60);
/// Until an OST that removed something says so.
const STATFS_PAUSE: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Bits of [`TargetSpace::flags`] with which an OST takes no new objects.
const TAKES_NOTHING: u32 = 2 | 4 | 8 | 16;

const USAGE: &str = "\
usage: nacre rebalance [--threshold POINTS] [--bandwidth MIB] [--dry-run] [--json] [-q] [MOUNT]
       nacre rebalance --background POINTS | --stop | --status [--json] [MOUNT]

Moves files of the file system that is mounted here (or on MOUNT) from the
fullest OSTs to the emptiest ones, while they are in use, until the fullest is
not more than POINTS percent fuller than the emptiest. Files keep the shape of
their layouts, and stay in their pools; those for which somebody, or their
directory, named OSTs, and those that grow by steps (lfs setstripe -z) or have
marked components, stay where they are, and nothing moves between OSTs on one
disk. Interrupt it at any time; run again it goes on.

  --threshold POINTS  1 to 99 (5)
  --bandwidth MIB     each of eight files at a time copies so many MiB a second, at most
  --dry-run           says which files would be moved; moves none
  --json              one JSON document; -q: no live progress
  --background POINTS the metadata server does it by itself, beside all else, whenever
                      the fullest is more than POINTS percent fuller than the emptiest,
                      until they differ by half of that: from now on, for good
  --stop              it does that no more, and leaves what it has begun
  --status            what it does at the moment, and has done

exit status: 0 they are even, 1 they are not, 2 wrong usage or not done, 130 interrupted
";

const OPTS: &[Opt] = &[
    value('\0', "threshold"),
    value('\0', "bandwidth"),
    value('\0', "background"),
    flag('\0', "stop"),
    flag('\0', "status"),
    flag('n', "dry-run"),
    flag('\0', "json"),
    flag('q', "quiet"),
];

/// What the metadata servers do by themselves.
enum Background {
    Status,
    /// Percent; 0: nothing.
    Set(u64),
}

struct Options {
    mount: Option<OsString>,
    background: Option<Background>,
    /// Hundredths of a percent.
    enough: u64,
    bandwidth_bytes: u64,
    dry_run: bool,
    json: bool,
    quiet: bool,
}

fn parse(args: &[OsString]) -> Result<Options, Failure> {
    let p = getopt::parse(args, OPTS)?;
    if p.operands.len() > 1 {
        return Err(Failure::usage("name one mount"));
    }
    let background = match (p.number("background", 99)?, p.has("stop"), p.has("status")) {
        (None, false, false) => None,
        (Some(0), ..) => return Err(Failure::usage("--background takes 1 to 99; --stop ends it")),
        (Some(n), false, false) => Some(Background::Set(n)),
        (None, true, false) => Some(Background::Set(0)),
        (None, false, true) => Some(Background::Status),
        _ => return Err(Failure::usage("--background, --stop and --status go without each other")),
    };
    let other = ["threshold", "bandwidth", "dry-run"].into_iter().find(|o| p.has(o));
    if let (Some(_), Some(other)) = (&background, other) {
        return Err(Failure::usage(format!("--{other} is of what this command moves itself")));
    }
    Ok(Options {
        mount: p.operands.first().cloned(),
        background,
        enough: p.number("threshold", 99)?.unwrap_or(THRESHOLD_DEFAULT) * 100,
        bandwidth_bytes: p.number("bandwidth", 1 << 20)?.unwrap_or(0) << 20,
        dry_run: p.has("dry-run"),
        json: p.has("json"),
        quiet: p.has("quiet"),
    })
}

/// The one file system that is meant.
fn mount(o: &Options) -> Result<LocalMount, Failure> {
    let operands: Vec<OsString> = o.mount.iter().cloned().collect();
    let mut all = chosen_file_systems(&operands)?;
    match (all.pop(), all.is_empty()) {
        (Some(m), true) => Ok(m),
        _ => Err(Failure::usage("several file systems are mounted here: name a mount")),
    }
}

/// Of an OST that answers and is not deactivated.
fn space(s: &TargetSpace) -> Option<OstSpace> {
    let target = &s.target;
    let counts = target.target.kind == TargetKind::Ost && s.errno.is_none() && target.active && s.total > 0;
    counts.then_some(OstSpace {
        index: target.target.index,
        disk: s.disk,
        used: s.total.saturating_sub(s.free),
        available: s.available,
        takes: s.flags & TAKES_NOTHING == 0,
    })
}

fn look(m: &LocalMount) -> Result<Plan, Failure> {
    match local::ask(&m.dir, &Request::Df)? {
        Reply::Space(all) => Ok(Plan::of(all.iter().filter_map(space))),
        other => Err(strange(&m.dir, &other)),
    }
}

fn percent(points: u64) -> String {
    format!("{}.{:02}%", points / 100, points % 100)
}

/// Until what was moved is removed where it was, and the OSTs say so.
fn settle(m: &LocalMount, interrupt: &Interrupt) -> Result<(), Failure> {
    let end = Deadline::after(REMOVAL_PATIENCE);
    while removals_pending(&m.dir, "osp.*.destroys_pending")? && !interrupt.stopped() && !end.passed() {
        sys::sleep(LOOK_AGAIN);
    }
    interrupt.pause(STATFS_PAUSE);
    Ok(())
}

/// What the display says, and how long it will take.
fn progress(begun: i64, first: u64, enough: u64, plan: &Plan, t: &Tally) -> String {
    let seconds = sys::wall_seconds().saturating_sub(begun).max(1) as u64;
    let (now, rate) = (plan.spread(), t.bytes / seconds);
    let (done, left) = (first.saturating_sub(now), now.saturating_sub(enough));
    let eta = (left * seconds).checked_div(done).map_or_else(String::new, |s| format!(", about {s}s left"));
    format!(
        "{} files, {} moved, {}/s; the fullest is {} above the emptiest{eta}",
        t.moved,
        human(t.bytes, 1024),
        human(rate, 1024),
        percent(now)
    )
}

/// How full they were and are, and what was done.
struct Outcome {
    before: Plan,
    after: Plan,
    tally: Tally,
    planned: Vec<Value>,
}

fn rebalance(
    m: &LocalMount,
    o: &Options,
    line: &ProgressLine,
    interrupt: &Interrupt,
) -> Result<Outcome, Failure> {
    let before = look(m)?;
    let mut out = Outcome { after: before.clone(), before, tally: Tally::default(), planned: Vec::new() };
    let (begun, first) = (sys::wall_seconds(), out.before.spread());
    let mover = Mover {
        mount: m,
        bandwidth_bytes: o.bandwidth_bytes,
        dry_run: o.dry_run,
        enough: o.enough,
        interrupt,
    };
    for _ in 0..PASSES_MAX {
        let mut plan = out.after.clone();
        let mut moved = 0;
        // Where nothing may leave the fullest, the next one is as good.
        for place in plan.fullest() {
            if plan.spread() <= o.enough || interrupt.stopped() || moved > 0 {
                break;
            }
            let planned = &mut out.planned;
            moved += mover.empty_some(&place.osts, &mut plan, &mut out.tally, |plan, t, steps| {
                line.show(|| progress(begun, first, o.enough, plan, t));
                if o.dry_run {
                    steps.iter().for_each(|s| would(s, o.json, planned));
                }
            })?;
        }
        if o.dry_run {
            out.after = plan;
            break;
        }
        if moved == 0 || interrupt.stopped() {
            break;
        }
        line.show(|| "waiting until what was moved is removed where it was".to_string());
        settle(m, interrupt)?;
        out.after = look(m)?;
    }
    Ok(out)
}

/// One that a dry run names.
fn would(step: &Step, json: bool, planned: &mut Vec<Value>) {
    for s in &step.pieces {
        let path = step.path.to_string_lossy();
        if json {
            planned.push(json!({"path": path, "from": s.from, "to": s.to, "bytes": s.bytes}));
        } else {
            say!("{path}: OST {} to {}, {}", s.from, s.to, human(s.bytes, 1024));
        }
    }
}

fn places(p: &Plan) -> Vec<Value> {
    let one = |p: &Place| {
        json!({"osts": p.osts, "used_bytes": p.used, "all_bytes": p.all,
                                 "used_percent": p.points() as f64 / 100.0})
    };
    p.places.iter().map(one).collect()
}

fn report(m: &LocalMount, o: &Options, out: &Outcome, even: bool) {
    let t = &out.tally;
    if o.json {
        let failed: Vec<Value> =
            t.failed.iter().map(|(p, why)| json!({"path": p.to_string_lossy(), "what": why})).collect();
        output::json(&json!({"fsname": m.name.fsname, "dry_run": o.dry_run, "even": even,
            "spread_before": out.before.spread() as f64 / 100.0,
            "spread_after": out.after.spread() as f64 / 100.0, "files_moved": t.moved,
            "bytes_moved": t.bytes, "skipped": t.skipped, "failed": failed, "planned": out.planned,
            "before": places(&out.before), "after": places(&out.after)}));
        return;
    }
    t.failed.iter().for_each(|(p, why)| say!("{}: {why}", p.display()));
    let word = if o.dry_run { "would be moved" } else { "moved" };
    say!(
        "{}: {} files, {} {word}, {} could not be, {} stay where they are bound to; the fullest was {} above the emptiest, and {} {}",
        m.name.fsname,
        t.moved,
        human(t.bytes, 1024),
        t.failed.len(),
        t.skipped,
        percent(out.before.spread()),
        if o.dry_run { "would be" } else { "is" },
        percent(out.after.spread())
    );
    if out.before.places.len() < 2 {
        say!("all OSTs that answer lie on one disk: there is nothing to gain");
    }
}

fn run(o: &Options) -> Result<i32, Failure> {
    let m = mount(o)?;
    match o.background {
        Some(Background::Status) => return background::status(&m, o.json).map(|()| 0),
        Some(Background::Set(percent)) => return Ok(background::set(&m, percent)?.unwrap_or(0)),
        None => {}
    }
    let line = ProgressLine::for_terminal(o.quiet || o.json || o.dry_run);
    let (out, signalled) = interrupt::guarded(|| {}, |i| rebalance(&m, o, &line, i));
    line.clear();
    let out = out?;
    let even = out.after.spread() <= o.enough;
    report(&m, o, &out, even);
    Ok(match signalled {
        Some(code) => code,
        None if even => 0,
        None => EXIT_UNEVEN,
    })
}

/// The command: arguments behind `rebalance`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre rebalance", USAGE), args, |_| EXIT_TROUBLE, |args| run(&parse(args)?))
}
