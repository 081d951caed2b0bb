//! `lfs path2fid`: the identity of a file.

use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag};
use crate::local::{ask_about, show, strange};
use crate::{output, say};
use client::control::{Reply, Request};
use model::Fid;
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;

pub const USAGE: &str = "[--parents] [--json] PATH...";

pub fn fid_of(path: &Path) -> Result<Fid, Failure> {
    match ask_about(path, "cannot get FID of", |name| Request::Path2fid { name })? {
        Reply::Fid(f) => Ok(f),
        other => Err(strange(path, &other)),
    }
}

fn parents(path: &Path, fid: Fid) -> Result<Vec<(Fid, String)>, Failure> {
    let dir = crate::local::mount_point(
        path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")),
    )?;
    match crate::local::ask(&dir, &Request::Fid2path { fid })? {
        Reply::Paths { links, .. } => Ok(links.into_iter().map(|(f, n)| (f, n.lossy())).collect()),
        other => Err(strange(path, &other)),
    }
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[flag('\0', "parents"), flag('\0', "json")])?;
    if p.operands.is_empty() {
        return Err(Failure::usage("no path given"));
    }
    let (mut errors, mut rows) = (FirstError::default(), Vec::new());
    for o in &p.operands {
        let path = Path::new(o);
        let found = fid_of(path).and_then(|f| {
            let links = if p.has("parents") { parents(path, f)? } else { Vec::new() };
            Ok((f, links))
        });
        let (fid, links) = match found {
            Ok(v) => v,
            Err(f) => {
                errors.report("lfs path2fid", &f);
                continue;
            }
        };
        if p.has("json") {
            let links: Vec<_> =
                links.iter().map(|(f, n)| json!({"parent": f.to_string(), "name": n})).collect();
            rows.push(json!({"path": show(o), "fid": fid.to_string(), "links": links}));
            continue;
        }
        let prefix = if p.operands.len() > 1 { format!("{}: ", show(o)) } else { String::new() };
        if p.has("parents") {
            let all: Vec<String> = links.iter().map(|(f, n)| format!("{f}/{n}")).collect();
            say!("{prefix}{}", all.join("\t"));
        } else {
            say!("{prefix}{fid}");
        }
    }
    if p.has("json") {
        output::json(&json!(rows));
    }
    Ok(errors)
}
