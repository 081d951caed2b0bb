//! `nacre replace`: another, empty OST takes the index of one whose disk died. Opens the index on the MGS,
//! says how the new one is made, and waits until it has registered.

use super::with_page;
use crate::command::drain::ost::Ost;
use crate::command::registration::order_mgs;
use crate::failure::Failure;
use crate::getopt::{self, Opt, flag};
use crate::interrupt::{self, Interrupt};
use crate::live::ProgressLine;
use crate::local::{self, Daemon, DaemonStatus};
use crate::size::parse_index;
use crate::{output, say};
use mgs::registration::Order;
use model::{Errno, TargetId, target};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::time::Duration;
use world::sys;

/// Exit status: wrong usage, or the MGS did not allow it.
const EXIT_TROUBLE: i32 = 2;
/// Between two looks at the MGS.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

const USAGE: &str = "\
usage: nacre replace [--no-wait] [--json] [-q] OST

On the node of the MGS: lets one new, empty OST take the index of one that is
lost (demo-OST0003; OST0003 or 3 of the file system that is mounted here), says
how it is made, and waits until it has registered. What lay on the former one is
an I/O error then: nacre lost OST lists it.

  --no-wait  ends when the index is open
  --json     one JSON document, at the end; -q: no live progress

exit status: 0 the new one is there (or its index open), 2 wrong usage or not allowed, 130 interrupted
";

const OPTS: &[Opt] = &[flag('\0', "no-wait"), flag('\0', "json"), flag('q', "quiet")];

/// The label of an OST that a user names, mounted here or not.
fn label(name: &OsStr) -> Result<(String, TargetId), Failure> {
    let shown = local::show(name);
    if let Some((fsname, rest)) = shown.rsplit_once('-')
        && rest.starts_with("OST")
        && target::fsname_is_valid(fsname)
        && let Some(index) = parse_index(&shown)
    {
        return Ok((TargetId::ost(index).label(fsname), TargetId::ost(index)));
    }
    let ost = Ost::find(name, None)?;
    Ok((ost.label, TargetId::ost(ost.index)))
}

/// What the MGS says of a target: `NAME: VALUE`, a line each.
fn facts(text: &str) -> BTreeMap<String, String> {
    let split = |l: &str| l.split_once(": ").map(|(k, v)| (k.to_string(), v.to_string()));
    text.lines().filter_map(split).collect()
}

/// The addresses of the MGS on this host, as `--mgsnode` takes them.
fn mgs_nids() -> String {
    let all = Daemon::statuses().into_iter().filter(DaemonStatus::has_mgs).map(|s| s.nids.join(","));
    all.collect::<Vec<_>>().join(":")
}

/// How the new one is made.
fn how(fsname: &str, index: u16, mgs: &str) -> String {
    format!("mkfs.nacre --ost --replace --fsname={fsname} --index={index} --mgsnode={mgs} DIR")
}

/// Until a target of another UUID has the index; `None`: not waited for.
fn registered(
    label: &str,
    before: &str,
    interrupt: &Interrupt,
) -> Result<Option<BTreeMap<String, String>>, Failure> {
    while !interrupt.stopped() {
        let now = facts(&order_mgs(label, &Order::Show)?);
        if now.get("uuid").is_some_and(|u| u != before) {
            return Ok(Some(now));
        }
        sys::sleep(LOOK_AGAIN);
    }
    Ok(None)
}

fn report(label: &str, now: &BTreeMap<String, String>, line: &str, json: bool) {
    let text = |name: &str| now.get(name).cloned().unwrap_or_default();
    let active = text("active") == "yes";
    if json {
        output::json(&json!({"ost": label, "replaced": true, "uuid": text("uuid"), "nids": text("nids"),
            "active": active, "command": line}));
        return;
    }
    say!("{label}: another target has its place, at {}; nacre lost {label} lists what is lost", text("nids"));
    if !active {
        say!("it is deactivated still: lctl set_param -P osc.{label}*.active=1");
    }
}

fn run(args: &[OsString]) -> Result<i32, Failure> {
    let p = getopt::parse(args, OPTS)?;
    let [name] = p.operands.as_slice() else { return Err(Failure::usage("name one OST")) };
    let (label, id) = label(name)?;
    let before = facts(&order_mgs(&label, &Order::Open)?);
    let uuid = before.get("uuid").cloned().ok_or_else(|| {
        Failure::explained("cannot replace", &label, Errno::EPROTO, "the MGS does not say which target it is")
    })?;
    let fsname = label.rsplit_once('-').map_or("", |(fs, _)| fs);
    let line = how(fsname, id.index, &mgs_nids());
    if !p.has("json") {
        say!("{label}: one target may take its place. On the node that is to serve it:\n\n  {line}");
        say!("  nacred --nid ITS-ADDRESS@tcp DIR\n");
        output::flush();
    }
    if p.has("no-wait") {
        if p.has("json") {
            output::json(&json!({"ost": label, "replaced": false, "command": line}));
        }
        return Ok(0);
    }
    let shown = ProgressLine::for_terminal(p.has("quiet") || p.has("json"));
    shown.show(|| format!("{label}: waiting until it has registered"));
    let (now, signalled) = interrupt::guarded(|| {}, |i| registered(&label, &uuid, i));
    shown.clear();
    match now? {
        Some(now) => {
            report(&label, &now, &line, p.has("json"));
            Ok(0)
        }
        None => {
            eprintln!(
                "nacre replace: not waited for; its index stays open: lctl registration {label} no-replace takes that back"
            );
            Ok(signalled.unwrap_or(EXIT_TROUBLE))
        }
    }
}

/// The command: arguments behind `replace`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre replace", USAGE), args, |_| EXIT_TROUBLE, run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_says_by_itself_which_target_is_meant() {
        let named = |s: &str| label(OsStr::new(s)).ok();
        assert_eq!(named("my-fs-OST001a"), Some(("my-fs-OST001a".into(), TargetId::ost(0x1a))));
        assert_eq!(named("my-fs-MDT0000"), None);
    }

    #[test]
    fn what_the_mgs_says_is_read_line_by_line() {
        let f = facts("target: demo-OST0001\nuuid: 00ff\nnids: 10.0.0.1@tcp\nactive: no\n");
        assert_eq!((f["uuid"].as_str(), f["active"].as_str()), ("00ff", "no"));
        let line = "mkfs.nacre --ost --replace --fsname=demo --index=26 --mgsnode=10.0.0.1@tcp DIR";
        assert_eq!(how("demo", 26, "10.0.0.1@tcp"), line);
    }
}
