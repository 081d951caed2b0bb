//! `nacre events`: what the daemons and mounts of this host had to tell an operator.

mod scope;

use super::changelog::date_and_time;
use super::with_page;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Parsed, flag, value};
use crate::interrupt::{Interrupt, guarded};
use crate::local::Process;
use crate::size::parse_age;
use crate::{output, say};
use model::events::{CLASSES, Event, Kind};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;
use world::sys;

const USAGE: &str = "\
usage: nacre events [-c CLASSES] [-l LEVEL] [-a NAME] [-s AGE] [-n NUMBER] [-f] [--json]
       nacre events --summary [--json]
       nacre events --explain [ID]

What the daemons and mounts of this host had to tell: disks that fail, lost
connections, recoveries, evictions, full targets, damaged blocks, requests that
hang, changes of the configuration. A daemon knows what it said before it
started again. Behind the list it says whether connections that are lost now
have one client, one server, one link in common, or nothing.

  -c, --class CLASSES    only of these (disk,network,...: --explain names them)
  -l, --level LEVEL      error, warning or info, and what is worse
  -a, --about NAME       only about names with this in them: a target, a client
  -s, --since AGE        younger than this: 30s, 10m, 2h, 3d, 1w
  -n, --number NUMBER    the last of them: 50, unless it is said
  -f, --follow           and what comes, until it is interrupted
      --summary          errors and warnings of each class and week
      --explain [ID]     what an event means, and what to do about it
      --json             a document a line

exit status: 0, or the errno of the first failure, 4 wrong usage
";

const SHOWN: u64 = 50;
/// Answers of one process that are fetched, one after the other, at most.
const PAGES_MAX: usize = 100;
/// Between two looks of who follows.
const LOOK: Duration = Duration::from_millis(500);
const LEVELS: [&str; 3] = ["error", "warning", "info"];

/// An event with the process that said it.
#[derive(Clone, Debug)]
struct Told {
    process: String,
    event: Event,
}

impl Told {
    fn time(&self) -> String {
        let (sec, nsec) = self.event.at;
        let (date, time) = date_and_time(sec);
        format!("{}T{time}.{:03}Z", date.replace('.', "-"), nsec / 1_000_000)
    }

    fn id(&self) -> String {
        self.event.kind().map_or_else(|| format!("N{:03}", self.event.id), Kind::name)
    }

    fn line(&self) -> String {
        let e = &self.event;
        let more =
            if e.more > 0 { format!(" (the last of {} more like this)", e.more) } else { String::new() };
        let class = if e.class().is_empty() { "?" } else { e.class() };
        format!("{} {} {} {class} {}: {}{more}", self.time(), self.id(), e.level, self.process, e.text)
    }

    fn json(&self) -> serde_json::Value {
        let e = &self.event;
        json!({"time": self.time(), "id": self.id(), "class": e.class(), "level": e.level,
            "process": self.process, "about": e.about, "text": e.text, "more": e.more})
    }
}

/// What is asked for.
struct Wanted {
    classes: Vec<String>,
    level: usize,
    about: Option<String>,
    since: i64,
}

impl Wanted {
    fn of(p: &Parsed) -> Result<Wanted, Failure> {
        let classes: Vec<String> = p
            .values("class")
            .flat_map(|v| v.split(','))
            .filter(|c| !c.is_empty())
            .map(String::from)
            .collect();
        if let Some(wrong) = classes.iter().find(|c| CLASSES.iter().all(|(known, _)| known != c)) {
            let known: Vec<&str> = CLASSES.iter().map(|(c, _)| *c).collect();
            return Err(Failure::usage(format!("'{wrong}' is no class: there are {}", known.join(", "))));
        }
        let level = match p.value("level") {
            None => LEVELS.len() - 1,
            Some(l) => LEVELS.iter().position(|known| *known == l).ok_or_else(|| {
                Failure::usage(format!("'{l}' is no level: there are {}", LEVELS.join(", ")))
            })?,
        };
        let since = match p.value("since") {
            None => i64::MIN,
            Some(t) => {
                let age = parse_age(t);
                let age =
                    age.ok_or_else(|| Failure::usage(format!("'{t}' is no age: 30s, 10m, 2h, 3d, 1w")))?;
                sys::wall_seconds() - age
            }
        };
        Ok(Wanted { classes, level, about: p.value("about").map(String::from), since })
    }

