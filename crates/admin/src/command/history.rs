//! `nacre history`: files, space and response time of this host's targets, hour by hour for a year.

use super::changelog::date_and_time;
use super::with_page;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Parsed, flag, value};
use crate::local::{Daemon, DaemonReply, DaemonRequest, DaemonTarget};
use crate::size::{human, parse_age};
use crate::{output, say};
use model::Errno;
use model::history::{ANSWER_MAX, Jump, KEPT_MAX, Record};
use serde_json::json;
use std::ffi::OsString;
use world::sys;

const USAGE: &str = "\
usage: nacre history [-s AGE] [-d] [-j] [--json] [TARGET]...

What the targets that this host serves recorded: each hour how many files they
had, how much space was taken, how many requests they served and how long these
took on an average. A year of it is kept, in the file 'history' of a target's
folder, which goes with the target when another host serves it. What changed
far more than in the week before is marked, and was an event (nacre events -c
full,hang).

  TARGET            only of these: a label, or the beginning of one
  -s, --since AGE   younger than this: 12h, 3d, 2w; 1d unless it is said
  -d, --daily       one line a day: the last record, requests of all, their mean
  -j, --jumps       only what is marked
      --json        a document a line

exit status: 0, or the errno of the first failure, 4 wrong usage
";

const SINCE_DEFAULT_S: i64 = 86_400;
const DAY_S: i64 = 86_400;
/// Answers that a year takes, and some.
const PAGES_MAX: usize = KEPT_MAX / ANSWER_MAX + 2;

/// A record of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    target: String,
    record: Record,
    jumps: Vec<Jump>,
}

fn time(at: i64) -> String {
    let (date, time) = date_and_time(at);
    format!("{}T{time}Z", date.replace('.', "-"))
}

fn percent(used: u64, total: u64) -> String {
    if total == 0 { "-".into() } else { format!("{:.1}%", used as f64 * 100.0 / total as f64) }
}

impl Line {
    fn text(&self) -> String {
        let r = &self.record;
        let marks: Vec<&str> = self.jumps.iter().map(|j| j.name()).collect();
        let marked = if marks.is_empty() { String::new() } else { format!("  jump: {}", marks.join(", ")) };
        format!(
            "{:20} {:18} {:>12} {:>10} {:>7} {:>12} {:>12}{marked}",
            time(r.at),
            self.target,
            r.files_used,
            human(r.bytes_used, 1024),
            percent(r.bytes_used, r.bytes_total),
            r.requests,
            r.response_us
        )
    }

    fn json(&self) -> serde_json::Value {
        let r = &self.record;
        json!({"time": time(r.at), "target": self.target, "files_used": r.files_used,
            "files_total": r.files_total, "bytes_used": r.bytes_used, "bytes_total": r.bytes_total,
            "requests": r.requests, "response_us": r.response_us,
            "jumps": self.jumps.iter().map(|j| j.name()).collect::<Vec<_>>()})
    }
}

/// A line for each day and target: what it ended with, and all requests of it.
fn daily(all: Vec<Line>) -> Vec<Line> {
    let mut out: Vec<Line> = Vec::new();
    for l in all {
        match out.last_mut() {
            Some(d)
                if d.target == l.target && d.record.at.div_euclid(DAY_S) == l.record.at.div_euclid(DAY_S) =>
            {
                let us = |r: &Record| u128::from(r.requests) * u128::from(r.response_us);
                let (sum, requests) =
                    (us(&d.record) + us(&l.record), d.record.requests.saturating_add(l.record.requests));
                let mean = u64::try_from(sum.checked_div(requests.into()).unwrap_or(0)).unwrap_or(u64::MAX);
                d.record = Record { requests, response_us: mean, ..l.record };
                let more: Vec<Jump> = l.jumps.into_iter().filter(|j| !d.jumps.contains(j)).collect();
                d.jumps.extend(more);
            }
            _ => out.push(l),
        }
    }
    out
}

/// All of one target.
fn read(of: &Daemon, target: &str, mut since: i64) -> Result<Vec<Line>, Failure> {
    let mut out = Vec::new();
    for _ in 0..PAGES_MAX {
        let part = match of.ask(&DaemonRequest::History { target: target.into(), since })? {
            DaemonReply::History(part) => part,
            DaemonReply::Error { errno, message } => {
                return Err(Failure::explained("cannot read the history of", target, Errno(errno), &message));
            }
            other => {
                let said = format!("{other:?}");
                return Err(Failure::explained("cannot read the history of", target, Errno::EPROTO, &said));
            }
        };
        since = part.records.last().map_or(since, |(r, _)| r.at);
        out.extend(part.records.into_iter().map(|(record, jumps)| Line {
            target: target.into(),
            record,
            jumps,
        }));
        if !part.more {
            break;
        }
    }
    Ok(out)
}

