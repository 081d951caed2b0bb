//! `nacre top jobs`: the busiest jobs on all targets of the mounted file systems.

use super::{Done, Jobs, add, busiest, in_order};
use crate::command::osts::{chosen_file_systems, targets};
use crate::command::top::{COUNT_DEFAULT, COUNT_MAX};
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag, value};
use crate::interrupt::{self, Interrupt};
use crate::local::{self, LocalMount};
use crate::output;
use crate::size::human;
use client::control::Target;
use model::{Errno, TargetKind};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::time::Duration;
use world::sys;

const INTERVAL_MAX_S: u64 = 86_400;

struct Options {
    mounts: Vec<OsString>,
    count: usize,
    interval: Option<Duration>,
    json: bool,
}

fn parse(args: &[OsString]) -> Result<Options, Failure> {
    let options = [value('n', "count"), value('i', "interval"), flag('\0', "json")];
    let p = getopt::parse(args, &options)?;
    Ok(Options {
        count: p.number("count", COUNT_MAX)?.unwrap_or(COUNT_DEFAULT) as usize,
        interval: p.number("interval", INTERVAL_MAX_S)?.map(Duration::from_secs),
        json: p.has("json"),
        mounts: p.operands,
    })
}

fn of_target(m: &LocalMount, t: &Target) -> Result<Vec<(String, String)>, Failure> {
    let values = local::target_params(&m.dir, t.target, "*.*.job_stats")?;
    if values.is_empty() {
        let why = "its server counts no jobs: it is older than this program";
        return Err(Failure::explained("cannot ask", &t.uuid, Errno::EOPNOTSUPP, why));
    }
    Ok(values)
}

/// What all targets of a file system count at this moment; those that do not answer are named and left out.
fn look(m: &LocalMount, errors: &mut FirstError) -> Result<Jobs, Failure> {
    let mut all = targets(&m.dir)?;
    all.retain(|t| t.active && matches!(t.target.kind, TargetKind::Mdt | TargetKind::Ost));
    let mut jobs = Jobs::new();
    for (t, said) in all.iter().zip(sys::at_once(&all, |t| of_target(m, t))) {
        let added =
            said.and_then(|values| values.iter().try_for_each(|(_, text)| add(&t.uuid, text, &mut jobs)));
        if let Err(f) = added {
            errors.report("nacre top jobs", &f);
        }
    }
    Ok(jobs)
}

/// What was done between two looks.
fn between(before: &Jobs, now: &Jobs) -> Jobs {
    let none = Done::default();
    now.iter().map(|(id, d)| (id.clone(), d.since(before.get(id).unwrap_or(&none)))).collect()
}

/// The lines of a look at a file system; `seconds`: what was done in so many, a second.
fn text(fsname: &str, jobs: &Jobs, count: usize, seconds: Option<u64>) -> String {
    let each = |n: u64| n / seconds.unwrap_or(1).max(1);
    let (heading, per) = match seconds {
        Some(s) => (format!("{fsname}, the last {s} s"), "/s"),
        None => (fsname.to_string(), ""),
    };
    let [ops, read, written] = ["Ops", "Read", "Written"].map(|name| format!("{name}{per}"));
    let mut out = format!("{heading:<32} {ops:>10} {read:>10} {written:>10} Operations\n");
    for (id, done) in busiest(jobs, count) {
        let what: Vec<String> = in_order(done).iter().map(|(name, _, n)| format!("{name} {n}")).collect();
        let _ = writeln!(
            out,
            "{:<32} {:>10} {:>10} {:>10} {}",
            model::jobs::quoted(id),
            each(done.ops()),
            human(each(done.read_bytes), 1024),
            human(each(done.write_bytes), 1024),
            what.join(", ")
        );
    }
    out
}

fn as_json(fsname: &str, jobs: &Jobs, count: usize, seconds: Option<u64>) -> Value {
    let job = |(id, d): (&str, &Done)| {
        let done = in_order(d);
        let operations: serde_json::Map<_, _> =
            done.iter().map(|(name, _, n)| (name.to_string(), json!(n))).collect();
        json!({"job_id": id, "ops": d.ops(), "read_bytes": d.read_bytes, "write_bytes": d.write_bytes,
               "operations": operations})
    };
    let jobs: Vec<Value> = busiest(jobs, count).into_iter().map(job).collect();
    json!({"fsname": fsname, "interval_s": seconds, "jobs": jobs})
}

