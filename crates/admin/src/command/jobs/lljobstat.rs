//! `lljobstat`: the busiest jobs on the targets of this host, again and again.

use super::super::with_page;
use super::{Done, Jobs, add, busiest, in_order};
use crate::command::get_param;
use crate::failure::Failure;
use crate::getopt::{self, flag, value};
use crate::interrupt::{self, Interrupt};
use crate::{output, put, say};
use model::Errno;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::time::Duration;
use world::sys;

const USAGE: &str = "\
usage: lljobstat [-c COUNT] [-i SECONDS] [-n REPEATS] [-m] [-o] [--param PATTERN] [--fullname]

Shows the jobs with the most operations on the targets of this host, as they
are counted in job_stats: a YAML document each time.

  -c, --count COUNT      so many jobs (5)
  -i, --interval SECONDS so long between two looks (10)
  -n, --repeats REPEATS  so many looks, then it ends; without it an interrupt ends it
  -m, --mdt              metadata targets only; -o, --ost: object targets only
  --param PATTERN        these parameters instead (mdt.*.job_stats, obdfilter.*.job_stats)
  --fullname             operations by their names instead of abbreviations

exit status: 0, or the errno of the failure, 4 wrong usage, 130 interrupted
";

const COUNT_DEFAULT: u64 = 5;
const COUNT_MAX: u64 = 100_000;
const INTERVAL_DEFAULT_S: u64 = 10;
const INTERVAL_MAX_S: u64 = 86_400;

#[derive(PartialEq, Eq, Debug)]
struct Options {
    count: usize,
    interval: Duration,
    /// `None`: until it is interrupted.
    repeats: Option<u64>,
    patterns: Vec<String>,
    full_names: bool,
}

fn parse(args: &[OsString]) -> Result<Options, Failure> {
    let options = [
        value('c', "count"),
        value('i', "interval"),
        value('n', "repeats"),
        flag('m', "mdt"),
        flag('o', "ost"),
        value('\0', "param"),
        flag('\0', "fullname"),
    ];
    let p = getopt::parse(args, &options)?;
    if let Some(o) = p.operands.first() {
        return Err(Failure::usage(format!("'{}' is no option", o.to_string_lossy())));
    }
    let (mdt, ost) = (p.has("mdt") || !p.has("ost"), p.has("ost") || !p.has("mdt"));
    let kinds = [(mdt, "mdt.*.job_stats"), (ost, "obdfilter.*.job_stats")];
    let patterns = match p.value("param") {
        Some(pattern) => vec![get_param::dotted(pattern)],
        None => kinds.into_iter().filter(|k| k.0).map(|k| k.1.to_string()).collect(),
    };
    Ok(Options {
        count: p.number("count", COUNT_MAX)?.unwrap_or(COUNT_DEFAULT) as usize,
        interval: Duration::from_secs(p.number("interval", INTERVAL_MAX_S)?.unwrap_or(INTERVAL_DEFAULT_S)),
        repeats: p.number("repeats", u64::MAX)?,
        patterns,
        full_names: p.has("fullname"),
    })
}

/// What the targets of this host count at this moment. Each is asked alone: what one answers is bounded.
fn look(patterns: &[String]) -> Result<Jobs, Failure> {
    let names: Vec<String> = patterns.iter().flat_map(|p| get_param::names(p)).collect();
    if names.is_empty() {
        let why = "no target on this host counts jobs: run it on a server, or nacre top jobs on a client";
        return Err(Failure::explained("cannot find", &patterns.join(" "), Errno::ENOENT, why));
    }
    let mut jobs = Jobs::new();
    for (name, text) in names.iter().flat_map(|n| get_param::matching(n)) {
        add(&name, &text, &mut jobs)?;
    }
    Ok(jobs)
}

/// A job's line: its id, and its operations.
fn line(id: &str, done: &Done, full_names: bool) -> String {
    let mut out = format!("- {:<16} {{ops: {}", format!("{id}:"), done.ops());
    for (name, short, n) in in_order(done) {
        let _ = write!(out, ", {}: {n}", if full_names { name } else { short });
    }
    out.push('}');
    out
}

/// The document of one look.
fn document(now_s: i64, jobs: &Jobs, o: &Options) -> String {
    let mut out = format!("---\ntimestamp: {now_s}\ntop_jobs:\n");
    for (id, done) in busiest(jobs, o.count) {
        let _ = writeln!(out, "{}", line(&model::jobs::quoted(id), done, o.full_names));
    }
    out
}

fn watch(o: &Options, interrupt: &Interrupt) -> Result<(), Failure> {
    let mut done = 0;
    loop {
        put!("{}", document(sys::wall_seconds(), &look(&o.patterns)?, o));
        say!("...");
        output::flush();
        done += 1;
        if o.repeats == Some(done) || interrupt.stopped() {
            return Ok(());
        }
        interrupt.pause(o.interval);
        if interrupt.stopped() {
            return Ok(());
        }
    }
}

/// The command. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("lljobstat", USAGE), args, Failure::exit_code, |args| {
        let o = parse(args)?;
        let (r, signalled) = interrupt::guarded(|| {}, |i| watch(&o, i));
        r.map(|()| signalled.unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::served;
    use super::*;

    fn options(args: &[&str]) -> Result<Options, Failure> {
        parse(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn documents_are_as_lustres() {
        let mut jobs = Jobs::new();
        add("x", &served(), &mut jobs).unwrap();
        let o = options(&["-n", "1"]).unwrap();
        let expected = "\
---
timestamp: 1665984678
top_jobs:
- dd.0:            {ops: 25, op: 4, wr: 19, objseek: 2}
- \"a \\\"b\\\": {\\x0a\": {ops: 3, mv: 3}
";
        assert_eq!(document(1_665_984_678, &jobs, &o), expected);
        let o = options(&["-c1", "--fullname"]).unwrap();
        let expected =
            "---\ntimestamp: 1\ntop_jobs:\n- dd.0:            {ops: 25, open: 4, write: 19, objseek: 2}\n";
        assert_eq!(document(1, &jobs, &o), expected);
        assert_eq!(document(1, &Jobs::new(), &o), "---\ntimestamp: 1\ntop_jobs:\n");
    }

    #[test]
    fn options_are_lustres() {
        let o = options(&[]).unwrap();
        assert_eq!((o.count, o.interval, o.repeats), (5, Duration::from_secs(10), None));
        assert_eq!(o.patterns, ["mdt.*.job_stats", "obdfilter.*.job_stats"]);
        assert_eq!(options(&["-m"]).unwrap().patterns, ["mdt.*.job_stats"]);
        assert_eq!(options(&["--ost"]).unwrap().patterns, ["obdfilter.*.job_stats"]);
        assert_eq!(options(&["-m", "-o"]).unwrap().patterns.len(), 2);
        assert_eq!(options(&["--param", "mdt/x/job_stats"]).unwrap().patterns, ["mdt.x.job_stats"]);
        for bad in [&["-c", "0"][..], &["-i", "x"], &["-n", "0"], &["x"], &["--nothing"]] {
            assert!(options(bad).is_err(), "{bad:?}");
        }
    }
}
