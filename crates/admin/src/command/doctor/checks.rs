//! The checks, one function each. A new one is a function and its line in [`CHECKS`].

use super::facts::Facts;
use super::{load, rates};
use crate::command::df::Numbers;
use crate::command::maintenance::in_force;
use crate::command::status::sentence;
use crate::health::{self, Severity, Wrong};
use crate::size::human;
use model::TargetKind;
use model::maintenance::Maintenance;
use std::collections::{BTreeMap, BTreeSet};

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub severity: Severity,
    /// A target, a mount, a file, a daemon.
    pub object: String,
    pub what: String,
    /// A command.
    pub help: String,
}

impl Finding {
    pub fn warning(object: impl Into<String>, what: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warning, object: object.into(), what: what.into(), help: help.into() }
    }

    pub fn error(object: impl Into<String>, what: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { severity: Severity::Error, ..Finding::warning(object, what, help) }
    }
}

/// What a check needs to have anything to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    Nothing,
    /// A mount on this host.
    Mount,
    /// A server daemon on this host.
    Daemon,
    /// One of both.
    Either,
    /// A mount, and root asks: servers say more to root alone.
    RootAtMount,
}

impl Needs {
    /// Why a check cannot look.
    pub fn missing(self, f: &Facts) -> Option<&'static str> {
        let (mount, daemon) = (!f.mounts.is_empty(), !f.daemons.is_empty());
        match self {
            Needs::Mount if !mount => Some("no mount answers on this host"),
            Needs::Daemon if !daemon => Some("no server answers on this host"),
            Needs::Either if !mount && !daemon => Some("neither a server nor a mount answers on this host"),
            Needs::RootAtMount if !mount => Some("no mount answers on this host"),
            Needs::RootAtMount if !f.is_root => Some("servers tell it root only"),
            _ => None,
        }
    }
}

pub struct Check {
    pub name: &'static str,
    /// What it looks for.
    pub about: &'static str,
    pub needs: Needs,
    pub run: fn(&Facts) -> Vec<Finding>,
}

const fn check(
    name: &'static str,
    about: &'static str,
    needs: Needs,
    run: fn(&Facts) -> Vec<Finding>,
) -> Check {
    Check { name, about, needs, run }
}

pub const CHECKS: &[Check] = &[
    check("answers", "mounts and daemons of this host that do not answer", Needs::Nothing, answers),
    check("targets", "targets that are away, deactivated, in recovery, read-only", Needs::Either, targets),
    check("maintenance", "what is kept from users, and why", Needs::Either, maintained),
    check("passed-over", "OSTs that get no new objects", Needs::Daemon, passed_over),
    check("space", "targets without space or inodes, or nearly so", Needs::Mount, space),
    check("uneven", "OSTs that are much fuller than others", Needs::Mount, uneven),
    check("disks", "targets that share a disk, or the system's", Needs::Either, disks),
    check("journal", "folders without room for a target's journal and table", Needs::Daemon, journal),
    check("slow", "OSTs that are slow among equals", Needs::Either, rates::slow),
    check("requests", "requests that hang", Needs::Mount, load::requests),
    check("locks", "files whose locks are waited for", Needs::Mount, load::locks),
    check("errors", "errors of disks, checksums and writes", Needs::Either, errors),
    check("clocks", "hosts whose clocks differ", Needs::RootAtMount, rates::clocks),
    check("versions", "programs of different versions", Needs::Either, versions),
    check("fencing", "cluster managers that fence nobody", Needs::Nothing, fencing),
    check("modes", "files of targets that others may read", Needs::Daemon, modes),
    check("quota", "limits that are not enforced", Needs::Daemon, quota),
    check("changelog", "changelog consumers that read no more", Needs::Daemon, changelog),
];

fn answers(f: &Facts) -> Vec<Finding> {
    let one = |(who, why): &(String, String)| {
        Finding::error(who, format!("does not answer: {why}"), "nacre status")
    };
    f.silent.iter().map(one).collect()
}

fn maintained(f: &Facts) -> Vec<Finding> {
    let values = f.params.iter().filter(|(n, _)| n.ends_with(".maintenance")).map(|(_, v)| v.clone());
    let one = |m: Maintenance| {
        let what = format!("is {} {}; {}", m.sentence(), health::since(m.since, f.now), m.consequence());
        let help = format!("nacre maintenance off --fsname {} (on the MGS node)", m.fsname);
        Finding::warning(&m.fsname, what, help)
    };
    in_force(values).into_iter().map(one).collect()
}

