//! `lctl get_param` and `list_param`: parameters of this host's mounts and daemons.

use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Opt, flag};
use crate::local::{self, Daemon, DaemonReply, DaemonRequest};
use crate::{glob, output, say};
use client::control::{Reply, Request};
use model::Errno;
use model::param::ParamInfo;
use serde_json::json;
use std::ffi::OsString;
use world::sys;

pub const USAGE: &str =
    "[-n|--value-only] [-N|--only-name] [-F|--classify] [-R|--recursive] [--json] PATTERN...";
pub const USAGE_LIST: &str = "[-F|--classify] [-R|--recursive] [--json] PATTERN...";
pub const USAGE_HELP: &str = "[-R|--recursive] [--json] PATTERN...";

const OPTS: &[Opt] = &[
    flag('n', "value-only"),
    flag('N', "only-name"),
    flag('F', "classify"),
    flag('R', "recursive"),
    flag('\0', "json"),
];

/// `/` separates as well as a dot does.
pub fn dotted(pattern: &str) -> String {
    pattern.trim_matches('/').replace('/', ".")
}

/// Everything on this host whose name fits.
pub fn matching(pattern: &str) -> Vec<(String, String)> {
    let mut out = gather(pattern, |pattern| {
        let (to_daemon, to_mount) =
            (DaemonRequest::GetParam { pattern: pattern.clone() }, Request::GetParam { pattern });
        let of_daemon = |r| if let DaemonReply::Params(p) = r { p } else { Vec::new() };
        let of_mount = |r| if let Reply::Params(p) = r { p } else { Vec::new() };
        Question { to_daemon, of_daemon, to_mount, of_mount }
    });
    out.sort();
    out.dedup();
    out
}

/// The names of everything on this host whose name fits.
pub fn names(pattern: &str) -> Vec<String> {
    explained(pattern).into_iter().map(|i| i.name).collect()
}

/// What they mean, of everything on this host whose name fits.
fn explained(pattern: &str) -> Vec<ParamInfo> {
    let mut out = gather(pattern, |pattern| {
        let (to_daemon, to_mount) =
            (DaemonRequest::HelpParam { pattern: pattern.clone() }, Request::HelpParam { pattern });
        let of_daemon = |r| if let DaemonReply::ParamInfos(p) = r { p } else { Vec::new() };
        let of_mount = |r| if let Reply::ParamInfos(p) = r { p } else { Vec::new() };
        Question { to_daemon, of_daemon, to_mount, of_mount }
    });
    out.sort_by(|a, b| a.name.cmp(&b.name));
    out.dedup_by(|a, b| a.name == b.name);
    out
}

/// One question to daemons and mounts, and what their answers hold.
struct Question<T> {
    to_daemon: DaemonRequest,
    of_daemon: fn(DaemonReply) -> Vec<T>,
    to_mount: Request,
    of_mount: fn(Reply) -> Vec<T>,
}

/// Asks everybody on this host. Daemons know no braces: they are written out here. Who gives no answer is
/// named on standard error and not asked again: what is missing because of it must not look as if it did not
/// exist.
fn gather<T>(pattern: &str, question: impl Fn(String) -> Question<T>) -> Vec<T> {
    let (mut daemons, mut mounts) = (Daemon::all(), local::mounts(true));
    let mut out = Vec::new();
    for p in glob::expand(pattern.as_bytes()) {
        let q = question(String::from_utf8_lossy(&p).into_owned());
        let mut of_daemons = Daemon::ask_all(&daemons, &q.to_daemon).into_iter();
        let mut of_mounts = sys::at_once(&mounts, |m| local::ask(&m.dir, &q.to_mount)).into_iter();
        let mut daemon = |r| out.extend((q.of_daemon)(r));
        daemons.retain(|_| answered(of_daemons.next().expect("one for each"), &mut daemon));
        let mut mount = |r| out.extend((q.of_mount)(r));
        mounts.retain(|_| answered(of_mounts.next().expect("one for each"), &mut mount));
    }
    out
}

/// Whether there was an answer.
fn answered<R>(reply: Result<R, Failure>, take: &mut impl FnMut(R)) -> bool {
    match reply {
        Ok(r) => {
            take(r);
            return true;
        }
        // It ended meanwhile.
        Err(Failure::Op { errno: Errno::ECONNREFUSED | Errno::ENOENT, .. }) => {}
        Err(e) => eprintln!("{e}"),
    }
    false
}

pub fn missing(pattern: &str) -> Failure {
    Failure::Op {
        text: format!("param_path '{}': {}", pattern.replace('.', "/"), Errno::ENOENT.text()),
        errno: Errno::ENOENT,
    }
}

/// `mark`: what `-F` puts behind the name.
fn show(p: &getopt::Parsed, name: &str, value: &str, names_only: bool, mark: &str) {
    if names_only {
        say!("{name}{mark}");
    } else if p.has("value-only") {
        say!("{}", value.trim_end_matches('\n'));
    } else if value.trim_end_matches('\n').contains('\n') {
        say!("{name}=\n{}", value.trim_end_matches('\n'));
    } else {
        say!("{name}={}", value.trim_end_matches('\n'));
    }
}

/// The pattern of an operand, with everything below it when that is wanted.
fn wanted(p: &getopt::Parsed, given: &str) -> String {
    let pattern = dotted(given);
    if !p.has("recursive") {
        return pattern;
    }
    // A star stays within one part of the name; no name has more than seven.
    let deeper: Vec<String> = (0..=6).map(|n| format!("{pattern}{}", ".*".repeat(n))).collect();
    format!("{{{}}}", deeper.join(","))
}

fn query(args: &[OsString], command: &str, names_only: bool) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, OPTS)?;
    if p.operands.is_empty() {
        return Err(Failure::usage("no parameter given"));
    }
    let names_only = names_only || p.has("only-name");
    let (mut errors, mut rows) = (FirstError::default(), Vec::new());
    for o in &p.operands {
        let given = local::show(o);
        let pattern = wanted(&p, &given);
        let found = matching(&pattern);
        let infos = if p.has("classify") { explained(&pattern) } else { Vec::new() };
        let mark = |name: &str| {
            let settable = infos.iter().any(|i| i.name == name && i.writable);
            if settable { "=" } else { "" }
        };
        if found.is_empty() {
            errors.report(&format!("error: {command}"), &missing(&dotted(&given)));
        }
        for (name, value) in found {
            if p.has("json") {
                rows.push(if names_only {
                    json!({"name": name})
                } else {
                    json!({"name": name, "value": value})
                });
            } else {
                show(&p, &name, &value, names_only, mark(&name));
            }
        }
    }
    if p.has("json") {
        output::json(&json!(rows));
    }
    Ok(errors)
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    query(args, "get_param", false)
}

pub fn run_list(args: &[OsString]) -> Result<FirstError, Failure> {
    query(args, "list_param", true)
}

/// `help_param`: a line for each parameter.
pub fn run_help(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[flag('R', "recursive"), flag('\0', "json")])?;
    if p.operands.is_empty() {
        return Err(Failure::usage("no parameter given"));
    }
    let (mut errors, mut rows) = (FirstError::default(), Vec::new());
    for o in &p.operands {
        let given = local::show(o);
        let found = explained(&wanted(&p, &given));
        if found.is_empty() {
            errors.report("error: help_param", &missing(&dotted(&given)));
        }
        for i in found {
            if p.has("json") {
                rows.push(json!(i));
            } else {
                say!("{}: {i}", i.name);
            }
        }
    }
    if p.has("json") {
        output::json(&json!(rows));
    }
    Ok(errors)
}
