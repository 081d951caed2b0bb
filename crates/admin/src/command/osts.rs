//! `lfs osts` and `lfs mdts`: the targets of a file system.

use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag};
use crate::local::{self, LocalMount};
use crate::{output, say};
use client::control::{Reply, Request, Target};
use model::TargetKind;
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;

pub const USAGE_OSTS: &str = "[--json] [PATH]";
pub const USAGE_MDTS: &str = "[--json] [PATH]";

pub fn targets(dir: &Path) -> Result<Vec<Target>, Failure> {
    match local::ask(dir, &Request::Targets)? {
        Reply::Targets(t) => Ok(t),
        other => Err(local::strange(dir, &other)),
    }
}

/// The mounts that operands name; all mounts of this host without any.
pub fn chosen_mounts(operands: &[OsString]) -> Result<Vec<LocalMount>, Failure> {
    if operands.is_empty() {
        let all = local::mounts(true);
        if all.is_empty() {
            let text = "no Nacre file system is mounted on this host".to_string();
            return Err(Failure::Op { text, errno: model::Errno::ENOENT });
        }
        return Ok(all);
    }
    let mut out = Vec::new();
    for o in operands {
        let dir = local::mount_point(Path::new(o))?;
        let name = local::mount_name(&dir)?;
        let at = world::sys::mounts::at(&dir).ok().flatten();
        out.push(LocalMount { dir, source: at.map_or(String::new(), |m| m.source), name });
    }
    Ok(out)
}

fn run(args: &[OsString], kind: TargetKind, header: &str) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[flag('\0', "json")])?;
    let mut rows = Vec::new();
    for m in chosen_mounts(&p.operands)? {
        if !p.has("json") {
            say!("{header}:");
        }
        for t in targets(&m.dir)?.iter().filter(|t| t.target.kind == kind) {
            let state = if t.active { "ACTIVE" } else { "INACTIVE" };
            if p.has("json") {
                rows.push(json!({"mount": m.dir, "index": t.target.index, "uuid": t.uuid, "state": state,
                                 "nid": t.nid, "connection": t.state}));
            } else {
                say!("{}: {} {state}", t.target.index, t.uuid);
            }
        }
    }
    if p.has("json") {
        output::json(&json!(rows));
    }
    Ok(FirstError::default())
}

pub fn run_osts(args: &[OsString]) -> Result<FirstError, Failure> {
    run(args, TargetKind::Ost, "OBDS")
}

pub fn run_mdts(args: &[OsString]) -> Result<FirstError, Failure> {
    run(args, TargetKind::Mdt, "MDTS")
}
