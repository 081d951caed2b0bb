//! `nacre deploy status`: the file compared with what runs.

use super::checks::Severity;
use super::facts::{Facts, Folder};
use super::file::{Cluster, PlannedTarget};
use super::gather::Found;
use super::host::Real;
use super::steps::{self, Wishes};
use super::{EXIT_WRONG, cluster, found, no_host};
use crate::failure::Failure;
use crate::getopt::Parsed;
use crate::{output, say};
use serde::Serialize;
use serde_json::json;

/// How something differs from the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The file has it.
    Missing,
    /// The file has it not.
    Extra,
    Differs,
    /// The host does not say.
    Unknown,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Missing => "missing",
            Kind::Extra => "extra",
            Kind::Differs => "differs",
            Kind::Unknown => "unknown",
        }
    }
}

/// One difference.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Difference {
    pub kind: Kind,
    pub host: String,
    pub what: String,
    /// What brings it together.
    pub help: String,
}

/// A target or a mount of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    pub name: String,
    pub host: String,
    pub place: String,
    /// `up`, `recovering`, ...; `down`: nobody has it; `unknown`: its host does not say.
    pub state: String,
}

/// All of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    pub targets: Vec<Row>,
    pub mounts: Vec<Row>,
    pub differences: Vec<Difference>,
}

impl Status {
    fn add(&mut self, kind: Kind, host: &str, what: String, help: &str) {
        self.differences.push(Difference { kind, host: host.to_string(), what, help: help.to_string() });
    }
}

fn target(s: &mut Status, c: &Cluster, found: &Found, t: &PlannedTarget) {
    for (label, dir) in t.served_as() {
        let silent = t.hosts.iter().any(|h| found.facts(h).is_none());
        let (host, state) = match found.server_of(c, &label, &dir) {
            Some((h, state)) => (h.to_string(), state.to_string()),
            None if silent => (t.home().to_string(), "unknown".into()),
            None => (t.home().to_string(), "down".into()),
        };
        match state.as_str() {
            "down" => s.add(Kind::Missing, &host, format!("{label} is not served"), "nacre deploy apply"),
            "stopped" | "read-only" => {
                s.add(
                    Kind::Differs,
                    &host,
                    format!("{label} is {state}"),
                    "see the server's log, nacre doctor",
                );
            }
            _ => {}
        }
        if host != t.home() {
            let help = format!("give it back to {}: umount its mount point, or nacre ha giveback", t.home());
            s.add(Kind::Differs, &host, format!("{label} is not at its home {}", t.home()), &help);
        }
        s.targets.push(Row { name: label, host, place: dir, state });
    }
}

/// Words of a made target that are not as the file has them. What is made stays: nobody changes it unasked.
fn made_otherwise(s: &mut Status, c: &Cluster, found: &Found, t: &PlannedTarget) {
    let Some(Folder::Target(l)) = found.facts(t.home()).and_then(|f| f.folder(&t.dir)) else { return };
    let split = |text: &str| text.split([',', ':']).map(String::from).collect::<Vec<_>>();
    let help = |o: &str| format!("stop its server, tunefs.nacre --{o} {}, and start it", t.dir);
    let mgs = split(&c.mgs_nids());
    if !t.is_mgs() && l.mgs_nids != mgs {
        let what = format!("{} looks for the MGS at {}", t.label, l.mgs_nids.join(":"));
        s.add(Kind::Differs, t.home(), what, &help(&format!("mgsnode={}", c.mgs_nids())));
    }
    let service = if t.hosts.len() > 1 { split(&c.nids_of(&t.hosts)) } else { Vec::new() };
    if l.service_nids != service {
        let what = format!("{} has the service nodes '{}'", t.label, l.service_nids.join(":"));
        s.add(Kind::Differs, t.home(), what, &help(&format!("servicenode={}", service.join(":"))));
    }
    let domain = t.domain.clone().or(c.host(t.home()).domain.clone()).unwrap_or_default();
    if t.id.kind != model::TargetKind::Mgt && l.domain != domain {
        let what = format!("{} stands in '{}', in the file in '{domain}'", t.label, l.domain);
        s.add(Kind::Differs, t.home(), what, &help(&format!("domain={domain}")));
    }
}

fn extra_of_host(s: &mut Status, c: &Cluster, host: &str, f: &Facts) {
    let ours = format!("{}-", c.fsname);
    let planned = |label: &str, dir: &str| {
        c.targets.iter().any(|t| t.served_as().iter().any(|(l, d)| l == label && d == dir))
    };
    for t in f.daemons.iter().flat_map(|d| &d.targets) {
        if t.label.starts_with(&ours)
            && !t.is_of_snapshot()
            && t.state != "removed"
            && !planned(&t.label, &t.dir)
        {
            let what = format!("{} is served from {}", t.label, t.dir);
            s.add(Kind::Extra, host, what, "add it to the file, or take it out: nacre remove");
        }
    }
    let end = format!(":/{}", c.fsname);
    for m in &f.mounts {
        let is_ours = m.source.ends_with(&end) || m.source.contains(&format!("{end}/"));
        if is_ours && !c.mounts_of(host).any(|p| p.dir == m.dir) {
            s.add(
                Kind::Extra,
                host,
                format!("{} is mounted at {}", m.source, m.dir),
                "add it to the file, or umount it",
            );
        }
    }
}