/// What `nacre top jobs --json` says: what the busiest jobs did since they are counted. Targets that do not
/// answer are in `missing`.
pub fn query(count: usize) -> Result<Value, Failure> {
    let (mut errors, mut all) = (FirstError::keeping(), Vec::new());
    for m in chosen_file_systems(&[])? {
        let jobs = look(&m, &mut errors)?;
        all.push(as_json(&m.name.fsname, &jobs, count, None));
    }
    Ok(json!({"timestamp": sys::wall_seconds(), "file_systems": all, "missing": errors.kept()}))
}

fn watch(o: &Options, errors: &mut FirstError, interrupt: &Interrupt) -> Result<(), Failure> {
    let mounts = chosen_file_systems(&o.mounts)?;
    let mut before: Vec<Jobs> = Vec::new();
    let mut since = sys::wall_seconds();
    loop {
        let now_s = sys::wall_seconds();
        let now = mounts.iter().map(|m| look(m, errors)).collect::<Result<Vec<_>, _>>()?;
        let seconds = o.interval.map(|_| now_s.saturating_sub(since).max(1).unsigned_abs());
        let shown: Vec<Jobs> = match o.interval {
            None => now.clone(),
            Some(_) => before.iter().zip(&now).map(|(b, n)| between(b, n)).collect(),
        };
        let of_mounts = mounts.iter().zip(&shown);
        if o.json && !shown.is_empty() {
            let all: Vec<Value> =
                of_mounts.map(|(m, jobs)| as_json(&m.name.fsname, jobs, o.count, seconds)).collect();
            output::json(&json!({"timestamp": now_s, "file_systems": all}));
        } else {
            let texts: Vec<String> =
                of_mounts.map(|(m, jobs)| text(&m.name.fsname, jobs, o.count, seconds)).collect();
            texts.iter().for_each(|t| output::bytes(t.as_bytes()));
            if o.interval.is_some() && !shown.is_empty() {
                output::bytes(b"\n");
            }
        }
        output::flush();
        let Some(interval) = o.interval.filter(|_| !interrupt.stopped()) else { return Ok(()) };
        (before, since) = (now, now_s);
        interrupt.pause(interval);
        if interrupt.stopped() {
            return Ok(());
        }
    }
}

/// The command: arguments behind `top jobs`. Returns the exit status.
pub fn run(args: &[OsString]) -> Result<i32, Failure> {
    let o = parse(args)?;
    let mut errors = FirstError::default();
    let (r, signalled) = interrupt::guarded(|| {}, |i| watch(&o, &mut errors, i));
    r.map(|()| signalled.unwrap_or_else(|| errors.exit_code()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::served;
    use super::*;

    fn jobs(times: usize) -> Jobs {
        let mut jobs = Jobs::new();
        (0..times).for_each(|_| add("x", &served(), &mut jobs).unwrap());
        jobs
    }

    #[test]
    fn the_busiest_jobs_of_all_targets_come_first() {
        let expected = "\
demo                                    Ops       Read    Written Operations
dd.0                                     50          0     152.0K open 8, write 38, objseek 4
\"a \\\"b\\\": {\\x0a\"                          6          0          0 rename 6
";
        assert_eq!(text("demo", &jobs(2), 10, None), expected);
        let rates = between(&jobs(1), &jobs(3));
        let shown = text("demo", &rates, 1, Some(5));
        let expected = "\
demo, the last 5 s                    Ops/s     Read/s  Written/s Operations
dd.0                                     10          0      30.4K open 8, write 38, objseek 4
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn json_has_names_and_numbers() {
        let expected = json!({"fsname": "demo", "interval_s": null, "jobs": [{"job_id": "dd.0", "ops": 25,
            "read_bytes": 0, "write_bytes": 77_824, "operations": {"open": 4, "write": 19, "objseek": 2}}]});
        assert_eq!(as_json("demo", &jobs(1), 1, None), expected);
    }

    #[test]
    fn options_are_checked() {
        let of = |args: &[&str]| parse(&args.iter().map(OsString::from).collect::<Vec<_>>());
        let o = of(&["-n", "3", "--interval=2", "--json", "/mnt"]).unwrap();
        assert_eq!((o.count, o.interval, o.json, o.mounts.len()), (3, Some(Duration::from_secs(2)), true, 1));
        assert_eq!(of(&[]).unwrap().count, 10);
        for bad in [&["-n", "0"][..], &["--interval", "x"]] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
