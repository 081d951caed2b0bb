//! What may be wrong with hosts before anything is done to them.

use super::facts::{Facts, Folder};
use super::file::{Cluster, Host, PlannedTarget};
use super::gather::Found;
use model::HostNid;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Clocks that differ by more are warned of, or refused: as the doctor has it.
const SKEW_WARNING_US: u64 = 1_000_000;
const SKEW_ERROR_US: u64 = 30_000_000;
/// What a target needs to begin with, and what it should have.
const ROOM_LEAST_BYTES: u64 = 128 << 20;
const ROOM_WANTED_BYTES: u64 = 1 << 30;
/// Addresses that one host is asked to reach.
const REACH_MAX: usize = 256;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing is done until it is mended.
    Error,
    Warning,
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Problem {
    pub severity: Severity,
    pub host: String,
    pub what: String,
    /// What to do.
    pub help: String,
}

/// Collects them.
#[derive(Default)]
pub struct ProblemList(pub Vec<Problem>);

impl ProblemList {
    fn add(&mut self, severity: Severity, h: &Host, what: String, help: impl Into<String>) {
        let place = h.location.as_ref().map_or(String::new(), |l| format!(" ({l})"));
        self.0.push(Problem {
            severity,
            host: h.name.clone(),
            what: format!("{what}{place}"),
            help: help.into(),
        });
    }

    pub fn error(&mut self, h: &Host, what: impl Into<String>, help: impl Into<String>) {
        self.add(Severity::Error, h, what.into(), help);
    }

    pub fn warning(&mut self, h: &Host, what: impl Into<String>, help: impl Into<String>) {
        self.add(Severity::Warning, h, what.into(), help);
    }
}

fn nets(h: &Host) -> BTreeSet<u16> {
    h.nids.iter().filter_map(|n| n.parse::<HostNid>().ok()).map(|n| n.net()).collect()
}

/// Addresses that a host must reach: those of servers, on the networks that both are on; the MGS's first.
pub fn to_reach(c: &Cluster, h: &Host) -> Vec<String> {
    let own = nets(h);
    let serves = |o: &&Host| o.name != h.name && c.may_serve(&o.name).next().is_some();
    let mut servers: Vec<&Host> = c.hosts.iter().filter(serves).collect();
    servers.sort_by_key(|o| !c.mgs().hosts.contains(&o.name));
    let nids = servers.into_iter().flat_map(|o| &o.nids).filter_map(|n| n.parse::<HostNid>().ok());
    let shared = nids.filter(|n| own.contains(&n.net())).filter_map(|n| n.address());
    shared.take(REACH_MAX).map(|n| SocketAddr::new(n.addr, c.port).to_string()).collect()
}

fn host_itself(p: &mut ProblemList, h: &Host, f: &Facts, ahead_us: Option<i64>) {
    if f.version != crate::VERSION {
        let what = format!("Nacre {} there, {} here", f.version, crate::VERSION);
        p.warning(h, what, "install the same version on all hosts (docs/manual: Upgrade)");
    }
    if f.euid != 0 {
        let what = format!("commands run as user {} there", f.euid);
        p.error(h, what, format!("have them run as root: ssh = \"root@{}\"", h.name));
    }
    let off = ahead_us.unwrap_or(0);
    let words = || {
        let way = if off > 0 { "ahead of" } else { "behind" };
        format!("its clock is {:.1} s {way} this host's", off.unsigned_abs() as f64 / 1e6)
    };
    match off.unsigned_abs() {
        n if n >= SKEW_ERROR_US => p.error(h, words(), "run a time service on all hosts: chronyc tracking"),
        n if n >= SKEW_WARNING_US => {
            p.warning(h, words(), "run a time service on all hosts: chronyc tracking")
        }
        _ => {}
    }
    for n in h.nids.iter().filter_map(|n| n.parse::<HostNid>().ok()) {
        let Some(nid) = n.address() else { continue };
        // Every host has all addresses of its loopback.
        if !nid.addr.is_loopback() && !f.interfaces.iter().any(|i| i.address == nid.addr) {
            let all: Vec<String> = f.interfaces.iter().map(|i| format!("{} {}", i.name, i.address)).collect();
            let what = format!("no interface that is up has the address {}", nid.addr);
            p.error(h, what, format!("it has {}: set nids, or the address", all.join(", ")));
        }
    }
    for (at, why) in &f.reach {
        if let Some(why) = why {
            let whose = parts(at);
            let help = format!(
                "look at the cable, the network and the firewall of port {}: ping {}",
                whose.1, whose.0
            );
            p.error(h, format!("{at} is not reached: {why}"), help);
        }
    }
}

