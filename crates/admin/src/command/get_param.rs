//! `lctl get_param` and `list_param`: parameters of this host's mounts and daemons.

use crate::command::dl;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Opt, flag};
use crate::local::{self, Daemon, DaemonReply, DaemonRequest};
use crate::{glob, output, say};
use client::control::{Reply, Request};
use model::Errno;
use model::param::{Decl, ParamInfo, directories, glob_match};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use world::sys;

pub const USAGE: &str = "[-n|--value-only] [-N|--only-name] [-F|--classify] [-R|--recursive] [-H|--header] [-r|-w|-t] [--json] PATTERN...";
pub const USAGE_LIST: &str =
    "[-F|--classify] [-D|--dir-only] [-R|--recursive] [-p|--path] [-r|-w|-t] [--json] PATTERN...";
pub const USAGE_HELP: &str = "[-R|--recursive] [--json] PATTERN...";

const OPTS: &[Opt] = &[
    flag('n', "value-only"),
    flag('N', "only-name"),
    flag('F', "classify"),
    flag('R', "recursive"),
    flag('H', "header"),
    flag('\0', "json"),
];

const OPTS_LIST: &[Opt] = &[
    flag('F', "classify"),
    flag('D', "dir-only"),
    flag('D', "directory-only"),
    flag('R', "recursive"),
    flag('p', "path"),
    flag('\0', "json"),
];

/// Which of those that fit, of both. All can be read, and none is a link: three of them say nothing more.
const OPTS_KINDS: &[Opt] = &[
    flag('r', "readable"),
    flag('l', "links"),
    flag('L', "no-links"),
    flag('w', "writable"),
    flag('t', "tunable"),
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
    if wants_devices(pattern) {
        out.push((DEVICES.into(), dl::table()));
    }
    out.sort();
    out.dedup();
    out
}

/// A name of this host, and of none of its mounts and daemons.
const DEVICES: &str = "devices";

/// Which names fit a pattern, with all that stands in its braces.
fn fits(pattern: &str) -> impl Fn(&str) -> bool + use<> {
    let patterns = glob::expand(pattern.as_bytes());
    move |name: &str| patterns.iter().any(|p| glob_match(&String::from_utf8_lossy(p), name))
}

fn wants_devices(pattern: &str) -> bool {
    fits(pattern)(DEVICES)
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
    if wants_devices(pattern) {
        let help = "Targets that this host serves, and connections of its mounts and metadata targets.";
        out.push(Decl::text(DEVICES, help).info(DEVICES.into()));
    }
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
pub(super) fn answered<R>(reply: Result<R, Failure>, take: &mut impl FnMut(R)) -> bool {
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
    if let Some(instead) = model::param::foreign(pattern) {
        let text = format!("param_path '{}': {instead}", pattern.replace('.', "/"));
        return Failure::Op { text, errno: Errno::EOPNOTSUPP };
    }
    let mut text = format!("param_path '{}': {}", pattern.replace('.', "/"), Errno::ENOENT.text());
    if pattern.ends_with('.') {
        text += ": no blank belongs between a device and its parameter";
    }
    Failure::Op { text, errno: Errno::ENOENT }
}

/// `mark`: what `-F` puts behind the name.
fn show(p: &getopt::Parsed, name: &str, value: &str, names_only: bool, mark: &str) {
    if names_only {
        say!("{name}{mark}");
    } else if p.has("header") {
        value.trim_end_matches('\n').lines().for_each(|l| say!("{name}={l}"));
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
    if p.has("recursive") { deeper(&pattern) } else { pattern }
}

/// What fits, and everything below it.
fn deeper(pattern: &str) -> String {
    // A star stays within one part of the name; no name has more than seven.
    let deeper: Vec<String> = (0..=6).map(|n| format!("{pattern}{}", ".*".repeat(n))).collect();
    format!("{{{}}}", deeper.join(","))
}

/// Whether only what can be set is wanted.
fn only_writable(p: &getopt::Parsed) -> bool {
    p.has("writable") || p.has("tunable")
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[OPTS, OPTS_KINDS].concat())?;
    if p.operands.is_empty() {
        return Err(Failure::usage("no parameter given"));
    }
    let names_only = p.has("only-name");
    let (mut errors, mut rows) = (FirstError::default(), Vec::new());
    for o in &p.operands {
        let given = local::show(o);
        let pattern = wanted(&p, &given);
        let mut found = matching(&pattern);
        let asks = p.has("classify") || only_writable(&p);
        let infos = if asks { explained(&pattern) } else { Vec::new() };
        let settable = |name: &str| infos.iter().any(|i| i.name == name && i.writable);
        found.retain(|(name, _)| !only_writable(&p) || settable(name));
        if found.is_empty() {
            errors.report("error: get_param", &missing(&dotted(&given)));
        }
        for (name, value) in found {
            match (p.has("json"), names_only) {
                (true, true) => rows.push(json!({"name": name})),
                (true, false) => rows.push(json!({"name": name, "value": value})),
                (false, _) => show(&p, &name, &value, names_only, if settable(&name) { "=" } else { "" }),
            }
        }
    }
    if p.has("json") {
        output::json(&json!(rows));
    }
    Ok(errors)
}

/// One name that `list_param` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listed {
    Directory,
    Parameter { writable: bool },
}

