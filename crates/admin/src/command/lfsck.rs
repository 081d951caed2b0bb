//! `lctl lfsck_start`, `lfsck_stop`, `lfsck_query`: a metadata target that this host serves checks the whole
//! file system and mends it, while it is used.

use super::barrier::fsname_of_mdt;
use super::get_param::{answered, missing};
use super::set_param::daemon_set;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::local::{Daemon, DaemonReply, DaemonRequest, show};
use crate::say;
use model::Errno;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::slice;
use std::time::Duration;
use world::sys;

pub const USAGE_START: &str = "[-M|--device FSNAME-MDT0000] [-A|--all] [-t|--type {all|namespace|layout}[,...]] \
     [-n|--dryrun [on|off]] [-r|--reset] [-o|--orphan] [-c|--create-ostobj [on|off]] [-C|--create-mdtobj [on|off]] \
     [-e|--error {continue|abort}] [-s|--speed RECORDS_A_SECOND]";
pub const USAGE_STOP: &str = "[-M|--device FSNAME-MDT0000] [-A|--all]";
pub const USAGE_QUERY: &str =
    "[-M|--device FSNAME-MDT0000] [-A|--all] [-t|--type {all|namespace|layout}[,...]] [-w|--wait] [--json]";

const POLL: Duration = Duration::from_millis(200);
/// Largest rate that the servers take.
const SPEED_MAX: u64 = 10_000_000;
const TYPES: [&str; 2] = ["layout", "namespace"];
const STATES: &[&str] = &[
    "init",
    "scanning-phase1",
    "scanning-phase2",
    "completed",
    "failed",
    "stopped",
    "paused",
    "crashed",
    "partial",
    "co-failed",
    "co-stopped",
    "co-paused",
    "unknown",
];

/// Options that Lustre has and that mean nothing here.
fn without_meaning(p: &Parsed) -> Result<(), Failure> {
    for (long, why) in [
        ("window-size", "pages of objects are bounded by themselves; -s bounds the rate"),
        ("delete-lease", "no leases of objects are left behind"),
    ] {
        if p.has(long) {
            return Err(Failure::usage(format!("--{long}: {why}")));
        }
    }
    Ok(())
}

/// `-n on` is `-n`, `-n off` is nothing.
fn switches(args: &[OsString]) -> Vec<OsString> {
    const SWITCHES: &[&str] =
        &["-n", "--dryrun", "-c", "--create-ostobj", "-C", "--create-mdtobj", "-o", "--orphan"];
    let mut out: Vec<OsString> = Vec::new();
    for a in args {
        let behind = out.last().is_some_and(|l| SWITCHES.contains(&l.to_string_lossy().as_ref()));
        match a.to_str() {
            Some("on") if behind => {}
            Some("off") if behind => {
                out.pop();
            }
            _ => out.push(a.clone()),
        }
    }
    out
}

/// A metadata target of this host, and who serves it.
struct Mdt {
    daemon: Daemon,
    label: String,
}

impl Mdt {
    /// All that are served. Of one that is not yet, or not any more, there is nothing to see or order.
    fn all() -> Vec<Mdt> {
        let is_up = |state: &str| !matches!(state, "starting" | "stopped");
        let mut all: Vec<Mdt> = Daemon::served()
            .into_iter()
            .filter(|(_, t)| fsname_of_mdt(&t.label).is_some() && is_up(&t.state))
            .map(|(daemon, t)| Mdt { daemon, label: t.label })
            .collect();
        all.sort_by(|a, b| a.label.cmp(&b.label));
        all
    }

    /// What it shows of a kind of check; nothing if it ended meanwhile.
    fn shown(&self, kind: &str) -> Vec<String> {
        values(slice::from_ref(&self.daemon), &format!("mdd.{}.lfsck_{kind}", self.label))
    }
}