    fn has(&self, t: &Told) -> bool {
        let e = &t.event;
        let level = LEVELS.iter().position(|l| *l == e.level).unwrap_or(0);
        (self.classes.is_empty() || self.classes.iter().any(|c| c == e.class()))
            && level <= self.level
            && self.about.as_ref().is_none_or(|a| e.about.contains(a) || e.text.contains(a))
            && e.at.0 >= self.since
    }
}

/// What a process has behind a number, and how many of those are gone.
fn read(of: &Process, mut after: u64) -> Result<(Vec<Told>, u64), Failure> {
    let (mut all, mut lost) = (Vec::new(), 0);
    for _ in 0..PAGES_MAX {
        let part = of.events(after)?;
        lost += part.lost;
        after = part.events.last().map_or(after, |e| e.seq);
        all.extend(part.events.into_iter().map(|event| Told { process: of.name.clone(), event }));
        if !part.more {
            break;
        }
    }
    Ok((all, lost))
}

fn sort(all: &mut [Told]) {
    all.sort_by(|a, b| (a.event.at, &a.process, a.event.seq).cmp(&(b.event.at, &b.process, b.event.seq)));
}

/// Of all processes, in the order of their times.
fn everything(errors: &mut FirstError) -> Result<Vec<Told>, Failure> {
    let all = Process::require("cannot list", "events")?;
    let mut told = Vec::new();
    for got in sys::at_once(&all, |p| read(p, 0)) {
        match got {
            Ok((some, _)) => told.extend(some),
            Err(f) => errors.report("nacre events", &f),
        }
    }
    sort(&mut told);
    Ok(told)
}

fn show(all: &[Told], as_json: bool) {
    for t in all {
        if as_json { say!("{}", t.json()) } else { say!("{}", t.line()) }
    }
    output::flush();
}

fn list(p: &Parsed, wanted: &Wanted) -> Result<i32, Failure> {
    let mut errors = FirstError::default();
    let all = everything(&mut errors)?;
    let most = p.number("number", 1 << 30)?.unwrap_or(SHOWN);
    let fits: Vec<Told> = all.iter().filter(|t| wanted.has(t)).cloned().collect();
    let from = fits.len().saturating_sub(usize::try_from(most).unwrap_or(usize::MAX));
    show(&fits[from..], p.has("json"));
    if !p.has("json") {
        if from > 0 {
            eprintln!("nacre events: {from} older ones are not shown (-n)");
        }
        if let Some(verdict) = scope::verdict(all.iter().map(|t| (t.process.as_str(), &t.event))) {
            say!("now: {verdict}");
        }
    }
    if !p.has("follow") {
        return Ok(errors.exit_code());
    }
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for t in &all {
        let l = last.entry(t.process.clone()).or_default();
        *l = t.event.seq.max(*l);
    }
    let (done, _) = guarded(|| {}, |i| follow(p, wanted, last, i));
    done.map(|()| errors.exit_code())
}

fn follow(
    p: &Parsed,
    wanted: &Wanted,
    mut last: BTreeMap<String, u64>,
    i: &Interrupt,
) -> Result<(), Failure> {
    while !i.stopped() {
        i.pause(LOOK);
        let all = Process::all();
        let mut news = Vec::new();
        for (of, got) in
            all.iter().zip(sys::at_once(&all, |p| read(p, last.get(&p.name).copied().unwrap_or(0))))
        {
            // One that ended is not there at the next look.
            let Ok((some, lost)) = got else { continue };
            if lost > 0 {
                eprintln!("nacre events: {lost} events of {} were gone before they were read", of.name);
            }
            if let Some(t) = some.last() {
                last.insert(of.name.clone(), t.event.seq);
            }
            news.extend(some.into_iter().filter(|t| wanted.has(t)));
        }
        sort(&mut news);
        show(&news, p.has("json"));
    }
    Ok(())
}