impl Listed {
    /// What `-F` puts behind it.
    fn mark(self) -> &'static str {
        match self {
            Listed::Directory => "/",
            Listed::Parameter { writable: true } => "=",
            Listed::Parameter { writable: false } => "",
        }
    }
}

/// The names that fit `pattern`, and with `below` everything in the directories among them. `all`: what
/// there is below the pattern.
fn listed(pattern: &str, below: bool, all: &[ParamInfo]) -> BTreeMap<String, Listed> {
    let fits = fits(pattern);
    let mut out = BTreeMap::new();
    for i in all {
        let above = directories(&i.name);
        // Only what is in a directory that fits, or fits itself.
        let mut is_in = false;
        for d in above {
            is_in |= fits(d);
            if fits(d) || (is_in && below) {
                out.insert(d.to_string(), Listed::Directory);
            }
        }
        if fits(&i.name) || (is_in && below) {
            out.insert(i.name.clone(), Listed::Parameter { writable: i.writable });
        }
    }
    out
}

pub fn run_list(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[OPTS_LIST, OPTS_KINDS].concat())?;
    if p.operands.is_empty() {
        return Err(Failure::usage("no parameter given"));
    }
    let dirs_only = p.has("dir-only") || p.has("directory-only");
    let (mut errors, mut rows) = (FirstError::default(), Vec::new());
    for o in &p.operands {
        let given = local::show(o);
        let pattern = dotted(&given);
        let mut found = listed(&pattern, p.has("recursive"), &explained(&deeper(&pattern)));
        found.retain(|_, l| match l {
            Listed::Directory => !only_writable(&p),
            Listed::Parameter { writable } => !dirs_only && (*writable || !only_writable(&p)),
        });
        if found.is_empty() {
            errors.report("error: list_param", &missing(&pattern));
        }
        for (name, l) in found {
            if p.has("json") {
                let (directory, writable) =
                    (l == Listed::Directory, l == Listed::Parameter { writable: true });
                rows.push(json!({"name": name, "directory": directory, "writable": writable}));
                continue;
            }
            let shown = match p.has("path") {
                true => path_of(&name),
                false => name,
            };
            say!("{shown}{}", if p.has("classify") { l.mark() } else { "" });
        }
    }
    if p.has("json") {
        output::json(&json!(rows));
    }
    Ok(errors)
}

/// With slashes between the parts, as the parameters of a kernel lie in folders.
fn path_of(name: &str) -> String {
    let mut path = name.as_bytes().to_vec();
    for d in directories(name) {
        path[d.len()] = b'/';
    }
    String::from_utf8_lossy(&path).into_owned()
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

#[cfg(test)]
#[path = "get_param_tests.rs"]
mod tests;
