//! `nacre tune`: what a host should be set to for what it is for, why, and back again.

mod host;
mod profile;
mod saved;
#[cfg(test)]
mod tests;

use self::host::{Disk, Host, Item, Note, check_target, own, source_of};
use self::profile::{Profile, honesty};
use self::saved::Outcome;
use super::{get_param, with_page};
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::local::Daemon;
use crate::{output, say};
use model::Errno;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use world::sys;
use world::sys::load::{LoadFile, OpenHow};

const USAGE: &str = "\
usage: nacre tune --check --profile PROFILE [--only NAMES] [--no-flush] [--json]
                  [TARGET...]
       nacre tune --apply --profile PROFILE [--only NAMES] [--state DIR] [--json]
                  [TARGET...]
       nacre tune --undo [--state DIR] [--json]

Looks at this host as a client and as a server: settings of the kernel, queues
and caches of the disks under targets that are served here (and of the folders
TARGET), parameters of mounts. Each line has the value now, the one that is
wanted, why, and how to undo it. Disks without a target of ours are left alone.
Settings last until the host starts again, parameters until the mount ends.
Root's.

      --check            changes nothing, but for a few flushes of a small file
                         in each target's folder
      --apply            sets what is not as wanted; what was there is kept
      --undo             puts back what was there; what others changed since is
                         left
      --profile PROFILE  throughput: streams of large files; iops: small files;
                         wan: servers far away; login-node: many users; small:
                         little memory
      --only NAMES       those whose names begin so, with commas between them:
                         net.,osc.
      --no-flush         does not measure flushes
      --state DIR        what was there before (/var/lib/nacre/tune)
      --json             one JSON document

exit status: 0, or the errno of the first failure, 4 wrong usage; of --check 1 if
something is not as wanted
";

const OPTS: &[Opt] = &[
    flag('\0', "check"),
    flag('\0', "apply"),
    flag('\0', "undo"),
    value('\0', "profile"),
    value('\0', "only"),
    flag('\0', "no-flush"),
    value('\0', "state"),
    flag('\0', "json"),
];

const STATE_DEFAULT: &str = "/var/lib/nacre/tune";
/// How long flushes are counted.
const FLUSH_TIME: Duration = Duration::from_millis(500);
/// The file that is flushed: gone afterwards.
const FLUSH_FILE: &str = "tune.flush";
const PAGE: usize = 4096;

/// Flushes a second of a small file in a folder, each of a page that changed.
fn flushes(folder: &Path) -> std::io::Result<f64> {
    let path = folder.join(FLUSH_FILE);
    let f = LoadFile::open(&path, OpenHow { write: true, create: true, direct: false })?;
    let measured = (|| {
        let (begin, end) = (sys::load::monotonic_ns(), sys::Deadline::after(FLUSH_TIME));
        let mut n = 0u32;
        while !end.passed() {
            f.write_at(&vec![n.to_le_bytes()[0]; PAGE], 0)?;
            f.fsync()?;
            n = n.saturating_add(1);
        }
        let ns = sys::load::monotonic_ns().saturating_sub(begin).max(1);
        Ok(f64::from(n) * 1e9 / ns as f64)
    })();
    // Whatever came of it.
    sys::files::remove_file(&path)?;
    measured
}

/// The folders of targets: those served here, and those that are named.
fn folders(operands: &[OsString]) -> Result<BTreeSet<PathBuf>, Failure> {
    let mut out = BTreeSet::new();
    for o in operands {
        let folder = PathBuf::from(o);
        check_target(&folder)?;
        out.insert(folder);
    }
    out.extend(Daemon::served().into_iter().map(|(_, t)| PathBuf::from(t.dir)));
    Ok(out)
}

/// What is found on a host.
struct Found {
    items: Vec<Item>,
    notes: Vec<Note>,
}

