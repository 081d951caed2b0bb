//! `lfs osts` and `lfs mdts`: the targets of a file system.

use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag};
use crate::local::{self, LocalMount, ask_about, strange};
use crate::{output, say};
use client::control::{Name, Reply, Request, Target};
use model::{Fid, ObjectId, TargetKind};
use serde_json::json;
use std::collections::BTreeSet;
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
    operands.iter().map(|o| mount_of(Path::new(o))).collect()
}

/// The mount that a path lies on.
pub fn mount_of(path: &Path) -> Result<LocalMount, Failure> {
    let dir = local::mount_point(path)?;
    let name = local::mount_name(&dir)?;
    let at = world::sys::mounts::at(&dir).ok().flatten();
    Ok(LocalMount { dir, source: at.map_or(String::new(), |m| m.source), name })
}

/// As [`chosen_mounts`], of several mounts of one file system the first.
pub fn chosen_file_systems(operands: &[OsString]) -> Result<Vec<LocalMount>, Failure> {
    let mut mounts = chosen_mounts(operands)?;
    let mut met = BTreeSet::new();
    mounts.retain(|m| met.insert(m.name.fs_uuid.clone()));
    Ok(mounts)
}

/// Whether any metadata server says so of the value of a parameter of its own, by way of a mount.
pub fn any_mdt(
    mount: &Path,
    pattern: &str,
    says: impl Fn(&[(String, String)]) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    for t in targets(mount)?.iter().filter(|t| t.target.kind == TargetKind::Mdt) {
        if says(&local::target_params(mount, t.target, pattern)?)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a metadata server still has to tell OSTs (those that the pattern of `destroys_pending` names) to
/// remove objects.
pub fn removals_pending(mount: &Path, pattern: &str) -> Result<bool, Failure> {
    any_mdt(mount, pattern, |values| Ok(values.iter().any(|(_, v)| v.trim() != "0")))
}

/// Files with their names, and the object behind which others follow.
pub type FilesPage = (Vec<(Fid, Vec<Name>)>, Option<ObjectId>);

/// Some of the files that have objects on an OST, behind `after`, from the metadata servers' reverse index.
pub fn files_on(mount: &Path, ost: u16, after: Option<ObjectId>) -> Result<FilesPage, Failure> {
    match ask_about(mount, "cannot find files below", |_| Request::OstFiles { ost, after })? {
        Reply::OstFiles { files, next } => Ok((files, next)),
        other => Err(strange(mount, &other)),
    }
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
