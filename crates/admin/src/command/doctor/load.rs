//! Checks of what waits now.

use super::checks::Finding;
use super::facts::Facts;
use crate::health::{Severity, ago};
use std::collections::BTreeMap;
use std::time::Duration;

/// A request that waits for so long hangs; for so much longer it is an error.
const HANGS_S: u64 = 10;
const HANGS_LONG_S: u64 = 60;
/// Files in the list of locks.
const LOCKS_SHOWN: usize = 5;

/// A line of `waiting_requests`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Waiting<'a> {
    verb: &'a str,
    age_s: u64,
    job: &'a str,
    file: &'a str,
    waits_for: &'a str,
}

impl<'a> Waiting<'a> {
    fn parse(line: &'a str) -> Option<Waiting<'a>> {
        let (verb, rest) = line.split_once(' ')?;
        let field = |name: &str| rest.split(' ').find_map(|w| w.strip_prefix(name)?.strip_prefix('='));
        Some(Waiting {
            verb,
            age_s: field("age")?.parse().ok()?,
            job: field("job")?,
            file: field("file")?,
            waits_for: field("waits_for")?,
        })
    }
}

/// Those of every session with a target: `osc.fs-OST0000-osc-1234`.
fn waiting(f: &Facts) -> impl Iterator<Item = (&str, Waiting<'_>)> {
    let sessions = ["osc.", "mdc.", "mgc."].into_iter().flat_map(|k| f.each(k, ".waiting_requests"));
    sessions.flat_map(|(device, text)| text.lines().filter_map(move |l| Some((device, Waiting::parse(l)?))))
}

/// The target of a session's name.
fn target(device: &str) -> &str {
    ["-osc-", "-mdc-"].iter().find_map(|at| device.split_once(at)).map_or(device, |(label, _)| label)
}

/// The oldest of each target, and how many there are.
pub fn requests(f: &Facts) -> Vec<Finding> {
    let mut by_target: BTreeMap<&str, Vec<Waiting<'_>>> = BTreeMap::new();
    for (device, w) in waiting(f).filter(|(_, w)| w.age_s >= HANGS_S) {
        by_target.entry(target(device)).or_default().push(w);
    }
    let one = |(label, mut all): (&str, Vec<Waiting<'_>>)| {
        all.sort_by_key(|w| std::cmp::Reverse(w.age_s));
        let w = all[0];
        let age = ago(Duration::from_secs(w.age_s));
        let of = |what: &str, v: &str| if v == "-" { String::new() } else { format!(", {what} {v}") };
        let place = match w.waits_for {
            "connection" => "until the connection is up",
            "slot" => "until others of this host are answered",
            "memory" => "until the server has memory for it",
            _ => "for the server's answer",
        };
        let (job, file) = (of("job", w.job), of("file", w.file));
        let more = if all.len() > 1 { format!("; {} in all", all.len()) } else { String::new() };
        let what = format!("{} waits {place} for {age}{job}{file}{more}", w.verb);
        let long = w.age_s >= HANGS_LONG_S;
        let severity = if long { Severity::Error } else { Severity::Warning };
        Finding { severity, object: label.into(), what, help: help(&w, label) }
    };
    by_target.into_iter().map(one).collect()
}

fn help(w: &Waiting<'_>, label: &str) -> String {
    match (w.waits_for, w.file) {
        ("server", fid) if fid.starts_with('[') => {
            format!("lfs fid2path MOUNT {fid}; lctl get_param *.{label}.*stats")
        }
        _ => "lfs status; nacre status (on its server)".into(),
    }
}

/// Files by how many requests wait for their locks.
pub fn locks(f: &Facts) -> Vec<Finding> {
    let mut by_file: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for (_, w) in waiting(f).filter(|(_, w)| w.verb == "enqueue" && w.file != "-") {
        let of = by_file.entry(w.file).or_default();
        *of = (of.0 + 1, of.1.max(w.age_s));
    }
    let mut all: Vec<_> = by_file.into_iter().collect();
    all.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let one = |(file, (count, oldest)): (&str, (usize, u64))| {
        let age = ago(Duration::from_secs(oldest));
        let what = format!("{count} requests of this host wait for its locks, one for {age}");
        Finding::warning(
            file,
            what,
            format!("lfs fid2path MOUNT {file}; lctl get_param obdfilter.*.group_locks"),
        )
    };
    all.into_iter().take(LOCKS_SHOWN).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(text: &str) -> Facts {
        let name = "osc.demo-OST0001-osc-12ab.waiting_requests".to_string();
        Facts { params: [(name, text.to_string())].into(), ..Facts::default() }
    }

    #[test]
    fn requests_that_hang_are_named_with_age_job_and_file() {
        let f = facts(
            "write age=75 job=dd.0 file=[0x200000401:0x1:0x0] waits_for=server\n\
             read age=12 job=- file=- waits_for=slot\ngetattr age=2 job=- file=- waits_for=server\nrubbish",
        );
        let found = requests(&f);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].object.as_str(), found[0].severity), ("demo-OST0001", Severity::Error));
        let want =
            "write waits for the server's answer for 75 s, job dd.0, file [0x200000401:0x1:0x0]; 2 in all";
        assert_eq!(found[0].what, want);
        assert!(requests(&facts("read age=3 job=- file=- waits_for=slot")).is_empty());
    }

    #[test]
    fn files_whose_locks_are_waited_for_come_by_how_many_wait() {
        let line = |n: u32, age| format!("enqueue age={age} job=- file=[0x1:0x{n}:0x0] waits_for=server\n");
        let f = facts(&(line(1, 3) + &line(2, 4) + &line(2, 9)));
        let found = locks(&f);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].object, "[0x1:0x2:0x0]");
        assert_eq!(found[0].what, "2 requests of this host wait for its locks, one for 9 s");
    }
}
