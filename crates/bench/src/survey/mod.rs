//! `nacre survey`: what a site measures before it lets users in, bottom up, with the variables and lines of
//! the classical scripts.
//!
//! `knobs` reads variables; a file for each survey plans, has the crew of `nacre bench` do the work, and says
//! what was found; `grid` has lines, document and picture of those that vary groups and threads.

mod all;
pub mod grid;
mod knobs;
mod mds;
mod obdfilter;
mod ost;
mod sgpdd;

use crate::args::Common;
use crate::crew::Stop;
use crate::link::Order;
use crate::run::{Phase, Row, Run};
use anyhow::{Context, Result};
use clap::Parser;
use grid::Measured;
pub use knobs::{Flags, Knobs};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;

const HELP: &str = "\
Measures a new installation, bottom up.

usage: nacre survey SURVEY [VARIABLE=VALUE...] [--json] [--plot FILE] [-q]

  all [MOUNT]   those below one behind the other: what each layer can, and which one holds the others up
  sgpdd         raw storage: regions and threads, on devices or files
  obdfilter     the object path of OSTs: objects and threads, on the server or through a mount
  ost [MOUNT]   every OST written and read alone, outliers marked
  mds [MOUNT]   names made, looked up and removed by more and more threads

Each but all is also a program: sgpdd-survey, obdfilter-survey, ost-survey, mds-survey.

Variables are those of the classical scripts, from the environment or as operands; nacre-survey(1) has them.
";

/// What the user asked for.
pub struct Asked {
    pub flags: Flags,
    pub knobs: Knobs,
    pub network: Network,
}

/// Requests of the transport alone, between this host and nodes that run `lst serve`.
#[derive(Clone, Debug)]
pub struct NetworkLoad {
    pub hosts: Vec<String>,
    pub write: bool,
    /// Of each host.
    pub threads: u32,
    pub bytes: u64,
    pub request: u32,
}

/// What was moved to or from one host, and how long that took.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    pub bytes: u64,
    pub nanos: u64,
}

/// Does a load, for this crate knows no transport; asks again and again, with the bytes so far, whether to go
/// on.
pub type Network = fn(&NetworkLoad, &(dyn Fn(u64) -> bool + Sync)) -> Result<Vec<Moved>, String>;

/// A survey: whether all went well, or what is wrong.
type Survey = fn(&Asked, &Stop) -> Result<bool>;

/// Has a mount give back what it keeps of objects, so that they are read from their servers. If it does not,
/// that is said: rates of reading are those of its memory then.
fn forget(survey: &str, mount: &Path) {
    if let Err(e) = admin::local::give_back_objects(mount) {
        eprintln!(
            "{survey}: '{}' keeps what it has of objects, so it may be read from there: {e}",
            mount.display()
        );
    }
}

fn known(name: &str) -> Option<(Survey, &'static [&'static str])> {
    match name {
        "all" => Some((all::run, all::VARIABLES)),
        "sgpdd" => Some((sgpdd::run, sgpdd::VARIABLES)),
        "obdfilter" => Some((obdfilter::run, obdfilter::VARIABLES)),
        "ost" => Some((ost::run, ost::VARIABLES)),
        "mds" => Some((mds::run, mds::VARIABLES)),
        _ => None,
    }
}

/// The command: arguments behind `survey`, exit status.
pub fn main(args: &[OsString], network: Network) -> i32 {
    let Some(name) = args.first().map(|a| a.to_string_lossy().into_owned()) else {
        eprint!("{HELP}");
        return crate::EXIT_USAGE;
    };
    if ["help", "--help", "-h"].contains(&name.as_str()) {
        print!("{HELP}");
        return 0;
    }
    // as a program link, or as the classical scripts are called
    let short = name.strip_suffix("-survey").unwrap_or(&name);
    let Some((survey, variables)) = known(short) else {
        eprintln!("nacre survey: unknown survey '{name}'\n\n{HELP}");
        return crate::EXIT_USAGE;
    };
    with(&format!("{short}-survey"), &args[1..], (survey, variables), network)
}

