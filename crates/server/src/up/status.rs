//! `nacre status`.

use super::cluster::Cluster;
use super::probe::{self, Processes};
use super::watch::Book;
use super::{Result, UpError, dashboard};
use admin::command::maintenance;
use admin::local::{Daemon, DaemonStatus, DaemonTarget, FSTYPE};
use model::maintenance::Maintenance;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use world::sys::{self, mounts};

const MOUNT_PATIENCE: Duration = Duration::from_secs(2);

fn row(role: &str, pid: Option<u32>, targets: &[String], nid: &str, state: &str) -> Value {
    json!({"role": role, "pid": pid.unwrap_or(0), "targets": targets, "nid": nid, "state": state})
}

/// Consoles, with where they are reached.
fn consoles(all: Vec<dashboard::Seen>, beside_mgs: bool) -> Vec<Value> {
    let of = |s: dashboard::Seen| {
        let mut r = row("console", s.pid, &[], "", s.word());
        r["address"] = json!(s.at.to_string());
        r["reachable"] = json!(s.is_reachable);
        r["beside_mgs"] = json!(beside_mgs);
        r
    };
    all.into_iter().map(of).collect()
}

fn has_mgs(rows: &[Value]) -> bool {
    let is_mgs = |r: &Value| r["targets"].as_array().is_some_and(|t| t.iter().any(|t| t == "MGS"));
    rows.iter().any(is_mgs)
}

/// What targets wait for after a restart.
fn recovering(status: Option<&DaemonStatus>) -> Value {
    let of = |t: &DaemonTarget| {
        let p = t.recovery.as_ref()?;
        Some(json!({"target": t.label, "clients": p.clients, "connected": p.connected,
                    "completed": p.completed, "seconds_left": p.seconds_left}))
    };
    json!(status.iter().flat_map(|s| s.targets.iter().filter_map(of)).collect::<Vec<_>>())
}

fn of_cluster(c: &Cluster) -> Vec<Value> {
    let (mut out, now, book) = (Vec::new(), Processes::look(), Book::of(&c.dir));
    for n in c.nodes() {
        let s = probe::server(&n, &now);
        let mut r = row(n.role, s.pid, &n.labels, &n.nid(), s.word());
        r["dirs"] = json!(n.dirs);
        r["recovery"] = recovering(s.status.as_ref());
        // Its own, and those of whoever looks after it.
        let told = book.told.get(&n.labels[0]).cloned().unwrap_or_default();
        r["started_again"] = json!(s.status.as_ref().map_or(0, |s| s.started_again) + told.started_again);
        if s.pid.is_none() {
            r["ended"] = json!(told.ended);
        }
        out.push(r);
    }
    out.extend(consoles(dashboard::of_cluster(c).into_iter().collect(), true));
    let source = c.source();
    for m in probe::mounts_of(c) {
        let state = probe::mount_state(&source, &m, MOUNT_PATIENCE);
        let mut r = row("client", now.client(&source, &m), &[m.display().to_string()], "", state.word());
        let told = book.told.get(&m.display().to_string()).map_or(0, |t| t.started_again);
        r["started_again"] = json!(told);
        r["mount"] = json!(m);
        r["source"] = json!(source);
        out.push(r);
    }
    out
}

/// Servers by their control sockets, clients by /proc/mounts.
fn of_host() -> Vec<Value> {
    let (mut out, now) = (Vec::new(), Processes::look());
    for mut s in Daemon::statuses() {
        // Taken out of their file system, and served no more.
        s.targets.retain(|t| t.state != "removed");
        let labels: Vec<String> = s.targets.iter().map(|t| t.label.clone()).collect();
        let has = |f: &dyn Fn(&str) -> bool| labels.iter().any(|l| f(l));
        let mut roles = Vec::new();
        if has(&|l| l == "MGS") {
            roles.push("mgs");
        }
        if has(&|l| l.contains("-MDT")) {
            roles.push("mds");
        }
        if has(&|l| l.contains("-OST")) {
            roles.push("oss");
        }
        let state = s.targets.iter().map(|t| t.state.as_str()).find(|s| *s != "up").unwrap_or("up");
        let mut r = row(&roles.join("+"), Some(s.pid), &labels, &s.nids.join(","), state);
        r["dirs"] = json!(s.targets.iter().map(|t| &t.dir).collect::<Vec<_>>());
        r["recovery"] = recovering(Some(&s));
        r["started_again"] = json!(s.started_again);
        out.push(r);
    }
    let beside_mgs = has_mgs(&out);
    out.extend(consoles(dashboard::of_host(), beside_mgs));
    for m in mounts::list().unwrap_or_default().into_iter().filter(|m| m.fstype == FSTYPE) {
        let state = probe::mount_state(&m.source, &m.dir, MOUNT_PATIENCE);
        let pid = now.client(&m.source, &m.dir);
        let mut r = row("client", pid, &[m.dir.display().to_string()], "", state.word());
        r["mount"] = json!(m.dir);
        r["source"] = json!(m.source);
        out.push(r);
    }
    out
}