/// The targets that are meant, each with its daemon. `ENODEV`: none.
fn chosen(p: &Parsed) -> Result<Vec<(Daemon, String)>, Failure> {
    let names: Vec<String> = p.operands.iter().map(|o| o.to_string_lossy().into_owned()).collect();
    let daemons = Daemon::all();
    if daemons.is_empty() {
        let why = "no daemon of this user serves targets on this host: run it as root where one does";
        return Err(Failure::explained("cannot read", "history", Errno::ENODEV, why));
    }
    let mut all = Vec::new();
    for d in daemons {
        // One that ended since it was found has none.
        let Some(s) = d.status() else { continue };
        // An MGS has no files, and a snapshot no hours.
        let has = |t: &DaemonTarget| !t.label.starts_with("MGS") && !t.is_of_snapshot();
        all.extend(s.targets.into_iter().filter(has).map(|t| (d.clone(), t.label)));
    }
    for n in &names {
        if !all.iter().any(|(_, label)| label.starts_with(n.as_str())) {
            let known: Vec<&str> = all.iter().map(|(_, l)| l.as_str()).collect();
            let why = format!(
                "this host serves {}",
                if known.is_empty() { "none".into() } else { known.join(", ") }
            );
            return Err(Failure::explained("no target", n, Errno::ENODEV, &why));
        }
    }
    all.retain(|(_, l)| names.is_empty() || names.iter().any(|n| l.starts_with(n.as_str())));
    all.sort_by(|a, b| a.1.cmp(&b.1));
    Ok(all)
}

fn command(args: &[OsString]) -> Result<i32, Failure> {
    let opts = [value('s', "since"), flag('d', "daily"), flag('j', "jumps"), flag('\0', "json")];
    let p = getopt::parse(args, &opts)?;
    let age = match p.value("since") {
        None => SINCE_DEFAULT_S,
        Some(t) => {
            parse_age(t).ok_or_else(|| Failure::usage(format!("'{t}' is no age: 30s, 10m, 2h, 3d, 1w")))?
        }
    };
    let mut errors = FirstError::default();
    let since = sys::wall_seconds() - age;
    let all = chosen(&p)?;
    let mut lines = Vec::new();
    for got in sys::at_once(&all, |(d, label)| read(d, label, since)) {
        match got {
            Ok(some) => lines.extend(some),
            Err(f) => errors.report("nacre history", &f),
        }
    }
    if p.has("daily") {
        lines = daily(lines);
    }
    lines.retain(|l| !p.has("jumps") || !l.jumps.is_empty());
    lines.sort_by(|a, b| (a.record.at, &a.target).cmp(&(b.record.at, &b.target)));
    if !p.has("json") {
        say!(
            "{:20} {:18} {:>12} {:>10} {:>7} {:>12} {:>12}",
            "time",
            "target",
            "files",
            "space",
            "full",
            "requests",
            "response us"
        );
    }
    for l in &lines {
        if p.has("json") { say!("{}", l.json()) } else { say!("{}", l.text()) }
    }
    output::flush();
    Ok(errors.exit_code())
}

/// The command: arguments behind `history`.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre history", USAGE), args, Failure::exit_code, command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: i64, requests: u64, response_us: u64, jumps: &[Jump]) -> Line {
        let record = Record {
            at,
            files_used: requests,
            bytes_used: 512 << 20,
            bytes_total: 1 << 30,
            requests,
            response_us,
            ..Record::default()
        };
        Line { target: "t-OST0000".into(), record, jumps: jumps.to_vec() }
    }

    #[test]
    fn a_day_has_its_last_record_all_its_requests_and_their_mean() {
        let all = vec![
            line(3600, 100, 10, &[]),
            line(7200, 300, 50, &[Jump::Space]),
            line(DAY_S + 60, 7, 1, &[Jump::Space, Jump::Response]),
        ];
        let days = daily(all);
        assert_eq!(days.len(), 2);
        assert_eq!((days[0].record.requests, days[0].record.response_us), (400, 40));
        assert_eq!((days[0].record.files_used, days[0].jumps.as_slice()), (300, &[Jump::Space][..]));
        assert_eq!(days[1], line(DAY_S + 60, 7, 1, &[Jump::Space, Jump::Response]));
        let none = daily(vec![line(0, 0, 0, &[]), line(1, 0, 0, &[])]);
        assert_eq!((none.len(), none[0].record.response_us), (1, 0));
    }

    #[test]
    fn a_line_says_how_full_it_is_and_what_jumped() {
        let text = line(1_790_000_000, 42, 800, &[Jump::Space, Jump::Response]).text();
        assert!(text.starts_with("2026-09-21T14:13:20Z") && text.contains("t-OST0000"), "{text}");
        assert!(text.contains("50.0%") && text.ends_with("800  jump: space, response"), "{text}");
    }

    #[test]
    fn what_is_typed_wrongly_is_refused() {
        let refused = |args: &[&str]| {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            command(&args).map(|_| ()).unwrap_err().to_string()
        };
        assert!(refused(&["-s", "yesterday"]).contains("30s, 10m"));
        assert!(refused(&["--hourly"]).contains("--hourly"));
    }
}