fn with(name: &str, args: &[OsString], (survey, variables): (Survey, &[&str]), network: Network) -> i32 {
    let all = std::iter::once(OsString::from(name)).chain(args.iter().cloned());
    let flags = match Flags::try_parse_from(all) {
        Ok(f) => f,
        Err(e) => {
            let _ = e.print();
            return e.exit_code();
        }
    };
    let stop = Stop::default();
    let begun = || -> Result<bool> {
        flags.check(name.strip_suffix("-survey").unwrap_or(name))?;
        let knobs = Knobs::new(variables, &flags.operands, |n| std::env::var(n).ok())?;
        crate::handle_signals(&stop)?;
        survey(&Asked { flags: flags.clone(), knobs, network }, &stop)
    };
    let done = begun();
    admin::output::flush();
    match done {
        Ok(well) => i32::from(!well),
        Err(_) if stop.wanted() => crate::EXIT_INTERRUPTED,
        Err(e) => {
            eprintln!("{name}: {e:#}");
            1
        }
    }
}

/// Where a survey's findings go: lines at once, the document at the end, files if they are wanted.
pub struct Output<'a> {
    asked: &'a Asked,
    lines: std::cell::RefCell<String>,
}

impl<'a> Output<'a> {
    /// With the classical first line.
    pub fn begin(survey: &str, asked: &'a Asked, what: &str) -> Output<'a> {
        let out = Output { asked, lines: std::cell::RefCell::default() };
        let (date, time) = admin::command::changelog::date_and_time(world::sys::wall_seconds());
        let survey = capital(survey);
        out.line(&format!("{date} {time} {survey} {what} from {}", world::sys::hostname()));
        out
    }

    /// One line, now: it may be long until the next.
    pub fn line(&self, text: &str) {
        if !self.asked.flags.json {
            admin::say!("{text}");
            admin::output::flush();
        }
        self.lines.borrow_mut().push_str(text);
        self.lines.borrow_mut().push('\n');
    }

    /// The document, the picture, and what `rslt` names: PREFIX.summary, PREFIX.detail, PREFIX.csv.
    pub fn finish(&self, document: &Value, csv: &str, picture: impl FnOnce() -> String) -> Result<()> {
        let flags = &self.asked.flags;
        if flags.json {
            admin::output::json(document);
        }
        let write = |path: &str, text: &str| {
            let written = world::sys::files::replace(path, text.as_bytes());
            written.with_context(|| format!("write '{path}'"))
        };
        if let Some(prefix) = self.asked.knobs.text("rslt") {
            write(&format!("{prefix}.summary"), &self.lines.borrow())?;
            write(&format!("{prefix}.detail"), &format!("{document:#}\n"))?;
            write(&format!("{prefix}.csv"), csv)?;
        }
        if let Some(p) = &flags.plot {
            write(&p.display().to_string(), &picture())?;
        }
        Ok(())
    }
}

/// One test: what came of it, or that it failed, which is said. An error: the user stopped it.
fn attempt(
    (survey, test): (&str, &str),
    stop: &Stop,
    done: Result<Measured>,
    word: impl FnOnce(&anyhow::Error) -> &'static str,
) -> Result<Measured> {
    done.or_else(|e| {
        if stop.wanted() {
            return Err(e);
        }
        eprintln!("{survey}: {test}: {e:#}");
        Ok(Measured::failed(test, word(&e)))
    })
}

/// The crew does these orders, once.
fn phase(common: &Common, stop: &Stop, phase: &Phase<'_>, orders: &[(usize, Order)]) -> Result<Row> {
    Run::start(common, stop, Vec::new())?.phase(phase, orders)
}

fn capital(word: &str) -> String {
    let mut c = word.chars();
    c.next().map_or(String::new(), |first| first.to_uppercase().chain(c).collect())
}
