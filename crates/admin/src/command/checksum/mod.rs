//! `nacre checksum scan`: compares files with the checksums that some program keeps in their extended
//! attributes, as StoRM and other storage elements do.

mod scan;
mod state;
mod sum;
mod tally;
#[cfg(test)]
mod tests;

use crate::failure::Failure;
use crate::live::ProgressLine;
use crate::output;
use crate::pool::{self, EXIT_INTERRUPTED, EXIT_USAGE, Stop, THREADS_MAX, default_threads};
use crate::size::{human, parse_age};
use clap::{Parser, Subcommand};
use scan::Options;
use serde_json::{Value, json};
use state::{State, Subject};
use std::ffi::OsString;
use std::path::PathBuf;
use sum::ChecksumKind;
use tally::Totals;
use world::sys::{self, files};

const NAME: &str = "nacre checksum";
/// Something is wrong with a file, or could not be read.
const EXIT_WRONG: i32 = 1;

/// Checksums that are kept with files
#[derive(Parser, Clone, Debug)]
#[command(name = NAME, bin_name = NAME, disable_version_flag = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Reads every file below DIR and compares it with the checksum in its extended attribute
    ///
    /// Exit status: 0 all that have one match, 1 one does not or could not be read, 2 wrong usage, 130
    /// interrupted.
    Scan(ScanArgs),
}

#[derive(Parser, Clone, Debug)]
struct ScanArgs {
    dir: PathBuf,
    /// The attribute that holds the checksum, in hexadecimal digits
    #[arg(long, default_value = "user.storm.checksum.adler32", value_name = "NAME")]
    xattr: String,
    /// adler32, crc32c, md5 or sha256 (default: the last part of the attribute's name)
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Give files their checksum that have none
    #[arg(long)]
    set: bool,
    /// Only files modified within the last N seconds, or minutes, hours, days, weeks (30m, 12h, 7d, 2w)
    #[arg(long, value_name = "AGE", value_parser = age)]
    since: Option<i64>,
    /// Remember here which directories are done, and go on behind them; removed at the end
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Workers (default: twice as many as processors)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX as u64))]
    threads: Option<u64>,
    /// One JSON document
    #[arg(long)]
    json: bool,
    /// No live progress
    #[arg(short, long)]
    quiet: bool,
}

/// Seconds.
fn age(text: &str) -> Result<i64, String> {
    let known = parse_age(text).filter(|_| !text.ends_with('y'));
    known.ok_or_else(|| format!("'{text}': expected a number of s, m, h, d or w, as in 12h"))
}

/// The command: arguments behind `checksum`, exit status.
pub fn main(args: &[OsString]) -> i32 {
    let (Args { command: Command::Scan(args) }, stop) = match pool::begin(NAME, args) {
        Ok(begun) => begun,
        Err(status) => return status,
    };
    let line = ProgressLine::for_terminal(args.quiet);
    let done = command(&args, &stop, &line);
    line.clear();
    match done {
        Ok(tally) => {
            show(&args, &tally, &stop);
            if stop.wanted() {
                EXIT_INTERRUPTED
            } else if tally.is_well() {
                0
            } else {
                EXIT_WRONG
            }
        }
        Err(f) => {
            eprintln!("{NAME}: {f}");
            EXIT_USAGE
        }
    }
}

fn kind(args: &ScanArgs) -> Result<ChecksumKind, Failure> {
    let known = "adler32, crc32c, md5, sha256";
    match &args.kind {
        Some(t) => ChecksumKind::parse(t)
            .ok_or_else(|| Failure::usage(format!("unknown checksum '{t}' of --type: {known}"))),
        None => ChecksumKind::of_attribute(&args.xattr).ok_or_else(|| {
            let name = &args.xattr;
            Failure::usage(format!(
                "the name '{name}' says no kind of checksum; say one with --type: {known}"
            ))
        }),
    }
}

fn command(args: &ScanArgs, stop: &Stop, line: &ProgressLine) -> Result<Totals, Failure> {
    let kind = kind(args)?;
    let shown = args.dir.display().to_string();
    let failed = |e| Failure::io("cannot scan", &shown, e);
    let dir = files::canonical(&args.dir).map_err(failed)?;
    let options = Options {
        dir,
        xattr: OsString::from(&args.xattr),
        kind,
        set: args.set,
        since: args.since.map(|age| sys::wall_seconds() - age),
        threads: args.threads.map_or_else(default_threads, |n| n as usize),
    };
    let mut before = Totals::default();
    let subject = Subject {
        dir: options.dir.to_string_lossy().into_owned(),
        xattr: args.xattr.clone(),
        kind: kind.name().to_string(),
        set: args.set,
        since: args.since,
    };
    let state = args.state.as_deref().map(|p| State::open(p, &subject, &mut before)).transpose()?;
    let (tally, state) = scan::run(&options, stop, line, state, before).map_err(failed)?;
    if let Some(state) = state.filter(|_| !stop.wanted()) {
        state.complete().map_err(|e| Failure::io("cannot remove the state file of", &shown, e))?;
    }
    Ok(tally)
}

fn show(args: &ScanArgs, tally: &Totals, stop: &Stop) {
    if args.json {
        let mut doc = json!({ "dir": args.dir, "xattr": args.xattr, "interrupted": stop.wanted() });
        if let (Value::Object(all), Ok(Value::Object(more))) = (&mut doc, serde_json::to_value(tally)) {
            all.extend(more);
        }
        output::json(&doc);
    } else {
        let t = tally;
        crate::say!(
            "{} files: {} match, {} do not, {} have no checksum, {} got one, {} changed meanwhile, {} errors; {}B read",
            t.files,
            t.matched,
            t.mismatched,
            t.without,
            t.set,
            t.changed,
            t.errors,
            human(t.bytes, 1024)
        );
        if stop.wanted() {
            let how = if args.state.is_some() { "goes on from here" } else { "begins anew without --state" };
            crate::say!("interrupted: the same command {how}");
        }
    }
    output::flush();
}
