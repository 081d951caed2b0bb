//! `lctl set_param`: on this host until restart, or for the whole file system with `-P` on the MGS node.

use crate::command::dl;
use crate::command::get_param::{dotted, matching, missing};
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag};
use crate::local::{self, Daemon, DaemonReply, DaemonRequest};
use crate::say;
use client::control::{Reply, Request};
use model::Errno;
use std::ffi::OsString;
use world::sys;

pub const USAGE: &str = "[-n] [-P|--perm [-d|--delete]] NAME=VALUE...";
pub const USAGE_CONF: &str =
    "[-d] {FSNAME.llite|FSNAME-OST0000.{ost|osc}|FSNAME-MDT0000.{mdt|mdc|lod}}.NAME=VALUE...";
pub const USAGE_ACTIVATE: &str = "DEVICE   (or: lctl --device DEVICE activate)";

/// Whether it was set: not where the daemon ended meanwhile.
pub(super) fn daemon_set(d: &Daemon, r: &DaemonRequest, name: &str) -> Result<bool, Failure> {
    match d.ask_if_there(r)? {
        Some(DaemonReply::Error { errno, message }) => {
            Err(Failure::explained("cannot set", name, Errno(errno), &message))
        }
        answer => Ok(answer.is_some()),
    }
}

/// A value as it is sent: the job id of a session is this one's, which nobody else can tell.
fn sent(name: &str, value: &str) -> String {
    if name == "jobid_this_session" {
        format!("{}:{value}", sys::process::own_session())
    } else {
        value.to_string()
    }
}

/// Sets `name` wherever this host has it.
fn set_one(name: &str, value: &str) -> Result<(), Failure> {
    let value = &sent(name, value);
    let mut done = false;
    let daemons = Daemon::all();
    let having = Daemon::ask_all(&daemons, &DaemonRequest::GetParam { pattern: name.to_string() });
    for (d, has) in daemons.iter().zip(having) {
        if matches!(has, Ok(DaemonReply::Params(p)) if p.iter().any(|(n, _)| n == name)) {
            let r = DaemonRequest::SetParam { name: name.to_string(), value: value.to_string() };
            done |= daemon_set(d, &r, name)?;
        }
    }
    for m in local::mounts(false) {
        let has = local::ask(&m.dir, &Request::ListParam { pattern: name.to_string() });
        if matches!(has, Ok(Reply::Params(p)) if p.iter().any(|(n, _)| n == name)) {
            local::ask(&m.dir, &Request::SetParam { name: name.to_string(), value: value.to_string() })?;
            done = true;
        }
    }
    if done { Ok(()) } else { Err(missing(name)) }
}

fn set_here(pattern: &str, value: &str, quiet: bool) -> Result<(), Failure> {
    let names: Vec<String> = matching(pattern).into_iter().map(|(n, _)| n).collect();
    if names.is_empty() {
        return Err(missing(pattern));
    }
    let mut first = Ok(());
    for n in names {
        match set_one(&n, value) {
            Ok(()) if !quiet => say!("{n}={value}"),
            Ok(()) => {}
            // Others may take it: a job id that one target does not know.
            Err(f) => first = first.and(Err(f)),
        }
    }
    first
}

/// Through the daemon that has the MGT.
pub(super) fn set_permanent(name: &str, value: &str, delete: bool) -> Result<(), Failure> {
    let nowhere = || {
        let (errno, why) = local::no_mgs();
        Failure::explained("cannot set", name, errno, &format!("-P: {why}"))
    };
    let (mut done, mut unknown) = (false, None);
    for d in Daemon::of_mgs() {
        let r = DaemonRequest::SetPermanent { name: name.to_string(), value: value.to_string(), delete };
        match daemon_set(&d, &r, name) {
            Ok(set) => done |= set,
            // An MGS of other file systems may run here as well.
            Err(f @ Failure::Op { errno: Errno::ENOENT, .. }) => unknown = Some(f),
            Err(f) => return Err(f),
        }
    }
    if done { Ok(()) } else { Err(unknown.unwrap_or_else(nowhere)) }
}

