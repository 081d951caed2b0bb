//! `lfs data_version`: a number that changes with a file's data.

use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag};
use crate::local::{ask_about, show, strange};
use crate::{output, say};
use client::control::{Flush, Reply, Request};
use model::Errno;
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;

pub const USAGE: &str = "[-n|--nosync|-r|--read|-w|--write] [--json] FILE...";

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let opts = [
        flag('n', "nosync"),
        flag('r', "read"),
        flag('w', "write"),
        flag('s', "set-hsm"),
        flag('\0', "json"),
    ];
    let p = getopt::parse(args, &opts)?;
    if p.has("set-hsm") {
        let why = "there is no archive whose copies could be compared with it";
        return Err(Failure::explained("cannot use option", "--set-hsm", Errno::EOPNOTSUPP, why));
    }
    let flush = match (p.has("nosync"), p.has("read"), p.has("write")) {
        (true, false, false) => Flush::Nothing,
        (false, _, false) => Flush::Written,
        (false, false, true) => Flush::Everything,
        _ => return Err(Failure::usage("only one of -n, -r and -w")),
    };
    if p.operands.is_empty() {
        return Err(Failure::usage("no file given"));
    }
    let (mut errors, mut rows) = (FirstError::default(), Vec::new());
    for o in &p.operands {
        match version_of(Path::new(o), flush) {
            Ok(v) if p.has("json") => rows.push(json!({"path": show(o), "data_version": v})),
            Ok(v) if p.operands.len() == 1 => say!("{v}"),
            Ok(v) => say!("{}: {v}", show(o)),
            Err(f) => errors.report("lfs data_version", &f),
        }
    }
    if p.has("json") {
        output::json(&json!(rows));
    }
    Ok(errors)
}

fn version_of(path: &Path, flush: Flush) -> Result<u64, Failure> {
    match ask_about(path, "cannot get the data version of", |name| Request::DataVersion { name, flush })? {
        Reply::Version(v) => Ok(v),
        other => Err(strange(path, &other)),
    }
}