fn summary(as_json: bool) -> Result<i32, Failure> {
    let mut errors = FirstError::default();
    let all = everything(&mut errors)?;
    let rows = scope::weeks(all.iter().map(|t| &t.event));
    if as_json {
        for r in &rows {
            say!("{}", serde_json::to_string(r).expect("plain data encodes"));
        }
        return Ok(errors.exit_code());
    }
    say!(
        "{:<12} {:<10} {:>7} {:>9} {:>22}",
        "week from",
        "class",
        "errors",
        "warnings",
        "errors to warnings"
    );
    for r in &rows {
        let ratio =
            if r.warnings == 0 { "-".into() } else { format!("{:.2}", r.errors as f64 / r.warnings as f64) };
        say!("{:<12} {:<10} {:>7} {:>9} {ratio:>22}", r.week, r.class, r.errors, r.warnings);
    }
    Ok(errors.exit_code())
}

fn explain(which: Option<&str>) -> Result<i32, Failure> {
    let Some(id) = which else {
        for (class, what) in CLASSES {
            say!("{class}: {what}");
            for k in Kind::ALL.iter().filter(|k| k.class() == *class) {
                say!("  {}  {}", k.name(), k.meaning());
            }
        }
        return Ok(0);
    };
    let unknown = || Failure::usage(format!("'{id}' is no event: nacre events --explain lists all"));
    let k = Kind::parse(id).ok_or_else(unknown)?;
    say!("{} ({}): {}", k.name(), k.class(), k.meaning());
    if !k.advice().is_empty() {
        say!("{}", k.advice());
    }
    Ok(0)
}

fn command(args: &[OsString]) -> Result<i32, Failure> {
    let opts = [
        value('c', "class"),
        value('l', "level"),
        value('a', "about"),
        value('s', "since"),
        value('n', "number"),
        flag('f', "follow"),
        flag('\0', "summary"),
        flag('\0', "explain"),
        flag('\0', "json"),
    ];
    let p = getopt::parse(args, &opts)?;
    if p.has("explain") {
        p.only(&["explain"], "--explain")?;
        return match p.operands.as_slice() {
            [] => explain(None),
            [id] => explain(Some(&id.to_string_lossy())),
            [_, more, ..] => Err(Failure::usage(format!("'{}' is one too many", more.to_string_lossy()))),
        };
    }
    if let Some(word) = p.operands.first() {
        return Err(Failure::usage(format!("'{}': events are chosen by options", word.to_string_lossy())));
    }
    if p.has("summary") {
        p.only(&["summary", "json"], "--summary")?;
        return summary(p.has("json"));
    }
    list(&p, &Wanted::of(&p)?)
}

/// The command: arguments behind `events`.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre events", USAGE), args, Failure::exit_code, command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::testing;

    fn refused(args: &[&str]) -> String {
        testing::refused(command, args)
    }

    #[test]
    fn what_is_typed_wrongly_is_refused_with_what_there_is() {
        assert!(refused(&["-c", "disc"]).contains("there are disk, checksum, network"));
        assert!(refused(&["-l", "warn"]).contains("error, warning, info"));
        assert!(refused(&["-s", "yesterday"]).contains("30s, 10m"));
        assert!(refused(&["--explain", "N999"]).contains("--explain lists all"));
        assert!(refused(&["disk"]).contains("by options"));
        assert!(refused(&["--summary", "-c", "disk"]).contains("class"));
    }

    #[test]
    fn a_line_has_time_id_level_class_process_and_text() {
        let event = Event {
            seq: 1,
            at: (1_790_000_000, 5_000_000),
            id: Kind::ClientEvicted as u64,
            level: "warning".into(),
            about: "t-OST0000".into(),
            text: "t-OST0000: evicting client 'x'".into(),
            more: 3,
        };
        let t = Told { process: "nacred-7".into(), event };
        assert_eq!(
            t.line(),
            "2026-09-21T14:13:20.005Z N401 warning eviction nacred-7: t-OST0000: evicting client 'x' (the last of 3 more like this)"
        );
        let later = Told { event: Event { id: 4711, ..t.event.clone() }, ..t };
        assert!(later.line().contains(" N4711 warning ? nacred-7: "), "of a later version");
    }
}
