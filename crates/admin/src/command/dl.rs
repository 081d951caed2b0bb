//! `lctl dl`: the devices of this host: targets it serves, connections its mounts have.

use crate::command::check::import_name;
use crate::command::osts::targets;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag};
use crate::local::{self, Daemon, DaemonReply, DaemonRequest};
use crate::{output, say};
use model::{Errno, TargetKind};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;

pub const USAGE: &str = "[-t] [-y] [--json]";

struct Device {
    status: &'static str,
    kind: &'static str,
    name: String,
    uuid: String,
    refcount: usize,
    nid: Option<String>,
}

fn of_daemons() -> Vec<Device> {
    let mut out = Vec::new();
    for s in Daemon::statuses() {
        for t in s.targets {
            let kind = match t.label.rsplit_once('-') {
                None => "mgs",
                Some((_, l)) if l.starts_with("MDT") => "mdt",
                Some(_) => "obdfilter",
            };
            let status = match t.state.as_str() {
                "up" => "UP",
                "stopped" => "ST",
                _ => "AT",
            };
            let uuid = format!("{}_UUID", t.label);
            out.push(Device { status, kind, name: t.label, uuid, refcount: t.clients + 1, nid: None });
        }
    }
    out
}

/// Connections of the metadata targets here with OSTs.
fn of_metadata_targets() -> Vec<Device> {
    let all = Daemon::all();
    let answers = Daemon::ask_all(&all, &DaemonRequest::GetParam { pattern: "osp.*.*".into() });
    let mut found: BTreeMap<String, (bool, String)> = BTreeMap::new();
    for (name, value) in answers.into_iter().flatten().flat_map(|r| match r {
        DaemonReply::Params(values) => values,
        _ => Vec::new(),
    }) {
        let Some((device, what)) = name.strip_prefix("osp.").and_then(|n| n.rsplit_once('.')) else {
            continue;
        };
        let entry = found.entry(device.to_string()).or_default();
        match what {
            "active" => entry.0 = value.trim() != "0",
            "state" => entry.1 = value.trim().to_string(),
            _ => {}
        }
    }
    let one = |(name, (active, state)): (String, (bool, String))| {
        let status = status(active, &state);
        let uuid = name.rsplit_once("-osc-").map_or_else(String::new, |(_, mdt)| {
            let fs = name.split_once("-OST").map_or("", |(fs, _)| fs);
            format!("{fs}-{mdt}-mdtlov_UUID")
        });
        Device { status, kind: "osp", name, uuid, refcount: 1, nid: None }
    };
    found.into_iter().map(one).collect()
}

fn status(active: bool, state: &str) -> &'static str {
    match (active, state) {
        (false, _) => "IN",
        (true, "FULL" | "IDLE") => "UP",
        _ => "--",
    }
}

fn of_mounts() -> Result<Vec<Device>, Failure> {
    let mut out = Vec::new();
    for m in local::mounts(true) {
        let (fs, inst) = (&m.name.fsname, &m.name.instance);
        for (kind, name) in [("lov", format!("{fs}-clilov-{inst}")), ("lmv", format!("{fs}-clilmv-{inst}"))] {
            let uuid = format!("{name}_UUID");
            out.push(Device { status: "UP", kind, name, uuid, refcount: 1, nid: None });
        }
        for t in targets(&m.dir)? {
            let kind = match t.target.kind {
                TargetKind::Mgt => "mgc",
                TargetKind::Mdt => "mdc",
                TargetKind::Ost => "osc",
            };
            let status = status(t.active, &t.state);
            let name = import_name(fs, &t, inst);
            out.push(Device { status, kind, name, uuid: t.uuid, refcount: 1, nid: Some(t.nid) });
        }
    }
    Ok(out)
}

fn devices() -> Result<Vec<Device>, Failure> {
    let mut all = of_daemons();
    all.extend(of_metadata_targets());
    all.extend(of_mounts()?);
    Ok(all)
}

/// The device that a command of `lctl` is about: its name, or its number in `lctl dl`. `ENODEV`: there is
/// none of this number.
pub fn named(args: &[OsString]) -> Result<String, Failure> {
    let name = local::device(args)?;
    let Ok(number) = name.parse::<usize>() else { return Ok(name) };
    let device = devices()?.into_iter().nth(number).map(|d| d.name);
    device.ok_or_else(|| Failure::op("lctl dl shows no device", &name, Errno::ENODEV))
}

fn line(i: usize, d: &Device) -> String {
    format!("{i:>3} {} {} {} {} {}", d.status, d.kind, d.name, d.uuid, d.refcount)
}

/// What `lctl dl` prints, as far as mounts answer.
pub fn table() -> String {
    let mut all = of_daemons();
    all.extend(of_metadata_targets());
    all.extend(of_mounts().unwrap_or_default());
    all.iter().enumerate().map(|(i, d)| line(i, d)).collect::<Vec<_>>().join("\n")
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[flag('t', "target"), flag('y', "yaml"), flag('\0', "json")])?;
    let all = devices()?;
    if p.has("json") {
        let row = |(i, d): (usize, &Device)| {
            json!({"index": i, "status": d.status, "type": d.kind, "name": d.name, "uuid": d.uuid,
                   "refcount": d.refcount, "nid": d.nid})
        };
        output::json(&json!(all.iter().enumerate().map(row).collect::<Vec<_>>()));
        return Ok(FirstError::default());
    }
    if p.has("yaml") {
        say!("devices:");
    }
    for (i, d) in all.iter().enumerate() {
        if p.has("yaml") {
            say!(
                "- index: {i}\n  status: {}\n  type: {}\n  name: {}\n  uuid: {}\n  refcount: {}",
                d.status,
                d.kind,
                d.name,
                d.uuid,
                d.refcount
            );
            continue;
        }
        let nid = d.nid.as_ref().filter(|_| p.has("target")).map_or(String::new(), |n| format!(" {n}"));
        say!("{}{nid}", line(i, d));
    }
    Ok(FirstError::default())
}