fn mounts(s: &mut Status, c: &Cluster, found: &Found) {
    for (m, host) in c.mounts.iter().flat_map(|m| m.hosts.iter().map(move |h| (m, h))) {
        let state = match found.facts(host) {
            None => "unknown",
            Some(f) => f.mounts.iter().find(|x| x.dir == m.dir).map_or("down", |x| x.state.as_str()),
        };
        match state {
            "down" => s.add(Kind::Missing, host, format!("{} is not mounted", m.dir), "nacre deploy apply"),
            "dead" => {
                s.add(Kind::Differs, host, format!("the daemon of {} died", m.dir), "nacre deploy apply")
            }
            "waiting" => {
                s.add(Kind::Differs, host, format!("{} waits for its servers", m.dir), "nacre doctor there");
            }
            _ => {}
        }
        let (name, state) = (c.source(m), state.to_string());
        s.mounts.push(Row { name, host: host.clone(), place: m.dir.clone(), state });
    }
}

/// What the MGS keeps beyond the file.
fn configuration(s: &mut Status, c: &Cluster, found: &Found) {
    let (Some(known), mgs) = (found.known(c), c.mgs().home()) else { return };
    for t in &known.targets {
        if !c.targets.iter().any(|p| p.label == t.target) {
            let what = format!("the MGS knows {}, at {}", t.target, t.nids.join(","));
            s.add(Kind::Extra, mgs, what, "add it to the file, or take it out: nacre remove");
        } else if !t.active {
            let help = format!("lctl set_param -P osc.{}*.active=1", t.target);
            s.add(Kind::Differs, mgs, format!("{} is deactivated", t.target), &help);
        }
    }
    for name in known.pools.keys().filter(|n| !c.pools.contains_key(*n)) {
        let what = format!("the pool {}.{name} is there", c.fsname);
        s.add(Kind::Extra, mgs, what, "add it to the file, or: lctl pool_destroy");
    }
}

/// Compares.
///
/// # Errors
/// None of its own: those of [`steps::plan`].
pub fn compare(c: &Cluster, found: &Found) -> Result<Status, String> {
    let mut s = Status::default();
    c.targets.iter().for_each(|t| target(&mut s, c, found, t));
    mounts(&mut s, c, found);
    for h in &c.hosts {
        if let Some(f) = found.facts(&h.name) {
            extra_of_host(&mut s, c, &h.name, f);
        }
    }
    c.targets.iter().for_each(|t| made_otherwise(&mut s, c, found, t));
    configuration(&mut s, c, found);
    let plan = steps::plan(c, found, &Wishes::default())?;
    for p in &plan.problems {
        let silent = found.facts(&p.host).is_none();
        let kind = if silent { Kind::Unknown } else { Kind::Differs };
        // A warning is no difference from the file.
        if p.severity == Severity::Error {
            s.add(kind, &p.host, p.what.clone(), &p.help);
        }
    }
    // What is not served or mounted was said.
    use steps::Stage::{Disks, Mdts, Mgs, Mounts, Osts};
    for x in plan.steps.iter().filter(|x| !matches!(x.stage, Mgs | Mdts | Osts | Mounts | Disks)) {
        let kind = if x.stage == steps::Stage::Format { Kind::Missing } else { Kind::Differs };
        s.add(kind, &x.host, format!("to be done: {}", x.what), "nacre deploy apply");
    }
    Ok(s)
}

fn people(c: &Cluster, found: &Found, s: &Status) {
    say!("{:<12} {:<10} {:<24} {:<10} {}", "HOST", "NACRE", "KERNEL", "LOCATION", "FIRMWARE");
    for h in &c.hosts {
        let location = h.location.as_deref().unwrap_or("-");
        match found.facts(&h.name) {
            Some(f) => {
                say!("{:<12} {:<10} {:<24} {location:<10} {}", h.name, f.version, f.kernel, f.firmware)
            }
            None => say!("{:<12} does not answer", h.name),
        }
    }
    say!("\n{:<18} {:<12} {:<11} FOLDER", "TARGET", "HOST", "STATE");
    s.targets.iter().for_each(|r| say!("{:<18} {:<12} {:<11} {}", r.name, r.host, r.state, r.place));
    if !s.mounts.is_empty() {
        say!("\n{:<18} {:<12} {:<11} SOURCE", "MOUNT", "HOST", "STATE");
        s.mounts.iter().for_each(|r| say!("{:<18} {:<12} {:<11} {}", r.place, r.host, r.state, r.name));
    }
    say!("");
    for d in &s.differences {
        say!("{}: {}: {}\n    {}", d.kind.word(), d.host, d.what, d.help);
    }
    match s.differences.len() {
        0 => say!("{} is as the file says", c.fsname),
        1 => say!("1 difference"),
        n => say!("{n} differences"),
    }
}

/// The verb.
pub fn run(p: &Parsed) -> Result<i32, Failure> {
    let c = cluster(p)?;
    let found = found(p, &c, &Real)?;
    let s = compare(&c, &found).map_err(no_host)?;
    if p.has("json") {
        let host = |h: &super::file::Host| {
            let f = found.facts(&h.name);
            json!({"name": h.name, "location": h.location, "answers": f.is_some(), "version": f.map(|f| &f.version),
                   "kernel": f.map(|f| &f.kernel), "firmware": f.map(|f| &f.firmware)})
        };
        let hosts: Vec<_> = c.hosts.iter().map(host).collect();
        output::json(
            &json!({"fsname": c.fsname, "ok": s.differences.is_empty(), "hosts": hosts, "targets": s.targets,
                             "mounts": s.mounts, "differences": s.differences}),
        );
    } else {
        people(&c, &found, &s);
    }
    Ok(if s.differences.is_empty() { 0 } else { EXIT_WRONG })
}
