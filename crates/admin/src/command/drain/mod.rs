//! `nacre drain`: an OST gets no new objects, and the files that have some there are moved to others, until
//! it is empty.
//!
//! Where its files are the reverse index of the metadata servers says: the files are looked up there again
//! and again until it names none that was not tried. Nothing is kept between two runs: a drain that was ended
//! goes on with the files that are still there.

pub(super) mod ost;
pub(super) mod work;

use super::with_page;
use crate::failure::Failure;
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::interrupt::{self, Interrupt};
use crate::live::ProgressLine;
use crate::{output, say};
use ost::Ost;
use serde_json::json;
use std::ffi::OsString;
use work::{Settings, Tally};

/// Exit status: something is left on the OST.
const EXIT_LEFT: i32 = 1;
/// Exit status: wrong usage, or nothing was begun.
const EXIT_TROUBLE: i32 = 2;
/// Files that are moved at a time.
const THREADS_DEFAULT: usize = 8;
const THREADS_MAX: usize = 64;

const USAGE: &str = "\
usage: nacre drain [--threads N] [--bandwidth MIB] [--json] [-q] OST [MOUNT]
       nacre drain --stop OST [MOUNT]

Sets an OST (demo-OST0003, OST0003 or 3, of the file system that is mounted
here, or on MOUNT) to take no new objects, for good, and moves the files that
have objects there to other OSTs of the same pool while they are in use.
Run again it goes on with what is still there.

  --stop            the OST takes new objects again; what was moved stays where it is
  --threads N       so many files at a time (8)
  --bandwidth MIB   each copies so many MiB a second, at most
  --json            one JSON document; -q: no live progress

exit status: 0 nothing is left there, 1 something is, 2 wrong usage or not begun, 130 interrupted
";

const OPTS: &[Opt] = &[
    flag('\0', "stop"),
    flag('\0', "json"),
    flag('q', "quiet"),
    value('\0', "threads"),
    value('\0', "bandwidth"),
];

struct Options {
    ost: OsString,
    mount: Option<OsString>,
    stop: bool,
    json: bool,
    quiet: bool,
    settings: Settings,
}

/// What `--threads` and `--bandwidth` say.
pub(super) fn settings(p: &Parsed) -> Result<Settings, Failure> {
    let threads = p.number("threads", THREADS_MAX as u64)?.map_or(THREADS_DEFAULT, |n| n as usize);
    let bandwidth_bytes = p.number("bandwidth", 1 << 20)?.unwrap_or(0) << 20;
    Ok(Settings { threads, bandwidth_bytes })
}

fn parse(args: &[OsString]) -> Result<Options, Failure> {
    let p = getopt::parse(args, OPTS)?;
    let (ost, mount) = ost::operands(&p)?;
    let settings = settings(&p)?;
    Ok(Options { ost, mount, stop: p.has("stop"), json: p.has("json"), quiet: p.has("quiet"), settings })
}

/// What came of it, and how many objects the OST says it has; `None` if it does not say.
pub(super) struct Outcome {
    pub tally: Tally,
    pub left: Option<String>,
    /// It came to its end.
    pub complete: bool,
}

impl Outcome {
    /// Nothing is left on it.
    pub(super) fn is_empty(&self) -> bool {
        self.complete && self.left.as_deref() == Some("0")
    }
}

/// An OST gets no new objects, and what is there goes to others, as far as it can.
pub(super) fn drain(
    ost: &Ost,
    settings: Settings,
    line: &ProgressLine,
    interrupt: &Interrupt,
) -> Result<Outcome, Failure> {
    ost.take_no_objects(interrupt)?;
    let tally = work::run(ost, settings, line, interrupt)?;
    let complete = !interrupt.stopped();
    line.show(|| format!("{}: waiting until what was moved is removed there", ost.label));
    let left = if complete { ost.objects_left(interrupt) } else { ost.objects() };
    Ok(Outcome { tally, left: left.map_err(|f| line.print(&format!("nacre drain: {f}"))).ok(), complete })
}

fn report(ost: &Ost, o: &Options, out: &Outcome, code: i32) {
    let t = &out.tally;
    if o.json {
        let failed: Vec<_> = t
            .failed
            .values()
            .map(|f| json!({"path": f.path, "fid": f.fid.to_string(), "errno": f.errno.0, "what": f.what}))
            .collect();
        let left = out.left.as_deref().map(|l| l.parse::<u64>().map_or_else(|_| json!(l), |n| json!(n)));
        output::json(&json!({"ost": ost.label, "files_moved": t.moved, "failed": failed,
            "failed_count": t.failed.len(), "objects_left": left, "complete": out.complete,
            "drained": code == 0}));
        return;
    }
    for f in t.failed.values() {
        say!("{}: {}", f.path.display(), f.what);
    }
    let left = out.left.as_deref().unwrap_or("an unknown number of");
    say!("{}: {} files moved, {} could not be, {left} objects left", ost.label, t.moved, t.failed.len());
    if out.complete && t.failed.is_empty() && out.left.as_deref() != Some("0") {
        say!(
            "what is left is of files that are open without a name, that lie in the trash (nacre trash empty), or \
             of none: nacre fsck finds the latter"
        );
    }
}

fn run(o: &Options) -> Result<i32, Failure> {
    let ost = Ost::find(&o.ost, o.mount.as_deref())?;
    if o.stop {
        ost.take_objects()?;
        if o.json {
            output::json(&json!({"ost": ost.label, "takes_objects": true}));
        } else {
            say!("{}: takes new objects again", ost.label);
        }
        return Ok(0);
    }
    let line = ProgressLine::for_terminal(o.quiet || o.json);
    let (out, signalled) = interrupt::guarded(|| {}, |i| drain(&ost, o.settings, &line, i));
    line.clear();
    let out = out?;
    let code = match (signalled, out.left.as_deref()) {
        (Some(code), _) => code,
        (None, Some("0")) => 0,
        (None, _) => EXIT_LEFT,
    };
    report(&ost, o, &out, code);
    Ok(code)
}

/// The command: arguments behind `drain`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre drain", USAGE), args, |_| EXIT_TROUBLE, |args| run(&parse(args)?))
}