/// Address and port of what was asked for.
fn parts(at: &str) -> (String, String) {
    at.parse::<SocketAddr>().map_or((at.into(), "?".into()), |a| (a.ip().to_string(), a.port().to_string()))
}

/// What packets may have: as the file says, or alike on all hosts of a network.
fn mtus(p: &mut ProblemList, c: &Cluster, found: &Found) {
    let mut of_net: BTreeMap<u16, Vec<(&Host, u32)>> = BTreeMap::new();
    for h in &c.hosts {
        let Some(f) = found.facts(&h.name) else { continue };
        for nid in h.nids.iter().filter_map(|n| n.parse::<HostNid>().ok()?.address()) {
            let mtu = f.interfaces.iter().find(|i| i.address == nid.addr).and_then(|i| i.mtu);
            of_net.entry(nid.net).or_default().extend(mtu.map(|m| (h, m)));
        }
    }
    for (net, all) in of_net {
        let name = model::nid::net_name(net);
        let wanted = c.networks.get(&name).and_then(|n| n.mtu);
        let most = all.iter().map(|(_, m)| *m).max().unwrap_or(0);
        for (h, mtu) in all {
            match wanted {
                Some(w) if w != mtu => {
                    let what =
                        format!("its interface on {name} has an MTU of {mtu}, and [network.{name}] says {w}");
                    p.error(h, what, format!("ip link set dev INTERFACE mtu {w}, and in its configuration"));
                }
                None if mtu != most => {
                    let what = format!("its interface on {name} has an MTU of {mtu}, others have {most}");
                    p.warning(h, what, "large packets may vanish on the way: make them alike");
                }
                _ => {}
            }
        }
    }
}

fn disk(p: &mut ProblemList, h: &Host, t: &PlannedTarget, f: &Facts) {
    let Some(d) = &t.disk else { return };
    let Some(fact) = f.devices.get(&d.device) else { return };
    if !fact.is_there {
        p.error(
            h,
            format!("{}: there is no block device {}", t.label, d.device),
            "lsblk there: is the disk in?",
        );
        return;
    }
    match &fact.mounted_at {
        Some(at) if *at != d.mount => {
            let what = format!("{}: {} is mounted at {at}, not at {}", t.label, d.device, d.mount);
            p.error(h, what, format!("umount {at}, or name another device"));
        }
        None if !fact.holds.is_empty() && fact.holds != d.fstype => {
            let what = format!("{}: {} holds '{}', and is to be {}", t.label, d.device, fact.holds, d.fstype);
            p.error(h, what, format!("if nothing on it is needed: wipefs -a {}", d.device));
        }
        _ => {}
    }
}

/// Whether what a folder holds is the target.
fn is_it(c: &Cluster, t: &PlannedTarget, l: &super::facts::Label) -> bool {
    let mgt = t.id.kind == model::TargetKind::Mgt;
    l.label == t.label && (mgt || l.fsname == c.fsname)
}

