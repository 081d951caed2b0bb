//! `snapshot_mount` and `snapshot_umount`: the servers of its targets each start one over their parts, and
//! all of these are a file system that nobody changes.

use super::record::{Here, MGS, Part, Record, Snapshot, named};
use crate::failure::{Failure, FirstError};
use crate::interrupt::Interrupt;
use crate::orders::{Place, strange};
use model::snapshot::{MountAt, PORTS_MAX, SnapshotAnswer, SnapshotOrder};
use model::{Errno, Nid};
use std::collections::BTreeSet;
use std::time::Duration;
use world::sys::Deadline;

const WHAT: &str = "cannot mount snapshot";
/// All have made themselves known by then.
const UP_PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Where it is to be served.
pub struct At {
    /// Of its MGS.
    pub nids: Vec<Nid>,
    /// The same on all hosts.
    pub port: u16,
}

/// One part of each server's, that of the MGS first.
fn servers<'a>(here: &Here, s: &'a Snapshot) -> Vec<&'a Part> {
    let mut seen = BTreeSet::new();
    let mut all: Vec<&Part> = s.parts.iter().filter(|p| seen.insert(p.server)).collect();
    let own = |p: &&Part| p.place.label == MGS || p.nids == here.nids;
    all.sort_by_key(|p| !own(p));
    all
}

impl At {
    /// What was said, or where the file system itself is, at a port that is free on all hosts.
    pub fn choose(here: &Here, s: &Snapshot, nid: Option<&str>, port: Option<&str>) -> Result<At, Failure> {
        let said: Option<Result<Vec<Nid>, _>> = nid.map(|n| n.split(',').map(str::parse::<Nid>).collect());
        let nids = match said {
            None => here.nids.clone(),
            Some(Ok(nids)) => nids,
            Some(Err(_)) => {
                let words = nid.unwrap_or_default();
                return Err(Failure::usage(format!("'{words}' is no address of this host: 10.0.0.1@tcp")));
            }
        };
        let port = match port {
            Some(p) => p
                .parse()
                .ok()
                .filter(|p| *p > 0)
                .ok_or_else(|| Failure::usage(format!("'{p}' is no port: 1 to 65535")))?,
            None => free_port(here, s, &nids)?,
        };
        assert!(port > 0 && !nids.is_empty(), "a server has an address");
        Ok(At { nids, port })
    }

    /// For whoever wants to look at it.
    pub fn command(&self, record: &Record) -> String {
        let nids = self.nids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        format!("mount -t nacre -o ro,port={} {nids}:/{} DIR", self.port, record.snapshot_fsname)
    }

    /// The order for a server: the first is the MGS's.
    fn order(&self, p: &Part, is_first: bool) -> SnapshotOrder {
        let nids = if is_first { self.nids.clone() } else { Vec::new() };
        let at = MountAt { mgs: self.nids.clone(), nids, port: self.port };
        SnapshotOrder::Mount { name: p.name.clone(), at }
    }
}

fn free_port(here: &Here, s: &Snapshot, nids: &[Nid]) -> Result<u16, Failure> {
    let first = here.port.saturating_add(1);
    let all = servers(here, s);
    let order = |n: usize| SnapshotOrder::Ports {
        first,
        count: PORTS_MAX,
        nids: if n == 0 { nids.to_vec() } else { Vec::new() },
    };
    let orders = all.iter().enumerate().map(|(n, p)| (&p.place, order(n))).collect();
    let mut free: Option<BTreeSet<u16>> = None;
    for (p, (said, _)) in all.iter().zip(here.site.ask_snapshots(WHAT, orders)?) {
        let SnapshotAnswer::Ports(ports) = said? else { return Err(strange(WHAT, &p.place)) };
        let ports: BTreeSet<u16> = ports.into_iter().collect();
        free = Some(free.map_or(ports.clone(), |f| &f & &ports));
    }
    free.and_then(|f| f.first().copied()).ok_or_else(|| {
        let why = format!(
            "none of the {PORTS_MAX} ports behind {} is free on all of its hosts: say one with --port",
            here.port
        );
        Failure::explained(WHAT, here.fsname(), Errno::EADDRINUSE, &why)
    })
}

/// Serves it.
pub fn mount(here: &Here, s: &Snapshot, at: &At, i: &Interrupt) -> Result<(), Failure> {
    let all = servers(here, s);
    let (first, others) = all.split_at(1);
    let start = |some: &[&Part], is_first: bool| {
        let orders = some.iter().map(|p| (&p.place, at.order(p, is_first))).collect();
        here.site.all(WHAT, orders, i, &mut |_| {})
    };
    // The others look for its MGS.
    let done = start(first, true).and_then(|_| start(others, false)).and_then(|_| all_up(here, s, i));
    if done.is_err() {
        let places: Vec<&Place> = all.iter().map(|p| &p.place).collect();
        let drop = places.iter().map(|p| (*p, SnapshotOrder::Drop)).collect();
        let _ = here.site.ask_snapshots(WHAT, drop);
        let end = all.iter().map(|p| (&p.place, SnapshotOrder::Umount { name: p.name.clone() })).collect();
        let _ = here.site.each(WHAT, end, &Interrupt::default(), &mut |_| {});
    }
    done
}

fn all_up(here: &Here, s: &Snapshot, i: &Interrupt) -> Result<(), Failure> {
    let end = Deadline::after(UP_PATIENCE);
    loop {
        let now = named(here, WHAT, &s.record.name)?;
        let down: Vec<&str> = now.parts.iter().filter(|p| !p.up).map(|p| p.place.label.as_str()).collect();
        if down.is_empty() {
            return Ok(());
        }
        if i.stopped() {
            return Err(Failure::op(WHAT, &s.record.name, Errno::EINTR));
        }
        if end.passed() {
            let why = format!(
                "the servers of {} did not come up in time: see /run/nacre/snapshot-{}-*.log there",
                down.join(", "),
                s.record.snapshot_fsname
            );
            return Err(Failure::explained(WHAT, &s.record.name, Errno::ETIMEDOUT, &why));
        }
        i.pause(LOOK_EVERY);
    }
}

/// Ends its servers, as far as their hosts answer.
pub fn umount(here: &Here, s: &Snapshot, i: &Interrupt) -> Result<FirstError, Failure> {
    let what = "cannot unmount snapshot";
    if s.mounted().is_none() {
        return Err(Failure::explained(what, &s.record.name, Errno::EINVAL, "it is not mounted"));
    }
    let mut seen = BTreeSet::new();
    let parts = s.parts.iter().filter(|p| p.pid.is_some_and(|pid| seen.insert((p.server, pid))));
    let orders = parts.map(|p| (&p.place, SnapshotOrder::Umount { name: p.name.clone() })).collect();
    let mut errors = FirstError::default();
    for said in here.site.each(what, orders, i, &mut |_| {})? {
        if let Err(e) = said {
            errors.report("error: snapshot", &e);
        }
    }
    Ok(errors)
}
