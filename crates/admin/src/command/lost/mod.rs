//! `nacre lost`: which files had something on an OST that is gone for good, and what becomes of them.
//!
//! The metadata servers' reverse index names them, page by page; no object server is asked.

mod fate;
mod row;

use super::with_page;
use crate::command::drain::ost::{Ost, operands};
use crate::command::osts::targets;
use crate::failure::Failure;
use crate::getopt::{self, Opt, flag};
use crate::interrupt::{self, Interrupt};
use crate::live::ProgressLine;
use crate::local::{ask_about, strange};
use crate::output;
use client::control::{HeldFile, HeldPart, Reply, Request};
use fate::Fate;
use model::{Errno, Fid, ObjectId, TargetId};
use std::ffi::OsString;

/// Exit status: something is lost, or could not be removed or made anew.
const EXIT_LOST: i32 = 1;
/// Exit status: wrong usage, or it could not be found out.
const EXIT_TROUBLE: i32 = 2;
/// Files that are removed or made anew at a time.
const AT_ONCE: usize = 8;
/// Names of one file that are told at a time: it may have more.
const NAMES_TOLD: usize = 16;

const USAGE: &str = "\
usage: nacre lost [--remove | --recreate] [--json] [-q] OST [MOUNT]

Lists the files that have something on an OST (demo-OST0003, OST0003 or 3, of
the file system that is mounted here, or on MOUNT) that is gone for good: FID,
owner, when it was made and last changed, what of it is lost, and its names.
Of an OST that was replaced by another: what lay on the former one.

  --remove     removes the files, with all their names
  --recreate   what is lost becomes a hole in the file, that can be read and
               written, on other OSTs; without this it is an I/O error
  --json       one JSON document; -q: no live progress

exit status: 0 nothing is lost (any more), 1 something is, 2 wrong usage or not found out, 130 interrupted
";

const OPTS: &[Opt] = &[flag('\0', "remove"), flag('\0', "recreate"), flag('\0', "json"), flag('q', "quiet")];

struct Options {
    ost: OsString,
    mount: Option<OsString>,
    fate: Fate,
    json: bool,
    quiet: bool,
}

fn parse(args: &[OsString]) -> Result<Options, Failure> {
    let p = getopt::parse(args, OPTS)?;
    let (ost, mount) = operands(&p)?;
    let fate = match (p.has("remove"), p.has("recreate")) {
        (true, true) => return Err(Failure::usage("--remove and --recreate exclude each other")),
        (true, false) => Fate::Remove,
        (false, true) => Fate::Recreate,
        (false, false) => Fate::Keep,
    };
    Ok(Options { ost, mount, fate, json: p.has("json"), quiet: p.has("quiet") })
}

/// What is known of an OST, which decides what on it counts as lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// Not used any more: all of it.
    Gone,
    /// It does not answer: all of it, if it never does.
    Silent,
    /// It answers: what lay on another one that had its index before.
    Answers,
}

impl Standing {
    fn of(ost: &Ost) -> Result<Standing, Failure> {
        let all = targets(&ost.mount.dir)?;
        Ok(match all.iter().find(|t| t.target == TargetId::ost(ost.index)) {
            Some(t) if t.active && t.state == "FULL" => Standing::Answers,
            Some(t) if t.active => Standing::Silent,
            _ => Standing::Gone,
        })
    }

    fn is_lost(self, p: &HeldPart) -> bool {
        p.of_another || self != Standing::Answers
    }
}

/// What was found and done.
#[derive(Default)]
struct Tally {
    files: u64,
    removed: u64,
    recreated: u64,
    failed: u64,
    complete: bool,
}

type Page = (Vec<HeldFile>, Option<ObjectId>);

fn page(ost: &Ost, after: Option<ObjectId>) -> Result<Page, Failure> {
    let dir = &ost.mount.dir;
    match ask_about(dir, "cannot find files below", |_| Request::HeldFiles { ost: ost.index, after })? {
        Reply::HeldFiles { files, next } => Ok((files, next)),
        other => Err(strange(dir, &other)),
    }
}