/// What parameters of these names hold at these daemons.
fn values(daemons: &[Daemon], pattern: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut take = |r| {
        if let DaemonReply::Params(p) = r {
            out.extend(p.into_iter().map(|(_, v)| v));
        }
    };
    for reply in Daemon::ask_all(daemons, &DaemonRequest::GetParam { pattern: pattern.to_string() }) {
        answered(reply, &mut take);
    }
    out
}

/// The metadata targets that are meant, of those that this host serves.
fn targets(p: &Parsed) -> Result<Vec<Mdt>, Failure> {
    at_most_one_target(p)?;
    let served = Mdt::all();
    let wanted = p.value("device").map(str::to_string).or_else(|| p.operands.first().map(|o| show(o)));
    let Some(wanted) = wanted else {
        return match served.as_slice() {
            [] => Err(Failure::explained(
                "cannot check",
                "this host",
                Errno::ENODEV,
                "it serves no metadata target",
            )),
            [_] => Ok(served),
            _ if p.has("all") => Ok(served),
            all => {
                let names: Vec<&str> = all.iter().map(|t| t.label.as_str()).collect();
                Err(Failure::usage(format!("which one: -M {}, or -A for all", names.join(", -M "))))
            }
        };
    };
    let wanted = wanted.trim_start_matches(['%', '$']).trim_end_matches("_UUID").to_string();
    if wanted.contains("-OST") {
        let why = "the check begins at the metadata target, and takes all OSTs along: -M FSNAME-MDT0000";
        return Err(Failure::explained("cannot check", &wanted, Errno::EINVAL, why));
    }
    match served.into_iter().find(|t| t.label == wanted) {
        Some(t) => Ok(vec![t]),
        None => {
            let why = "no nacred of this host serves it";
            Err(Failure::explained("cannot check", &wanted, Errno::ENODEV, why))
        }
    }
}

fn types(p: &Parsed) -> Result<Vec<&'static str>, Failure> {
    let mut chosen = Vec::new();
    for word in p.value("type").unwrap_or("all").split(',') {
        match word {
            "all" => chosen.extend(TYPES),
            "scrub" => {
                return Err(Failure::usage(
                    "type scrub: what objects hold is read and compared by nacre scrub; layout and namespace are checked here",
                ));
            }
            _ => chosen.push(*TYPES.iter().find(|t| **t == word).ok_or_else(|| {
                Failure::usage(format!("'{word}' is no type of check: namespace, layout, or all"))
            })?),
        }
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

/// To who is told `EALREADY` when a check is to start.
pub const UNDER_WAY: &str = "one is under way: lctl lfsck_query -w waits for it, lctl lfsck_stop ends it";

fn order(t: &Mdt, order: &str) -> Result<(), Failure> {
    let (target, name) = (&t.label, format!("mdd.{}.lfsck", t.label));
    let r = DaemonRequest::SetParam { name: name.clone(), value: order.to_string() };
    let set = daemon_set(&t.daemon, &r, &name).map_err(|f| match f {
        Failure::Op { errno: Errno::EALREADY, .. } if order == "stop" => {
            Failure::explained("cannot stop a check of", target, Errno::EALREADY, "none is under way")
        }
        Failure::Op { errno: Errno::EALREADY, .. } => {
            Failure::explained("cannot start a check of", target, Errno::EALREADY, UNDER_WAY)
        }
        f => f,
    })?;
    if set { Ok(()) } else { Err(missing(&name)) }
}

/// One target may be named, with `-M` or without.
fn at_most_one_target(p: &Parsed) -> Result<(), Failure> {
    let allowed = usize::from(p.value("device").is_none());
    match p.operands.get(allowed) {
        None => Ok(()),
        Some(o) => Err(Failure::usage(format!("unexpected argument '{}'", show(o)))),
    }
}

/// `lctl lfsck_start`.
pub fn run_start(args: &[OsString]) -> Result<FirstError, Failure> {
    const OPTS: &[Opt] = &[
        value('M', "device"),
        flag('A', "all"),
        value('t', "type"),
        flag('n', "dryrun"),
        flag('r', "reset"),
        flag('o', "orphan"),
        flag('c', "create-ostobj"),
        flag('C', "create-mdtobj"),
        value('e', "error"),
        value('s', "speed"),
        value('w', "window-size"),
        value('d', "delete-lease"),
    ];
    let p = getopt::parse(&switches(args), OPTS)?;
    without_meaning(&p)?;
    let chosen = types(&p)?;
    let mut words = vec!["start".to_string()];
    words.extend(chosen.iter().map(|t| t.to_string()));
    for (long, word) in [
        ("dryrun", "dryrun"),
        ("reset", "reset"),
        ("orphan", "orphan"),
        ("create-ostobj", "create_ostobj"),
        ("create-mdtobj", "create_mdtobj"),
    ] {
        if p.has(long) {
            words.push(word.into());
        }
    }
    match p.value("error") {
        None | Some("continue") => {}
        Some("abort") => words.push("failout".into()),
        Some(other) => return Err(Failure::usage(format!("'{other}': --error is continue or abort"))),
    }
    if let Some(s) = p.value("speed") {
        let n: u64 = s.parse().ok().filter(|n| *n <= SPEED_MAX).ok_or_else(|| {
            let what = "records a second, at most";
            Failure::usage(format!("'{s}' is no rate: {what} {SPEED_MAX}; 0: no bound"))
        })?;
        words.push(format!("speed={n}"));
    }
    for t in targets(&p)? {
        order(&t, &words.join(" "))?;
        say!("Started LFSCK on the device {}: {}", t.label, chosen.join(" "));
    }
    Ok(FirstError::default())
}

/// `lctl lfsck_stop`.
pub fn run_stop(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[value('M', "device"), flag('A', "all")])?;
    for t in targets(&p)? {
        order(&t, "stop")?;
        say!("Stopped LFSCK on the device {}.", t.label);
    }
    Ok(FirstError::default())
}