fn table(rows: &[Value]) {
    println!("{:<8} {:>8} {:<9} {:<18} TARGETS", "ROLE", "PID", "STATE", "NID");
    let text = |v: &Value| v.as_str().unwrap_or("").to_string();
    for r in rows {
        let pid = match r["pid"].as_u64() {
            Some(0) | None => "-".to_string(),
            Some(p) => p.to_string(),
        };
        let mut targets: Vec<String> = r["targets"].as_array().into_iter().flatten().map(text).collect();
        targets.extend(r["address"].as_str().map(|at| format!("http://{at}/")));
        let nid = if text(&r["nid"]).is_empty() { "-".to_string() } else { text(&r["nid"]) };
        println!("{:<8} {pid:>8} {:<9} {nid:<18} {}", text(&r["role"]), text(&r["state"]), targets.join(" "));
        if let Some(n) = r["started_again"].as_u64().filter(|n| *n > 0) {
            println!("{:<18} started again {n} times", "");
        }
        if let Some(how) = r["ended"].as_str() {
            println!("{:<18} ended: {how}", "");
        }
        for t in r["recovery"].as_array().into_iter().flatten() {
            println!(
                "{:<18} {} recovers: {} of {} clients are done, {} connected; the others are waited for {} s",
                "",
                text(&t["target"]),
                t["completed"],
                t["clients"],
                t["connected"],
                t["seconds_left"]
            );
        }
    }
}

/// What servers and mounts that answer were told of.
fn maintenances(rows: &[Value]) -> Vec<Maintenance> {
    let up = rows.iter().filter(|r| r["state"] == "up").filter_map(|r| r["mount"].as_str());
    let told = sys::at_once(&up.collect::<Vec<_>>(), |dir| maintenance::of_mount(Path::new(dir)));
    let of_mounts = told.into_iter().flatten().map(|(m, _)| m.text());
    let of_daemons = maintenance::of_daemons().into_iter().map(|m| m.text());
    maintenance::in_force(of_daemons.chain(of_mounts))
}

pub fn status(dir: Option<&Path>, as_json: bool) -> Result<i32> {
    let (head, rows) = match dir {
        Some(d) => {
            let c = Cluster::require(d)?;
            (
                json!({"fsname": c.fsname, "dir": c.dir, "source": c.source(), "mounts": c.mounts,
                       "watch": Processes::look().watcher(&c.dir).unwrap_or(0)}),
                of_cluster(&c),
            )
        }
        None => (json!({}), of_host()),
    };
    let mine = |m: &Maintenance| m.is_about(head["fsname"].as_str().unwrap_or(&m.fsname));
    let maintenances: Vec<Maintenance> = maintenances(&rows).into_iter().filter(mine).collect();
    if as_json {
        let mut v = head.clone();
        let one = |m: &Maintenance| json!({"fsname": m.fsname, "mode": m.mode.word(), "reason": m.reason, "since": m.since});
        v["maintenance"] = json!(maintenances.iter().map(one).collect::<Vec<_>>());
        v["processes"] = json!(rows);
        let text = serde_json::to_string_pretty(&v).map_err(|e| UpError::new(e.to_string()))?;
        println!("{text}");
    } else {
        table(&rows);
        maintenances.iter().for_each(|m| println!("{} is {}; {}", m.fsname, m.sentence(), m.consequence()));
        if has_mgs(&rows) && !rows.iter().any(|r| r["role"] == "console") {
            println!("no console runs beside the MGS (nacre dashboard)");
        }
        match head["watch"].as_u64() {
            Some(0) => println!("not watched: who is killed stays dead until 'nacre up'"),
            Some(pid) => println!("watched by pid {pid}: who is killed is started again"),
            None => {}
        }
    }
    Ok(0)
}
