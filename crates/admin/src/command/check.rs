//! `lfs check`: whether this mount's connections to the servers are up.

use crate::command::osts::{chosen_mounts, targets};
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag};
use crate::{output, say};
use client::control::Target;
use model::{Errno, TargetKind};
use serde_json::json;
use std::ffi::OsString;

pub const USAGE: &str = "{mgts|osts|mdts|all} [--json] [PATH]";

/// `fs-OST0000-osc-INSTANCE`, as `lctl dl` shows the connection.
pub fn import_name(fsname: &str, t: &Target, instance: &str) -> String {
    match t.target.kind {
        TargetKind::Mgt => format!("MGC{}", t.nid),
        TargetKind::Mdt => format!("{}-mdc-{instance}", t.target.label(fsname)),
        TargetKind::Ost => format!("{}-osc-{instance}", t.target.label(fsname)),
    }
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[flag('\0', "json")])?;
    let Some(what) = p.operands.first() else {
        return Err(Failure::usage("say what to check: mgts, osts, mdts or all"));
    };
    let wanted: &[TargetKind] = match what.to_string_lossy().as_ref() {
        "mgts" | "mgs" => &[TargetKind::Mgt],
        "osts" => &[TargetKind::Ost],
        "mdts" | "mds" => &[TargetKind::Mdt],
        "all" | "servers" => &[TargetKind::Mgt, TargetKind::Mdt, TargetKind::Ost],
        other => return Err(Failure::usage(format!("cannot check '{other}': mgts, osts, mdts or all"))),
    };
    let (mut rows, mut errors) = (Vec::new(), FirstError::default());
    for m in chosen_mounts(&p.operands[1..])? {
        for t in targets(&m.dir)?.iter().filter(|t| wanted.contains(&t.target.kind)) {
            let name = import_name(&m.name.fsname, t, &m.name.instance);
            if p.has("json") {
                rows.push(json!({"name": name, "active": t.active, "state": t.state, "nid": t.nid}));
            } else if !t.active {
                say!("{name} inactive.");
            } else if matches!(t.state.as_str(), "FULL" | "IDLE") {
                say!("{name} active.");
            } else {
                let why = format!("connection is {}", t.state);
                let f = Failure::explained("cannot reach", &name, Errno::EAGAIN, &why);
                errors.report("lfs check", &f);
            }
        }
    }
    if p.has("json") {
        output::json(&json!(rows));
    }
    Ok(errors)
}
