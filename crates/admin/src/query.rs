//! What the commands tell with `--json`, as functions for a program that shows it (the console). Nothing is
//! printed; whoever asks may have to wait as long as the command would.

use crate::failure::Failure;
use crate::local::{self, Daemon, DaemonReply, DaemonRequest};
use client::control::{Reply, Request};
use model::TargetKind;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use world::sys;

pub use crate::command::config::query as config;
pub use crate::command::doctor::query as doctor;
pub use crate::command::jobs::top::query as jobs;
pub use crate::command::lfsck::query as checks;
pub use crate::command::movements::query as movements;
pub use crate::command::policy::query as policies;
pub use crate::command::quota::top::query as owners;
pub use crate::command::quota::top::query_directories as directories;
pub use crate::command::status::overview;

/// The daemons of this host with their targets: what `nacre status --json` asks them.
pub fn servers() -> Value {
    json!(Daemon::statuses())
}

/// Statistics of operations of every target that can be asked from here, as its server counts them:
/// `obdfilter.*.stats`, `mdt.*.md_stats`.
#[derive(Default, Debug)]
pub struct Stats {
    /// By the target's label; the text of the parameter.
    pub texts: BTreeMap<String, String>,
    /// Active targets of mounted file systems that were asked and said nothing.
    pub missing: Vec<String>,
}

const OF_DAEMONS: [&str; 2] = ["obdfilter.*.stats", "mdt.*.md_stats"];

/// The target in the name of a parameter: `obdfilter.demo-OST0000.stats`.
fn target_of(name: &str) -> Option<&str> {
    name.split('.').nth(1)
}

fn of_daemons(pattern: &str) -> Vec<(String, String)> {
    let all = Daemon::all();
    let replies = Daemon::ask_all(&all, &DaemonRequest::GetParam { pattern: pattern.to_string() });
    let mut out = Vec::new();
    for r in replies.into_iter().flatten() {
        if let DaemonReply::Params(values) = r {
            out.extend(values);
        }
    }
    out
}

/// Of several mounts of one file system the first.
fn mounted() -> Vec<PathBuf> {
    let mut met = BTreeSet::new();
    let mut ours = sys::mounts::list().unwrap_or_default();
    ours.retain(|m| m.fstype == local::FSTYPE && met.insert(m.source.clone()));
    ours.into_iter().map(|m| m.dir).collect()
}

/// What every target says of one parameter. Daemons of this host are asked themselves, the targets of other
/// hosts by way of a mount. One that its mount has no connection with is not asked: nobody waits for it.
/// `of`: the parameter's pattern for OSTs and for MDTs; without one those are not asked.
fn of_targets(of: [Option<&str>; 2]) -> Stats {
    let mut out = Stats::default();
    for (name, text) in of.into_iter().flatten().flat_map(of_daemons) {
        if let Some(target) = target_of(&name) {
            out.texts.insert(target.to_string(), text);
        }
    }
    let pattern = |kind: TargetKind| if kind == TargetKind::Mdt { of[1] } else { of[0] };
    for dir in mounted() {
        let Ok(Reply::Targets(mut all)) = local::ask(&dir, &Request::Targets) else { continue };
        all.retain(|t| t.active && t.target.kind != TargetKind::Mgt && !out.texts.contains_key(t.label()));
        all.retain(|t| pattern(t.target.kind).is_some());
        let said = sys::at_once(&all, |t| {
            let is_up = matches!(t.state.as_str(), "FULL" | "IDLE");
            let pattern = pattern(t.target.kind).filter(|_| is_up);
            pattern.map(|p| local::target_params(&dir, t.target, p)).transpose()
        });
        for (t, values) in all.iter().zip(said) {
            match values.ok().flatten().and_then(|v| v.into_iter().next()) {
                Some((_, text)) => drop(out.texts.insert(t.label().to_string(), text)),
                None => out.missing.push(t.label().to_string()),
            }
        }
    }
    out
}

/// What every target counts of its operations.
pub fn stats() -> Stats {
    of_targets(OF_DAEMONS.map(Some))
}

/// What every target counts of jobs (`job_stats`).
pub fn job_stats() -> Stats {
    of_targets([Some("obdfilter.*.job_stats"), Some("mdt.*.job_stats")])
}

/// Sizes and times of bulk of every OST (`brw_stats`).
pub fn brw_stats() -> Stats {
    of_targets([Some("obdfilter.*.brw_stats"), None])
}