fn find(host: &Host, p: Profile, folders: &BTreeSet<PathBuf>, flush: bool) -> Found {
    let (mut disks, mut notes) = (BTreeSet::new(), Vec::new());
    let mut measured: BTreeMap<String, Option<f64>> = BTreeMap::new();
    for folder in folders {
        let Ok(Some(source)) = source_of(folder) else {
            let text = "it is on no block device of this host: nothing to tune below it".to_string();
            notes.push(Note { about: folder.display().to_string(), text, is_bad: false });
            continue;
        };
        let below = host.disks_of(&source);
        notes.extend(host.alignment(&source, &below));
        let rate = *measured.entry(source).or_insert_with(|| flush.then(|| flushes(folder).ok()).flatten());
        for name in below {
            notes.extend(flush_note(host, &name, rate));
            disks.insert(Disk { name, folder: folder.clone() });
        }
    }
    // Targets on one disk say the same.
    let mut met = BTreeSet::new();
    notes.retain(|n| met.insert((n.about.clone(), n.text.clone())));
    let mut items = host.kernel(p);
    items.extend(host.queues(p, &disks));
    items.extend(own(p, get_param::matching));
    Found { items, notes }
}

fn flush_note(host: &Host, disk: &str, rate: Option<f64>) -> Option<Note> {
    let cache = host.read(&format!("sys/block/{disk}/queue/write_cache"))?;
    let (is_bad, what) = honesty(&cache, host.is_rotational(disk), rate);
    let measured = rate.map_or(String::new(), |n| format!("{n:.0} flushes a second; "));
    Some(Note { about: disk.to_string(), text: format!("cache: {cache}; {measured}{what}"), is_bad })
}

/// Names that begin so only.
fn narrow(found: &mut Found, only: Option<&str>) -> Result<(), Failure> {
    let Some(only) = only else { return Ok(()) };
    let begins: Vec<&str> = only.split(',').map(str::trim).filter(|b| !b.is_empty()).collect();
    let fits = |name: &str| begins.iter().any(|b| name.starts_with(b));
    found.items.retain(|i| fits(&i.place.shown()));
    found.notes.retain(|n| fits(&n.about));
    if found.items.is_empty() && found.notes.is_empty() {
        return Err(Failure::usage(format!("--only {only}: nothing of this profile begins so")));
    }
    Ok(())
}

fn item_json(i: &Item) -> Value {
    json!({"name": i.place.shown(), "now": i.now, "wanted": i.wanted, "as_wanted": i.better.is_none(),
           "set_to": i.better, "why": i.why, "undo": i.place.by_hand(&i.now)})
}

fn outcome_json(o: &Outcome) -> Value {
    match o {
        Outcome::Done => json!({"outcome": "done"}),
        Outcome::Left { now } => json!({"outcome": "left", "now": now}),
        Outcome::Gone => json!({"outcome": "gone"}),
        Outcome::Failed { why, .. } => json!({"outcome": "failed", "error": why}),
    }
}

fn note_json(n: &Note) -> Value {
    json!({"about": n.about, "text": n.text, "trouble": n.is_bad})
}

fn item_lines(i: &Item) -> Vec<String> {
    let name = i.place.shown();
    match &i.better {
        None => vec![format!("ok      {name} = {} ({}: {})", i.now, i.wanted, i.why)],
        Some(b) => vec![
            format!("change  {name} = {} -> {b}", i.now),
            format!("          why:  {}", i.why),
            format!("          undo: {}", i.place.by_hand(&i.now)),
        ],
    }
}

fn note_line(n: &Note) -> String {
    format!("{}  {}: {}", if n.is_bad { "TROUBLE" } else { "note  " }, n.about, n.text)
}

fn check(p: &Parsed, found: &Found, profile: Profile) -> i32 {
    let all_well = found.items.iter().all(|i| i.better.is_none()) && !found.notes.iter().any(|n| n.is_bad);
    if p.has("json") {
        output::json(&json!({"profile": profile.name(), "as_wanted": all_well,
            "values": found.items.iter().map(item_json).collect::<Vec<_>>(),
            "notes": found.notes.iter().map(note_json).collect::<Vec<_>>()}));
    } else {
        found.items.iter().flat_map(item_lines).for_each(|l| say!("{l}"));
        found.notes.iter().for_each(|n| say!("{}", note_line(n)));
    }
    i32::from(!all_well)
}

fn state(p: &Parsed) -> PathBuf {
    PathBuf::from(p.value("state").unwrap_or(STATE_DEFAULT))
}