/// A field of what `lfsck_namespace` and `lfsck_layout` show.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Whether a check has to be waited for still.
pub fn is_under_way(status: &str) -> bool {
    matches!(status, "scanning-phase1" | "scanning-phase2" | "paused")
}

/// `lctl lfsck_query`.
pub fn run_query(args: &[OsString]) -> Result<FirstError, Failure> {
    let opts =
        [value('M', "device"), flag('A', "all"), value('t', "type"), flag('w', "wait"), flag('\0', "json")];
    let p = getopt::parse(args, &opts)?;
    let (chosen, mdts) = (types(&p)?, targets(&p)?);
    let waits = |t: &Mdt| {
        let shown = chosen.iter().flat_map(|kind| t.shown(kind));
        shown.into_iter().any(|text| is_under_way(status(&text)))
    };
    while p.has("wait") && mdts.iter().any(waits) {
        sys::sleep(POLL);
    }
    let mut numbers = BTreeMap::new();
    for kind in &chosen {
        count(kind, &mdts, &mut numbers);
    }
    if p.has("json") {
        say!("{}", json!(numbers));
        return Ok(FirstError::default());
    }
    for t in &chosen {
        let sides: &[&str] = if *t == "layout" { &["mdts", "osts"] } else { &["mdts"] };
        for side in sides {
            for s in STATES {
                let name = format!("{t}_{side}_{s}");
                say!("{name}: {}", numbers[&name]);
            }
        }
        let name = format!("{t}_repaired");
        say!("{name}: {}", numbers[&name]);
    }
    Ok(FirstError::default())
}