fn targets(f: &Facts) -> Vec<Finding> {
    let mut out = Vec::new();
    for m in &f.mounts {
        for t in health::of_targets(&m.targets, &m.space) {
            let fs = m.targets.first().and_then(|t| t.uuid.rsplit_once('-')).map_or("", |(fs, _)| fs);
            let help = match t.what {
                Wrong::Deactivated => format!("lctl set_param osc.{fs}-{}-*.active=1", t.object),
                Wrong::NoSpace | Wrong::NoInodes => format!("lfs df -h {}", m.dir.display()),
                Wrong::InRecovery => {
                    format!("lctl get_param *.{fs}-{}.recovery_status (on its server)", t.object)
                }
                _ => format!("nacre status (on its server); lctl ping {}", nid(&t.place)),
            };
            let what = format!("{}; {}", sentence(&t, f.now), t.consequence);
            out.push(Finding { severity: t.severity, object: m.dir.display().to_string(), what, help });
        }
    }
    for t in f.daemons.iter().flat_map(|d| &d.status.targets) {
        let label = &t.label;
        match (t.state.as_str(), &t.recovery) {
            ("recovering", Some(p)) => out.push(Finding::warning(
                label,
                format!(
                    "is in recovery: {} of {} clients are done, the others are waited for {} s",
                    p.completed, p.clients, p.seconds_left
                ),
                format!("lctl get_param *.{label}.recovery_status; lctl abort_recovery {label}"),
            )),
            ("recovering", None) => {
                out.push(Finding::warning(
                    label,
                    "is in recovery",
                    format!("lctl get_param *.{label}.recovery_status"),
                ));
            }
            ("starting", _) => {
                out.push(Finding::warning(
                    label,
                    "waits for the MGS to take it in",
                    "lctl get_param mgs.MGS.live.*",
                ));
            }
            (state @ ("read-only" | "stopped"), _) => out.push(Finding::error(
                label,
                format!("is {state}: its disk failed"),
                format!("lctl get_param osd-nacre.{label}.disk_state; nacre fsck {}", t.dir),
            )),
            _ => {}
        }
    }
    out
}

/// The address in a place, `oss2, 10.0.0.4@tcp`.
fn nid(place: &str) -> &str {
    place.rsplit(' ').next().unwrap_or(place)
}

fn passed_over(f: &Facts) -> Vec<Finding> {
    let all = f.each("osp.", ".passed_over").filter(|(_, why)| !why.is_empty());
    all.map(|(device, why)| {
        let help = format!("lctl get_param osp.{device}.*");
        Finding::warning(device, format!("gets no new objects: {why}"), help)
    })
    .collect()
}

/// Percent of a target's space and inodes from which on it is said, and is an error.
const FULL_WARNING: u64 = 90;
const FULL_ERROR: u64 = 98;

fn space(f: &Facts) -> Vec<Finding> {
    let mut out = Vec::new();
    let mut met = BTreeSet::new();
    for m in &f.mounts {
        for s in m.space.iter().filter(|s| s.errno.is_none() && s.target.active) {
            let label = s.target.label();
            if !met.insert(label.to_string()) {
                continue;
            }
            let (bytes, inodes) = (Numbers::of_space(s), Numbers::of_inodes(s));
            let left = format!("{} are left", human(s.available, 1024));
            for (n, of, left) in
                [(bytes, "space", left), (inodes, "inodes", format!("{} are left", s.files_free))]
            {
                let percent = n.percent();
                if n.total == 0 || percent < FULL_WARNING {
                    continue;
                }
                let severity = if percent >= FULL_ERROR { Severity::Error } else { Severity::Warning };
                let more = if of == "inodes" { " -i" } else { "" };
                let help = match s.target.target.kind {
                    TargetKind::Ost if of == "space" => {
                        format!("nacre rebalance {0}; nacre top users {0}", m.dir.display())
                    }
                    _ => format!("lfs df{more} {}", m.dir.display()),
                };
                let what = format!("{percent} % of its {of} are used, {left}");
                out.push(Finding { severity, object: label.into(), what, help });
            }
        }
    }
    out
}

/// So many points of use lie between the fullest OST and the emptiest one.
const UNEVEN_POINTS: u64 = 20;

fn uneven(f: &Facts) -> Vec<Finding> {
    // A file system may be mounted here more than once.
    let (mut out, mut met) = (Vec::new(), BTreeSet::new());
    for m in &f.mounts {
        let osts = m.space.iter().filter(|s| s.target.target.kind == TargetKind::Ost);
        let mut all: Vec<(u64, &str)> = osts
            .filter(|s| s.errno.is_none() && s.target.active && s.total > 0)
            .map(|s| (Numbers::of_space(s).percent(), s.target.label()))
            .collect();
        all.sort_unstable();
        if let [(least, emptiest), .., (most, fullest)] = all.as_slice()
            && most - least >= UNEVEN_POINTS
            && met.insert(*fullest)
        {
            let what = format!("is {most} % full, {emptiest} {least} %");
            out.push(Finding::warning(*fullest, what, format!("nacre rebalance {}", m.dir.display())));
        }
    }
    out
}