fn apply(p: &Parsed, host: &Host, found: &Found, profile: Profile) -> Result<i32, Failure> {
    let outcomes = saved::apply(host, &state(p), profile.name(), &found.items)?;
    let changed: Vec<&Item> = found.items.iter().filter(|i| i.better.is_some()).collect();
    let mut first = FirstError::default();
    for (i, o) in changed.iter().zip(&outcomes) {
        let (name, to) = (i.place.shown(), i.better.as_deref().unwrap_or_default());
        match o {
            Outcome::Failed { why, errno } => {
                first.report("nacre tune", &Failure::Op { text: why.clone(), errno: *errno });
            }
            _ if !p.has("json") => say!("set     {name} = {} -> {to}", i.now),
            _ => {}
        }
    }
    if p.has("json") {
        let rows = changed.iter().zip(&outcomes).map(|(i, o)| {
            let mut row = item_json(i);
            row["result"] = outcome_json(o);
            row
        });
        output::json(
            &json!({"profile": profile.name(), "changed": rows.collect::<Vec<_>>(), "state": saved::path(&state(p)),
                             "notes": found.notes.iter().map(note_json).collect::<Vec<_>>()}),
        );
    } else if changed.is_empty() {
        say!("all is as {} wants it", profile.name());
    } else {
        say!("nacre tune --undo puts back what was there ({})", saved::path(&state(p)).display());
    }
    Ok(first.exit_code())
}

fn undo(p: &Parsed, host: &Host) -> Result<i32, Failure> {
    let all = saved::undo(host, &state(p))?;
    let mut first = FirstError::default();
    let mut rows = Vec::new();
    for (c, o) in &all {
        let name = c.place.shown();
        let line = match o {
            Outcome::Done => format!("back    {name} = {}", c.before),
            Outcome::Left { now } => {
                format!("left    {name} = {now}: somebody changed it since; it was {}", c.before)
            }
            Outcome::Gone => format!("gone    {name}: it is not there any more"),
            Outcome::Failed { why, errno } => {
                first.report("nacre tune", &Failure::Op { text: why.clone(), errno: *errno });
                format!("failed  {name}: run it again")
            }
        };
        if !p.has("json") {
            say!("{line}");
        }
        let mut row = outcome_json(o);
        (row["name"], row["before"], row["set"]) = (json!(name), json!(c.before), json!(c.set));
        rows.push(row);
    }
    if p.has("json") {
        output::json(&json!({"undone": rows}));
    }
    Ok(first.exit_code())
}

fn profile_of(p: &Parsed) -> Result<Profile, Failure> {
    let names = Profile::ALL.map(Profile::name).join(", ");
    let text = p.value("profile").ok_or_else(|| Failure::usage(format!("--profile is missing: {names}")))?;
    Profile::parse(text).ok_or_else(|| Failure::usage(format!("'{text}' is no profile: {names}")))
}

fn run(args: &[OsString]) -> Result<i32, Failure> {
    let p = getopt::parse(args, OPTS)?;
    let orders = ["check", "apply", "undo"].into_iter().filter(|o| p.has(o)).collect::<Vec<_>>();
    let [order] = orders[..] else {
        return Err(Failure::usage("say one of --check, --apply, --undo"));
    };
    let root = |what: &str| {
        let text = format!("{what}: run it as root");
        if sys::euid() == 0 { Ok(()) } else { Err(Failure::Op { text, errno: Errno::EPERM }) }
    };
    let host = Host { root: PathBuf::from("/") };
    if order == "undo" {
        p.only(&["undo", "state", "json"], "nacre tune --undo")?;
        if let Some(o) = p.operands.first() {
            return Err(Failure::usage(format!("'{}': --undo undoes all of it", o.to_string_lossy())));
        }
        root("settings are root's")?;
        return undo(&p, &host);
    }
    let (profile, name) = (profile_of(&p)?, format!("nacre tune --{order}"));
    let mut options = vec!["check", "apply", "profile", "only", "no-flush", "json"];
    options.extend((order == "apply").then_some("state"));
    p.only(&options, &name)?;
    root("daemons and mounts answer root only, and settings are root's")?;
    let mut found = find(&host, profile, &folders(&p.operands)?, order == "check" && !p.has("no-flush"));
    narrow(&mut found, p.value("only"))?;
    match order {
        "apply" => apply(&p, &host, &found, profile),
        _ => Ok(check(&p, &found, profile)),
    }
}

/// The command: arguments behind `tune`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre tune", USAGE), args, Failure::exit_code, run)
}