/// What checks of a file system, and scrubs of OSTs, on this host say: the fields of `lfsck_namespace` and
/// `lfsck_layout` of each metadata target, those of `scrub` of each OST.
pub fn query() -> serde_json::Value {
    let fields = |text: &str| -> BTreeMap<String, String> {
        let pair = |l: &str| l.split_once(':').map(|(n, v)| (n.trim().to_string(), v.trim().to_string()));
        text.lines().filter_map(pair).collect()
    };
    let (mut checks, daemons) = (Vec::new(), Daemon::all());
    for t in Mdt::all() {
        for kind in TYPES {
            for text in t.shown(kind) {
                checks.push(json!({"target": t.label, "type": kind, "status": status(&text),
                                   "fields": fields(&text)}));
            }
        }
    }
    let mut scrubs = Vec::new();
    let mut take = |r| {
        if let DaemonReply::Params(p) = r {
            for (name, text) in p {
                let target = name.split('.').nth(1).unwrap_or_default();
                scrubs.push(json!({"target": target, "fields": fields(&text)}));
            }
        }
    };
    let pattern = "obdfilter.*.scrub".to_string();
    for reply in Daemon::ask_all(&daemons, &DaemonRequest::GetParam { pattern }) {
        answered(reply, &mut take);
    }
    json!({"checks": checks, "scrubs": scrubs})
}

/// Starts a check of everything by a metadata target that this host serves; `dry`: nothing is mended.
pub fn start(label: &str, dry: bool) -> Result<(), Failure> {
    order(&one(label)?, if dry { "start layout namespace dryrun" } else { "start layout namespace" })
}

/// Ends the check of a metadata target that this host serves.
pub fn stop(label: &str) -> Result<(), Failure> {
    order(&one(label)?, "stop")
}

fn one(label: &str) -> Result<Mdt, Failure> {
    Mdt::all().into_iter().find(|t| t.label == label).ok_or_else(|| {
        let why = "no nacred of this host serves it";
        Failure::explained("cannot check", label, Errno::ENODEV, why)
    })
}

fn status(text: &str) -> &str {
    field(text, "status").filter(|s| STATES.contains(s)).unwrap_or("unknown")
}

/// How many of these metadata targets, and of the OSTs of their file systems on this host, are in which
/// state, and what was mended.
fn count(kind: &str, mdts: &[Mdt], numbers: &mut BTreeMap<String, u64>) {
    let of_mdts: Vec<String> = mdts.iter().flat_map(|t| t.shown(kind)).collect();
    let n = |text: &str, name| field(text, name).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    let repaired = of_mdts.iter().map(|t| n(t, "repaired") + n(t, "quarantined")).sum();
    numbers.insert(format!("{kind}_repaired"), repaired);
    let mut sides = vec![("mdts", of_mdts)];
    if kind == "layout" {
        let (all, names) = (Daemon::all(), mdts.iter().filter_map(|t| fsname_of_mdt(&t.label)));
        let of_fs = |fs: &str| values(&all, &format!("obdfilter.{fs}-OST*.lfsck_layout"));
        sides.push(("osts", names.collect::<BTreeSet<_>>().into_iter().flat_map(of_fs).collect()));
    }
    for (side, texts) in sides {
        for s in STATES {
            numbers.insert(format!("{kind}_{side}_{s}"), 0);
        }
        for text in texts {
            *numbers.entry(format!("{kind}_{side}_{}", status(&text))).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_and_off_behind_a_switch_are_its_value() {
        let of = |words: &[&str]| -> Vec<String> {
            let args: Vec<OsString> = words.iter().map(OsString::from).collect();
            switches(&args).iter().map(|a| a.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(of(&["-n", "on", "-c", "off", "-C"]), ["-n", "-C"]);
        assert_eq!(of(&["on"]), ["on"]);
    }

    #[test]
    fn types_are_known_and_others_refused_with_what_to_use() {
        let of = |t: &str| types(&getopt::parse(&["-t".into(), t.into()], &[value('t', "type")]).unwrap());
        assert_eq!(of("all").unwrap(), ["layout", "namespace"]);
        assert_eq!(of("namespace,layout,namespace").unwrap(), ["layout", "namespace"]);
        assert!(of("scrub").unwrap_err().to_string().contains("nacre scrub"));
        assert!(of("everything").is_err());
    }
}