fn folder(p: &mut ProblemList, c: &Cluster, h: &Host, t: &PlannedTarget, f: &Facts) {
    let Some(fact) = f.folders.get(&t.dir) else { return };
    let dir = &t.dir;
    match &fact.holds {
        Folder::Foreign(name) => {
            let what = format!("{}: {dir} holds '{name}', which is no target's", t.label);
            p.error(h, what, "name a new folder: nothing of others is touched");
        }
        Folder::Target(l) if !is_it(c, t, l) => {
            let what = format!("{}: {dir} holds {}", t.label, l.label);
            let help = "name another folder, or remove that target by hand if nobody needs it";
            p.error(h, what, help);
        }
        Folder::Target(l) if t.id.kind == model::TargetKind::Mdt && l.with_mgt != t.with_mgt => {
            let what = format!(
                "{}: the target in {dir} was made {} the MGT",
                t.label,
                if l.with_mgt { "with" } else { "without" }
            );
            p.error(h, what, "add or leave out [mgs], as it was made");
        }
        Folder::Unreadable(why) => {
            p.error(h, format!("{}: {dir} cannot be used: {why}", t.label), "look at the disk: dmesg there");
        }
        Folder::Missing | Folder::Empty | Folder::HalfMade if t.home() == h.name => {
            let n = fact.available_bytes;
            let what = || format!("{}: {} MiB are free where {dir} is to lie", t.label, n >> 20);
            if n < ROOM_LEAST_BYTES {
                p.error(h, what(), "free some, or name another folder");
            } else if n < ROOM_WANTED_BYTES {
                p.warning(h, what(), "that is little for a target");
            }
        }
        _ => {}
    }
}

/// The second server of a target must see what the first one has.
fn shared(p: &mut ProblemList, c: &Cluster, found: &Found) {
    for t in c.targets.iter().filter(|t| t.hosts.len() > 1 && t.disk.is_none()) {
        let Some(Folder::Target(mine)) = found.facts(t.home()).and_then(|f| f.folder(&t.dir)) else {
            continue;
        };
        for other in &t.hosts[1..] {
            let theirs = found.facts(other).and_then(|f| f.folder(&t.dir));
            let is_same = matches!(theirs, Some(Folder::Target(l)) if l.uuid == mine.uuid);
            if theirs.is_some() && !is_same {
                let what = format!("{}: {} is not what {} has there", t.label, t.dir, t.home());
                p.error(c.host(other), what, "both must reach the same storage at the same path");
            }
        }
    }
}

/// A disk of a pair is mounted on one of the two, or it is lost.
fn mounted_twice(p: &mut ProblemList, c: &Cluster, found: &Found) {
    for t in c.targets.iter().filter(|t| t.hosts.len() > 1) {
        let Some(d) = &t.disk else { continue };
        let has = |h: &&String| {
            let fact = found.facts(h).and_then(|f| f.devices.get(&d.device));
            fact.is_some_and(|x| x.mounted_at.is_some())
        };
        if let [first, second, ..] = t.hosts.iter().filter(has).collect::<Vec<_>>()[..] {
            let what = format!("{}: {} is mounted here and on {first}", t.label, d.device);
            p.error(c.host(second), what, format!("umount {} here at once: it destroys the disk", d.mount));
        }
    }
}

/// Everything that can be told from what hosts said.
pub fn all(c: &Cluster, found: &Found) -> ProblemList {
    let mut p = ProblemList::default();
    for h in &c.hosts {
        match found.0.get(&h.name) {
            Some(Ok(a)) => {
                host_itself(&mut p, h, &a.facts, a.ahead_us);
                for t in c.may_serve(&h.name) {
                    disk(&mut p, h, t, &a.facts);
                    folder(&mut p, c, h, t, &a.facts);
                }
            }
            Some(Err(why)) => {
                let help = format!("try it: {}", super::host::typed(h, "nacre deploy facts"));
                p.error(h, format!("it cannot be asked: {why}"), help);
            }
            None => {}
        }
    }
    mtus(&mut p, c, found);
    shared(&mut p, c, found);
    mounted_twice(&mut p, c, found);
    p
}