/// Sets one parameter wherever this host has it, until its daemons end; `name` may be a pattern. The names
/// that it was set under.
pub fn set_until_restart(name: &str, value: &str) -> Result<Vec<String>, Failure> {
    let names: Vec<String> = matching(&dotted(name)).into_iter().map(|(n, _)| n).collect();
    if names.is_empty() {
        return Err(missing(name));
    }
    names.iter().try_for_each(|n| set_one(n, value))?;
    Ok(names)
}

/// The same for the whole file system, for good: the MGS must run on this host.
pub fn set_for_good(name: &str, value: &str) -> Result<(), Failure> {
    set_permanent(&dotted(name), value, false)
}

fn pairs(operands: &[OsString], delete: bool) -> Result<Vec<(String, String)>, Failure> {
    let words: Vec<String> = operands.iter().map(|o| local::show(o)).collect();
    if delete {
        let name = |w: &String| (dotted(w.split('=').next().unwrap_or_default()), String::new());
        return Ok(words.iter().map(name).collect());
    }
    // The old form: NAME VALUE.
    if let [n, v] = words.as_slice()
        && !n.contains('=')
        && !v.contains('=')
    {
        return Ok(vec![(dotted(n), v.clone())]);
    }
    let split = |w: &String| {
        let what = || match w.ends_with('.') {
            true => format!("'{w}' ends in a dot: no blank belongs between a device and its parameter"),
            false => format!("'{w}' has no value: NAME=VALUE"),
        };
        let (n, v) = w.split_once('=').ok_or_else(|| Failure::usage(what()))?;
        Ok((dotted(n), v.to_string()))
    };
    words.iter().map(split).collect()
}

/// The parameter that a name of `conf_param` stands for: `FSNAME.llite.X` is `llite.FSNAME-*.X`,
/// `FSNAME-OST0000.osc.X` is `osc.FSNAME-OST0000*.X`, and so on; `FSNAME-OST0000.ost.OSS.X` and
/// `FSNAME-MDT0000.mds.MDS.X` are of the server of that target, and of the others of its kind: `ost.OSS.X`.
/// Names as `set_param -P` has them are taken as they are.
fn of_conf(name: &str) -> Result<String, Failure> {
    let devices = [
        "llite",
        "lov",
        "lmv",
        "osc",
        "mdc",
        "ldlm",
        "mdt",
        "lod",
        "osp",
        "obdfilter",
        "osd-nacre",
        "ost",
        "mds",
    ];
    let mut parts = name.splitn(3, '.');
    let (Some(of), Some(layer), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(Failure::usage(format!(
            "'{name}': expected FSNAME.llite.X, FSNAME-OST0000.ost.X or the like"
        )));
    };
    if devices.contains(&of) {
        return Ok(name.to_string());
    }
    let label = of.rsplit_once('-').map_or("", |(_, label)| label);
    let (is_ost, is_mdt) = (label.starts_with("OST"), label.starts_with("MDT"));
    match layer {
        "llite" | "lov" | "lmv" if !is_ost && !is_mdt => Ok(format!("{layer}.{of}-*.{rest}")),
        "ost" if is_ost && rest.starts_with("OSS.") => Ok(format!("ost.{rest}")),
        "mds" | "mdt" if is_mdt && rest.starts_with("MDS.") => Ok(format!("mds.{rest}")),
        "ost" | "obdfilter" if is_ost => Ok(format!("obdfilter.{of}.{rest}")),
        "osc" if is_ost => Ok(format!("osc.{of}*.{rest}")),
        "mdt" if is_mdt => Ok(format!("mdt.{of}.{rest}")),
        "mdc" if is_mdt => Ok(format!("mdc.{of}*.{rest}")),
        "lod" if is_mdt => Ok(format!("lod.{of}-mdtlov.{rest}")),
        _ => {
            let why = "conf_param knows FSNAME.llite.X, FSNAME-OST0000.{ost,osc}.X, FSNAME-MDT0000.{mdt,mdc,lod}.X, \
                       FSNAME-OST0000.ost.OSS.X and FSNAME-MDT0000.mds.MDS.X: \
                       use set_param -P with the name that get_param shows";
            Err(Failure::explained("cannot set", name, Errno::EINVAL, why))
        }
    }
}