const SHARED_DISK: &str = "share one disk: they fail, fill and slow each other together";

fn disks(f: &Facts) -> Vec<Finding> {
    let mut out = Vec::new();
    let mut by_device: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for t in f.folders.iter().filter(|t| t.label != "MGS") {
        by_device.entry(t.device).or_default().push(&t.label);
    }
    for (device, labels) in &by_device {
        let all = labels.join(", ");
        let help = "df (on this host); give each target a disk of its own: nacre drain, mkfs.nacre --replace";
        if Some(*device) == f.system_device {
            let verb = if labels.len() > 1 { "lie" } else { "lies" };
            let what = format!("{verb} on the disk of the system (/), which fills and slows with them");
            out.push(Finding::warning(&all, what, help));
        } else if labels.len() > 1 {
            out.push(Finding::warning(&all, SHARED_DISK, help));
        }
    }
    // What is served here was said.
    let here: BTreeSet<&str> = f.folders.iter().map(|t| t.label.as_str()).collect();
    for m in &f.mounts {
        let mut shared: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
        for s in m.space.iter().filter(|s| s.disk != 0) {
            shared.entry(s.disk).or_default().insert(s.target.label());
        }
        for labels in shared.values().filter(|l| l.len() > 1 && !l.iter().all(|l| here.contains(l))) {
            let all = labels.iter().copied().collect::<Vec<_>>().join(", ");
            let help = format!("nacre domains {}", m.dir.display());
            out.push(Finding::warning(all, SHARED_DISK, help));
        }
    }
    out
}

/// A journal's pieces are of 64 MiB, and there is always a spare one.
const JOURNAL_WARNING_BYTES: u64 = 1 << 30;
const JOURNAL_ERROR_BYTES: u64 = 128 << 20;

fn journal(f: &Facts) -> Vec<Finding> {
    let low = f.folders.iter().filter(|t| t.available < JOURNAL_WARNING_BYTES);
    low.map(|t| {
        let short = t.available < JOURNAL_ERROR_BYTES;
        let severity = if short { Severity::Error } else { Severity::Warning };
        let what = format!("{} are left for its journal and table in {}", human(t.available, 1024), t.dir);
        Finding { severity, object: t.label.clone(), what, help: format!("df -h {}", t.dir) }
    })
    .collect()
}

/// Counters of errors: where, which, what is said of it, and what helps.
fn errors(f: &Facts) -> Vec<Finding> {
    let mut out = Vec::new();
    let count = |v: &str| v.split_whitespace().last().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    for (begin, who) in [("osc.", "this mount"), ("obdfilter.", "the server")] {
        for (device, value) in f.each(begin, ".checksum_errors").filter(|(_, v)| count(v) > 0) {
            let what =
                format!("{} checksums were wrong, as {who} counted: bytes change on the way", count(value));
            out.push(Finding::warning(device, what, "lst (the network alone); ethtool -S (on both hosts)"));
        }
    }
    for (device, value) in f.each("llite.", ".write_errors") {
        let total = value.lines().find_map(|l| l.trim().strip_prefix("total:")).map_or(0, count);
        if total > 0 {
            let what = format!("{total} writes failed after they had been answered");
            out.push(Finding::error(device, what, format!("lctl get_param llite.{device}.write_errors")));
        }
    }
    for (device, value) in f.each("osd-nacre.", ".disk_state").filter(|(_, v)| *v != "ok") {
        let what = format!("takes no changes since its disk failed: {value}");
        out.push(Finding::error(device, what, "dmesg; nacre fsck DIR once the disk is well; nacre replace"));
    }
    for (device, value) in f.each("osd-nacre.", ".disk_fault").filter(|(_, v)| *v != "none") {
        let what = format!("a drill makes its disk fail, or slow: {value}");
        out.push(Finding::warning(
            device,
            what,
            format!("lctl set_param osd-nacre.{device}.disk_fault=none"),
        ));
    }
    for (device, value) in f.each("obdfilter.", ".scrub") {
        let bad = value.lines().find_map(|l| l.strip_prefix("bad_blocks:")).map_or(0, count);
        if bad > 0 {
            let what = format!("{bad} blocks are not what was written");
            out.push(Finding::error(device, what, format!("nacre scrub {device}; nacre lost {device}")));
        }
    }
    for d in f.daemons.iter().filter(|d| d.health.starts_with("NOT HEALTHY")) {
        let why = d.health.lines().skip(1).collect::<Vec<_>>().join("; ");
        out.push(Finding::error(
            format!("nacred (pid {})", d.status.pid),
            format!("is not healthy: {why}"),
            "lctl get_param health_check",
        ));
    }
    for d in f.daemons.iter().filter(|d| d.status.started_again > 0) {
        let what = format!("ended and was started again {} times", d.status.started_again);
        out.push(Finding::warning(format!("nacred (pid {})", d.status.pid), what, "nacre status; its log"));
    }
    out
}