/// All files of which something is lost, a page at a time, once each; ends early if `each` says so.
fn walk(
    ost: &Ost,
    standing: Standing,
    mut each: impl FnMut(Vec<HeldFile>) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let (mut after, mut last): (_, Option<Fid>) = (None, None);
    loop {
        let (mut files, next) = page(ost, after)?;
        // Objects of one file lie beside each other, perhaps on two pages.
        files.retain(|f| Some(f.fid) != last);
        last = files.last().map(|f| f.fid).or(last);
        for f in &mut files {
            f.parts.retain(|p| standing.is_lost(p));
        }
        files.retain(|f| !f.parts.is_empty());
        if !each(files)? {
            return Ok(false);
        }
        match next {
            Some(_) => after = next,
            None => return Ok(true),
        }
    }
}

/// How many files have something on an OST that does not answer, or had it on a former one.
pub(super) fn count(ost: &Ost, interrupt: &Interrupt) -> Result<u64, Failure> {
    let mut n = 0;
    walk(ost, Standing::of(ost)?, |files| {
        n += files.len() as u64;
        Ok(!interrupt.stopped())
    })?;
    Ok(n)
}

/// One pass: lists, and does what is to be done. Whether another one is to follow.
fn pass(
    ost: &Ost,
    o: &Options,
    standing: Standing,
    t: &mut Tally,
    (line, interrupt): (&ProgressLine, &Interrupt),
) -> Result<bool, Failure> {
    let mut again = false;
    t.complete = walk(ost, standing, |files| {
        for some in files.chunks(AT_ONCE) {
            if interrupt.stopped() {
                return Ok(false);
            }
            let done = world::sys::at_once(some, |f| o.fate.of(ost, f));
            for (f, r) in some.iter().zip(done) {
                again |= o.fate == Fate::Remove && r.is_ok() && f.paths.len() >= NAMES_TOLD;
                row::print(ost, f, o.fate, r.as_ref().err(), (o.json, t.files == 0));
                t.files += 1;
                match (o.fate, r) {
                    (_, Err(_)) => t.failed += 1,
                    (Fate::Remove, Ok(())) => t.removed += 1,
                    (Fate::Recreate, Ok(())) => t.recreated += 1,
                    (Fate::Keep, Ok(())) => {}
                }
            }
        }
        line.show(|| format!("{}: {} files", ost.label, t.files));
        Ok(true)
    })?;
    Ok(again && t.complete)
}

fn list(ost: &Ost, o: &Options, standing: Standing, interrupt: &Interrupt) -> Result<Tally, Failure> {
    let line = ProgressLine::for_terminal(o.quiet || row::is_seen());
    let mut t = Tally::default();
    row::begin(ost, standing, o.json);
    let r = (|| {
        while pass(ost, o, standing, &mut t, (&line, interrupt))? {}
        Ok(())
    })();
    line.clear();
    row::end(ost, &t, o.fate, o.json);
    r.map(|()| t)
}

fn run(o: &Options) -> Result<i32, Failure> {
    let ost = Ost::find_or_gone(&o.ost, o.mount.as_deref())?;
    let standing = Standing::of(&ost)?;
    if standing == Standing::Silent && o.fate != Fate::Keep {
        let why = format!("deactivate it first: lctl set_param -P osc.{}*.active=0", ost.label);
        return Err(Failure::explained("cannot give up what lies on", &ost.label, Errno::EBUSY, &why));
    }
    let (t, signalled) = interrupt::guarded(|| {}, |i| list(&ost, o, standing, i));
    let t = t?;
    if standing == Standing::Silent && !o.json {
        output::flush();
        eprintln!(
            "nacre lost: {0} is not deactivated: whoever needs it waits; lctl set_param -P osc.{0}*.active=0",
            ost.label
        );
    }
    let left = if o.fate == Fate::Keep { t.files } else { t.failed };
    Ok(match signalled {
        Some(code) => code,
        None if left > 0 => EXIT_LOST,
        None => 0,
    })
}

/// The command: arguments behind `lost`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre lost", USAGE), args, |_| EXIT_TROUBLE, |args| run(&parse(args)?))
}