fn set(args: &[OsString], conf: bool) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[flag('n', "no-name"), flag('P', "perm"), flag('d', "delete")])?;
    let permanent = conf || p.has("perm");
    if p.operands.is_empty() {
        return Err(Failure::usage("no parameter given"));
    }
    if p.has("delete") && !permanent {
        return Err(Failure::usage("-d goes with -P"));
    }
    let mut errors = FirstError::default();
    for (name, value) in pairs(&p.operands, p.has("delete"))? {
        let name = if conf { of_conf(&name)? } else { name };
        let r = if permanent {
            set_permanent(&name, &value, p.has("delete"))
        } else {
            set_here(&name, &value, p.has("no-name"))
        };
        if let Err(f) = r {
            errors.report("error: set_param", &f);
        }
    }
    Ok(errors)
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    set(args, false)
}

pub fn run_conf(args: &[OsString]) -> Result<FirstError, Failure> {
    set(args, true)
}

/// The parameters' layer of a connection as `lctl dl` names it: an MDT's with an OST, or a mount's.
fn layer(device: &str) -> &'static str {
    match device {
        d if d.contains("-osc-MDT") => "osp",
        d if d.contains("-mdc-") => "mdc",
        _ => "osc",
    }
}

fn activity(args: &[OsString], value: &str) -> Result<FirstError, Failure> {
    let device = dl::named(args)?;
    let kind = layer(&device);
    set_here(&format!("{kind}.{device}.active"), value, true)?;
    Ok(FirstError::default())
}

pub fn run_activate(args: &[OsString]) -> Result<FirstError, Failure> {
    activity(args, "1")
}

pub fn run_deactivate(args: &[OsString]) -> Result<FirstError, Failure> {
    activity(args, "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_belongs_to_a_mount_or_to_a_metadata_target() {
        assert_eq!(layer("demo-OST0003-osc-MDT0000"), "osp");
        assert_eq!(layer("demo-OST0003-osc-00ff00ff00ff00ff"), "osc");
        assert_eq!(layer("demo-MDT0000-mdc-00ff00ff00ff00ff"), "mdc");
    }

    #[test]
    fn names_of_conf_param_are_translated_or_refused() {
        for (name, means) in [
            ("demo.llite.statfs_max_age", "llite.demo-*.statfs_max_age"),
            ("my-fs.llite.statfs_max_age", "llite.my-fs-*.statfs_max_age"),
            ("demo-OST0001.ost.brw_size", "obdfilter.demo-OST0001.brw_size"),
            ("my-fs-OST001a.osc.active", "osc.my-fs-OST001a*.active"),
            ("demo-MDT0000.mdt.dom_stripesize", "mdt.demo-MDT0000.dom_stripesize"),
            ("demo-MDT0000.lod.stripesize", "lod.demo-MDT0000-mdtlov.stripesize"),
            ("osc.demo-OST0000*.active", "osc.demo-OST0000*.active"),
            ("demo-OST0001.ost.OSS.ost_io.nrs_policies", "ost.OSS.ost_io.nrs_policies"),
            ("demo-MDT0000.mds.MDS.mdt.nrs_tbf_rule", "mds.MDS.mdt.nrs_tbf_rule"),
            ("ost.OSS.ost_io.nrs_policies", "ost.OSS.ost_io.nrs_policies"),
            ("mds.MDS.mdt.slots_max_client", "mds.MDS.mdt.slots_max_client"),
        ] {
            assert_eq!(of_conf(name).unwrap(), means);
        }
        for bad in ["demo.sys.timeout", "demo.llite", "demo-OST0000.llite.x", "demo.ost.x", "x"] {
            assert!(of_conf(bad).is_err(), "{bad}");
        }
    }
}