fn versions(f: &Facts) -> Vec<Finding> {
    let mut all: BTreeMap<String, &str> = BTreeMap::new();
    for m in &f.mounts {
        for t in &m.targets {
            if let Some((version, host)) = health::version_and_host(&t.server) {
                all.insert(format!("nacred on {host}"), version);
            }
        }
        all.insert(m.dir.display().to_string(), &m.version);
    }
    for d in &f.daemons {
        all.insert(format!("nacred (pid {})", d.status.pid), &d.version);
    }
    let others = all.into_iter().filter(|(_, v)| !v.is_empty() && *v != crate::VERSION);
    others
        .map(|(who, version)| {
            let what = format!("runs version {version}, this program is {}", crate::VERSION);
            let help = "restart the daemon, or mount again, with the program that is installed";
            Finding::warning(who, what, help)
        })
        .collect()
}

fn fencing(f: &Facts) -> Vec<Finding> {
    let without = f.ha.iter().filter(|h| !h.has_fencing);
    without
        .map(|h| {
            let what = "fences nobody: when a host does not answer, its targets stay down";
            Finding::error(&h.who, what, "nacre-ha(8): fences in the plan, or --fence of the controller")
        })
        .collect()
}

/// Others may do nothing with a target's files, and only pass through or list its folder.
fn modes(f: &Facts) -> Vec<Finding> {
    let weak = |mode: u32, is_dir: bool| mode & if is_dir { 0o022 } else { 0o077 } != 0;
    let all = f.files.iter().filter(|x| weak(x.mode, x.is_dir));
    all.map(|x| {
        let path = x.path.display();
        let (what, to) =
            if x.is_dir { ("others may change", "go-w") } else { ("others may read or change", "go=") };
        let what = format!("has mode {:04o}: {what} what the target stores", x.mode);
        Finding::error(path.to_string(), what, format!("chmod {to} {path}"))
    })
    .collect()
}

fn quota(f: &Facts) -> Vec<Finding> {
    let mut out = Vec::new();
    for (device, value) in f.each("osd-nacre.", ".quota_slave.enabled") {
        let of = [('u', "users"), ('g', "groups"), ('p', "projects")];
        let is_off = |c: &char| value == "none" || !value.contains(*c);
        let off: Vec<_> = of.iter().filter(|(c, _)| is_off(c)).map(|(_, n)| *n).collect();
        if !off.is_empty() {
            let what = format!("limits of {} are not enforced, if there are any", off.join(", "));
            let fs = device.rsplit_once('-').map_or(device, |(fs, _)| fs);
            let help = format!("lctl set_param -P osd-nacre.{fs}-*.quota_slave.enabled=ugp");
            out.push(Finding::warning(device, what, help));
        }
    }
    out
}

/// A consumer that has read nothing for so long, with records waiting, is said.
const IDLE_WARNING_S: u64 = 86_400;

fn changelog(f: &Facts) -> Vec<Finding> {
    let mut out = Vec::new();
    for (device, text) in f.each("mdd.", ".changelog_users") {
        let newest = text.lines().find_map(|l| l.strip_prefix("current_index:")?.trim().parse::<u64>().ok());
        for line in text.lines().filter(|l| l.starts_with("cl")) {
            let mut words = line.split_whitespace();
            let (Some(id), Some(at), Some(idle)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let idle = idle.trim_matches(['(', ')']).parse::<u64>().unwrap_or(0);
            let behind = newest.unwrap_or(0).saturating_sub(at.parse().unwrap_or(0));
            if behind > 0 && idle >= IDLE_WARNING_S {
                let days = health::ago(std::time::Duration::from_secs(idle));
                let what =
                    format!("consumer {id} has read nothing for {days}, {behind} records are kept for it");
                out.push(Finding::warning(
                    device,
                    what,
                    format!("lctl --device {device} changelog_deregister {id}"),
                ));
            }
        }
    }
    out
}
