//! `lfs fid2path`: the names of a file.

use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag, value};
use crate::local;
use crate::{output, say};
use client::control::{Reply, Request};
use model::{Errno, Fid};
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

pub const USAGE: &str =
    "[-0|--print0] [-f|--print-fid] [-c|--cur] [-l|--link N] [-n|--name] [--json] FSNAME|MOUNT FID...";

/// The mount, and what paths begin with: nothing when the file system was named.
fn place(arg: &OsString) -> Result<(PathBuf, Option<PathBuf>), Failure> {
    let shown = local::show(arg);
    if !shown.contains('/')
        && let Some(m) = local::mounts(false).into_iter().find(|m| m.name.fsname == shown)
    {
        return Ok((m.dir, None));
    }
    let dir = local::mount_point(Path::new(arg))?;
    Ok((dir.clone(), Some(dir)))
}

fn paths(dir: &Path, fid: Fid) -> Result<Vec<Vec<u8>>, Failure> {
    match local::ask(dir, &Request::Fid2path { fid }) {
        Ok(Reply::Paths { paths, .. }) if paths.is_empty() => {
            Err(Failure::op("cannot find", &fid.to_string(), Errno::ENOENT))
        }
        Ok(Reply::Paths { paths, .. }) => Ok(paths.into_iter().map(|n| n.0).collect()),
        Ok(other) => Err(local::strange(dir, &other)),
        Err(Failure::Op { errno, .. }) => Err(Failure::op("cannot find", &fid.to_string(), errno)),
        Err(f) => Err(f),
    }
}

fn join(base: Option<&Path>, rel: &[u8]) -> Vec<u8> {
    match base {
        None => rel.to_vec(),
        Some(b) if rel == b"/" => b.as_os_str().as_bytes().to_vec(),
        Some(b) => [b.as_os_str().as_bytes(), b"/", rel].concat(),
    }
}

/// The first path of a file below a mount. `ENOENT` if it has none there.
pub fn first(mount: &Path, fid: Fid) -> Result<PathBuf, Failure> {
    let mut all = paths(mount, fid)?;
    Ok(PathBuf::from(OsString::from_vec(join(Some(mount), &all.swap_remove(0)))))
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let opts = [
        flag('0', "print0"),
        flag('f', "print-fid"),
        flag('c', "cur"),
        value('l', "link"),
        flag('n', "name"),
        flag('\0', "json"),
    ];
    let p = getopt::parse(args, &opts)?;
    let [target, fids @ ..] = p.operands.as_slice() else {
        return Err(Failure::usage("no mount and no FID given"));
    };
    if fids.is_empty() {
        return Err(Failure::usage("no FID given"));
    }
    let only = match p.value("link") {
        None => None,
        Some(n) => Some(n.parse::<usize>().map_err(|_| Failure::usage(format!("bad link number '{n}'")))?),
    };
    let (dir, base) = place(target)?;
    let (mut errors, mut rows) = (FirstError::default(), Vec::new());
    for f in fids {
        let text = local::show(f);
        let found = match text.parse::<Fid>() {
            Ok(fid) => paths(&dir, fid).map(|p| (fid, p)),
            Err(_) => Err(Failure::Op {
                text: format!("invalid FID '{text}': {}", Errno::EINVAL),
                errno: Errno::EINVAL,
            }),
        };
        let (fid, all) = match found {
            Ok(v) => v,
            Err(e) => {
                errors.report("lfs fid2path", &e);
                continue;
            }
        };
        let mut chosen: Vec<Vec<u8>> = all.iter().map(|r| join(base.as_deref(), r)).collect();
        if let Some(n) = only {
            chosen = chosen.into_iter().skip(n).take(1).collect();
        }
        if p.has("name") {
            for c in &mut chosen {
                *c = c.rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec();
            }
        }
        if p.has("json") {
            let names: Vec<_> = chosen.iter().map(|c| String::from_utf8_lossy(c).into_owned()).collect();
            rows.push(json!({"fid": fid.to_string(), "paths": names}));
            continue;
        }
        for c in chosen {
            if p.has("print-fid") {
                crate::put!("{fid} ");
            }
            output::bytes(&c);
            output::bytes(if p.has("print0") { b"\0" } else { b"\n" });
        }
    }
    if p.has("json") {
        say!("{:#}", json!(rows));
    }
    Ok(errors)
}