/// Requests of this host's mounts that wait now: verb, how long, job, file, and what for.
pub fn requests() -> Value {
    const PATTERNS: [&str; 3] =
        ["osc.*.waiting_requests", "mdc.*.waiting_requests", "mgc.*.waiting_requests"];
    let mut rows = Vec::new();
    for dir in mounted() {
        for pattern in PATTERNS {
            let Ok(values) = params(&dir, pattern) else { continue };
            for (name, text) in values {
                let device = target_of(&name).unwrap_or_default();
                rows.extend(text.lines().filter_map(|l| waiting(&dir, device, l)));
            }
        }
    }
    rows.sort_by_key(|r| std::cmp::Reverse(r["age_s"].as_u64()));
    json!({"requests": rows})
}

fn params(dir: &Path, pattern: &str) -> Result<Vec<(String, String)>, Failure> {
    match local::ask(dir, &Request::GetParam { pattern: pattern.to_string() })? {
        Reply::Params(values) => Ok(values),
        other => Err(local::strange(dir, &other)),
    }
}

/// A line of `waiting_requests`: `write age=75 job=dd.0 file=[0x200000401:0x1:0x0] waits_for=server`.
fn waiting(dir: &Path, device: &str, line: &str) -> Option<Value> {
    let (verb, rest) = line.split_once(' ')?;
    let field = |name: &str| rest.split(' ').find_map(|w| w.strip_prefix(name)?.strip_prefix('='));
    let target = ["-osc-", "-mdc-"].iter().find_map(|at| device.split_once(at)).map_or(device, |(l, _)| l);
    Some(json!({"mount": dir, "target": target, "verb": verb, "age_s": field("age")?.parse::<u64>().ok()?,
                "job": field("job")?, "file": field("file")?, "waits_for": field("waits_for")?}))
}

/// What the targets of this host know of their clients: target, address, which parameter, its text.
fn exports() -> Vec<(String, String, String, String)> {
    let mut out = Vec::new();
    for pattern in ["obdfilter.*.exports.*.*", "mdt.*.exports.*.*"] {
        for (name, text) in of_daemons(pattern) {
            if let Some((target, nid, what)) = export(&name) {
                out.push((target.to_string(), nid.to_string(), what.to_string(), text));
            }
        }
    }
    out
}

/// What the targets of this host count of the clients at each address: target, address, statistics.
pub fn client_stats() -> Vec<(String, String, String)> {
    let all = exports().into_iter().filter(|e| e.2 == "stats");
    all.map(|(target, nid, _, text)| (target, nid, text)).collect()
}

/// The clients of this host's targets, by address: how many operations each target counted for them, and the
/// UUIDs that an administrator evicts.
pub fn clients() -> Value {
    let mut rows: BTreeMap<(String, String), Value> = BTreeMap::new();
    for (target, nid, what, text) in exports() {
        let row = rows
            .entry((target.clone(), nid.clone()))
            .or_insert_with(|| json!({"target": target, "nid": nid, "operations": {}, "uuids": []}));
        match what.as_str() {
            "stats" => row["operations"] = json!(samples(&text)),
            "uuid" => row["uuids"] = json!(text.split_whitespace().collect::<Vec<_>>()),
            _ => {}
        }
    }
    json!({"clients": rows.into_values().collect::<Vec<_>>()})
}

/// Target, NID and the rest of `mdt.demo-MDT0000.exports.10.0.0.1@tcp.stats`.
fn export(name: &str) -> Option<(&str, &str, &str)> {
    let (target, rest) = name.split_once(".exports.")?;
    let (nid, what) = rest.rsplit_once('.')?;
    Some((target.split_once('.')?.1, nid, what))
}

/// How often each operation was done, of statistics: `open 12 samples [usecs] ...`.
fn samples(stats: &str) -> BTreeMap<&str, u64> {
    stats
        .lines()
        .filter_map(|l| {
            let mut words = l.split_whitespace();
            let (name, n) = (words.next()?, words.next()?.parse().ok()?);
            (words.next()? == "samples").then_some((name, n))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_parameters_are_read_and_rubbish_is_left_out() {
        let w =
            waiting(Path::new("/m"), "demo-OST0001-osc-12ab", "write age=75 job=dd.0 file=- waits_for=slot");
        assert_eq!(
            w,
            Some(
                json!({"mount": "/m", "target": "demo-OST0001", "verb": "write", "age_s": 75, "job": "dd.0",
                        "file": "-", "waits_for": "slot"})
            )
        );
        assert_eq!(waiting(Path::new("/m"), "x", "write age=x"), None);
        assert_eq!(
            export("mdt.demo-MDT0000.exports.10.0.0.1@tcp.stats"),
            Some(("demo-MDT0000", "10.0.0.1@tcp", "stats"))
        );
        let stats = "snapshot_time 1.5 secs.nsecs\nopen 12 samples [usecs] 1 2 3 4\nclose 1 samples [reqs]\n";
        assert_eq!(samples(stats), BTreeMap::from([("open", 12), ("close", 1)]));
    }
}
