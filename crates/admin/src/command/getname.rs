//! `lfs getname`: which mount a path lies on.

use crate::command::osts::chosen_mounts;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag};
use crate::{output, say};
use serde_json::json;
use std::ffi::OsString;

pub const USAGE: &str = "[-i|--instance|-n|--fsname|-u|--uuid] [--json] [PATH...]";

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let opts = [flag('i', "instance"), flag('n', "fsname"), flag('u', "uuid"), flag('\0', "json")];
    let p = getopt::parse(args, &opts)?;
    if ["instance", "fsname", "uuid"].iter().filter(|o| p.has(o)).count() > 1 {
        return Err(Failure::usage("only one of -i, -n and -u"));
    }
    let chosen = chosen_mounts(&p.operands)?;
    if p.has("json") {
        let row = |m: &crate::local::LocalMount| {
            json!({"fsname": m.name.fsname, "instance": m.name.instance, "uuid": m.name.fs_uuid,
                   "mount": m.dir, "source": m.source, "root": m.name.root.to_string()})
        };
        output::json(&json!(chosen.iter().map(row).collect::<Vec<_>>()));
        return Ok(FirstError::default());
    }
    for m in &chosen {
        let n = &m.name;
        let value = if p.has("instance") {
            n.instance.clone()
        } else if p.has("fsname") {
            n.fsname.clone()
        } else if p.has("uuid") {
            n.fs_uuid.clone()
        } else {
            say!("{}-{} {}", n.fsname, n.instance, m.dir.display());
            continue;
        };
        if p.operands.len() == 1 {
            say!("{value}");
        } else {
            say!("{value} {}", m.dir.display());
        }
    }
    Ok(FirstError::default())
}
