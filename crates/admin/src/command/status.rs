//! `lfs status`: whether all is well with a mount, in one line, for everybody who uses it.

use super::{df, maintenance};
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag};
use crate::health::{self, Trouble};
use crate::local::{self, FSTYPE};
use crate::{output, say};
use client::control::{Reply, Request, Target, TargetSpace};
use model::maintenance::{Maintenance, Mode};
use model::{Errno, TargetKind};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use world::sys;

pub const USAGE: &str = "[--json] [MOUNT...]\n\
    one line for each mount: well; degraded, and why; not usable.\n\
    exit status: 0 well, 1 degraded, 2 not usable, 4 wrong usage";

/// How long the daemon of a mount may take: it asks servers for a second, and an ordinary user's question
/// goes through the mount itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a mount is. The number is the exit status.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Verdict {
    Well = 0,
    Degraded = 1,
    Unusable = 2,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Well => "well",
            Verdict::Degraded => "degraded",
            Verdict::Unusable => "not usable",
        }
    }
}

struct Health {
    mount: PathBuf,
    verdict: Verdict,
    troubles: Vec<Trouble>,
    /// Why nothing is known.
    failed: Option<String>,
    /// What is kept from its users, and why.
    maintenance: Option<Maintenance>,
}

/// What a mount says of its targets.
fn ask(dir: &Path) -> Result<(Vec<Target>, Vec<TargetSpace>), Failure> {
    // Asking for space wakes sessions that slept; the states that come with it are from before.
    let space = match local::ask(dir, &Request::Df)? {
        Reply::Space(s) => s,
        other => return Err(local::strange(dir, &other)),
    };
    match local::ask(dir, &Request::Targets)? {
        Reply::Targets(t) => Ok((t, space)),
        other => Err(local::strange(dir, &other)),
    }
}

/// The same within [`PATIENCE`]: a daemon that was stopped answers nobody.
pub fn ask_soon(dir: &Path) -> Result<(Vec<Target>, Vec<TargetSpace>), Failure> {
    let (tx, rx) = mpsc::channel();
    let path = dir.to_path_buf();
    let shown = dir.display().to_string();
    // Left behind if it waits: it ends with this program.
    sys::thread("status", move || drop(tx.send(ask(&path))))
        .map_err(|e| Failure::io("cannot ask", &shown, e))?;
    rx.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let why = format!("no answer within {} s", PATIENCE.as_secs());
        Err(Failure::explained("cannot ask", &shown, Errno::ETIMEDOUT, &why))
    })
}

fn verdict(targets: &[Target], space: &[TargetSpace], troubles: &[Trouble]) -> Verdict {
    let osts = || space.iter().filter(|s| s.target.target.kind == TargetKind::Ost);
    let none_left = osts().count() > 0 && osts().all(|s| s.errno.is_some() || !s.target.active);
    match troubles {
        _ if targets.is_empty() || none_left || troubles.iter().any(|t| t.is_fatal) => Verdict::Unusable,
        [] => Verdict::Well,
        _ => Verdict::Degraded,
    }
}

fn of_mount(dir: &Path) -> Health {
    of_answer(dir, &ask_soon(dir))
}

/// What a mount said of its targets, or why it said nothing.
type Answer = Result<(Vec<Target>, Vec<TargetSpace>), Failure>;

fn of_answer(dir: &Path, answer: &Answer) -> Health {
    let mount = dir.to_path_buf();
    match answer {
        Ok((targets, space)) => {
            let troubles = health::of_targets(targets, space);
            // It has just answered.
            let held = maintenance::of_mount(dir).filter(|(_, held)| *held != Mode::Off).map(|(m, _)| m);
            let verdict = verdict(targets, space, &troubles).max(by_maintenance(held.as_ref()));
            Health { mount, verdict, troubles, failed: None, maintenance: held }
        }
        Err(f) => {
            let errno = if let Failure::Op { errno, .. } = f { *errno } else { Errno::EIO };
            let why = match errno {
                Errno::ETIMEDOUT => {
                    "its daemon or its metadata server does not answer (root is told which: lfs status)"
                        .into()
                }
                Errno::ENOTCONN => "its daemon ended: unmount it and mount it again".into(),
                _ => f.to_string(),
            };
            Health {
                mount,
                verdict: Verdict::Unusable,
                troubles: Vec::new(),
                failed: Some(why),
                maintenance: None,
            }
        }
    }
}

/// What a maintenance makes of a mount that is well.
fn by_maintenance(m: Option<&Maintenance>) -> Verdict {
    match m.map(|m| m.mode) {
        None | Some(Mode::Off) => Verdict::Well,
        Some(Mode::ReadOnly) => Verdict::Degraded,
        Some(Mode::Closed) => Verdict::Unusable,
    }
}

/// `OST0003 (oss2, 10.0.0.4@tcp) does not answer since 14:02, 3 min`.
pub fn sentence(t: &Trouble, now: i64) -> String {
    let since = t.since.map_or(String::new(), |s| format!(" {}", health::since(s, now)));
    format!("{} ({}) {}{since}", t.object, t.place, t.what)
}

impl Health {
    fn line(&self, now: i64) -> String {
        let mut s = format!("{}: {}", self.mount.display(), self.verdict.word());
        if let Some(why) = &self.failed {
            return format!("{s}: {why}");
        }
        if let Some(m) = &self.maintenance {
            let since = health::since(m.since, now);
            s = format!("{s}: {} {since}; {}", m.sentence(), m.consequence());
        }
        let all: Vec<_> = self.troubles.iter().map(|t| sentence(t, now)).collect();
        // One line: of many targets the first are named, and what it means once.
        const SHOWN: usize = 3;
        if !all.is_empty() {
            s = format!("{s}: {}", all[..all.len().min(SHOWN)].join(", "));
        }
        if all.len() > SHOWN {
            s = format!("{s}, and {} more (--json has all)", all.len() - SHOWN);
        }
        if let Some(t) = self.troubles.first() {
            s = format!("{s}; {}", t.consequence);
        }
        s
    }

    fn json(&self, now: i64) -> Value {
        let one = |t: &Trouble| {
            json!({"object": t.object, "place": t.place, "what": t.what.to_string(), "targets": t.targets,
                   "since": t.since, "seconds": t.since.map(|s| now.saturating_sub(s).max(0)),
                   "consequence": t.consequence, "severity": t.severity.word()})
        };
        let kept = |m: &Maintenance| json!({"mode": m.mode.word(), "reason": m.reason, "since": m.since});
        json!({"mount": self.mount, "maintenance": self.maintenance.as_ref().map(kept), "status": self.verdict.word().replace(' ', "_"), "error": self.failed,
               "troubles": self.troubles.iter().map(one).collect::<Vec<_>>()})
    }
}

/// The mounts that are asked about; of a path the one that it lies on. Nothing is asked yet.
pub fn chosen(operands: &[OsString]) -> Result<Vec<PathBuf>, Failure> {
    let mut ours = sys::mounts::list().map_err(|e| Failure::io("cannot read", "/proc/mounts", e))?;
    ours.retain(|m| m.fstype == FSTYPE);
    if operands.is_empty() {
        return Ok(ours.into_iter().map(|m| m.dir).collect());
    }
    let one = |o: &OsString| {
        // A mount whose server is dead is not looked at.
        let plain = sys::files::absolute(Path::new(o)).unwrap_or_else(|_| PathBuf::from(o));
        match ours.iter().find(|m| m.dir == plain) {
            Some(m) => Ok(m.dir.clone()),
            None => local::mount_point(&plain),
        }
    };
    operands.iter().map(one).collect()
}

/// A target as programs read it: its row of `lfs df` with where it is and how its connection is.
fn target_row(t: &Target, space: Option<&TargetSpace>) -> Value {
    let server = health::version_and_host(&t.server);
    let mut row = json!({"target": t.target.to_string(), "label": t.label(), "kind": t.target.kind,
        "nid": t.nid, "host": server.map(|(_, host)| host), "version": server.map(|(v, _)| v),
        "connection": t.state, "active": t.active, "domain": t.domain});
    if let (Some(s), Value::Object(row)) = (space, &mut row)
        && let Value::Object(more) = df::row_of(s)
    {
        row.extend(more);
        // What several OSTs have in common; 0: it is not known to be shared.
        row.insert("disk".into(), json!(s.disk));
    }
    row
}

fn overview_of(source: &str, dir: &Path, now: i64) -> Value {
    let answer = ask_soon(dir);
    let mut all = of_answer(dir, &answer).json(now);
    let (targets, space) = answer.unwrap_or_default();
    let of = |t: &Target| space.iter().find(|s| s.target.target == t.target);
    let osts = space.iter().filter(|s| s.target.target.kind == TargetKind::Ost && s.target.active);
    let n = df::bytes_of(osts);
    all["fsname"] = json!(source.rsplit_once(":/").map_or(source, |(_, fs)| fs));
    all["source"] = json!(source);
    all["targets"] = json!(targets.iter().map(|t| target_row(t, of(t))).collect::<Vec<_>>());
    all["total_bytes"] = json!(n.total);
    all["used_bytes"] = json!(n.used);
    all["available_bytes"] = json!(n.available);
    all
}

/// The file systems that are mounted on this host, with their targets: what `lfs status` and `lfs df` say, in
/// one question to each. Of several mounts of one file system the first.
pub fn overview() -> Result<Value, Failure> {
    let mut ours = sys::mounts::list().map_err(|e| Failure::io("cannot read", "/proc/mounts", e))?;
    let mut met = BTreeSet::new();
    ours.retain(|m| m.fstype == FSTYPE && met.insert(m.source.clone()));
    let now = sys::wall_seconds();
    Ok(json!(sys::at_once(&ours, |m| overview_of(&m.source, &m.dir, now))))
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[flag('\0', "json")])?;
    let mounts = chosen(&p.operands)?;
    if mounts.is_empty() {
        let text = "no Nacre file system is mounted on this host".to_string();
        return Err(Failure::Op { text, errno: Errno::ENOENT });
    }
    let all = sys::at_once(&mounts, |m| of_mount(m));
    let now = sys::wall_seconds();
    if p.has("json") {
        output::json(&json!(all.iter().map(|h| h.json(now)).collect::<Vec<_>>()));
    } else {
        all.iter().for_each(|h| say!("{}", h.line(now)));
    }
    let mut status = FirstError::default();
    if let Some(worst) = all.iter().map(|h| h.verdict).max().filter(|v| *v != Verdict::Well) {
        status.ended(worst as i32);
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::tests::{space, target};
    use model::TargetId;

    fn health_of(space: &[TargetSpace]) -> Health {
        let targets = [target(TargetId::MGT, 1)];
        let troubles = health::of_targets(&targets, space);
        let verdict = verdict(&targets, space, &troubles);
        Health { mount: "/mnt".into(), verdict, troubles, failed: None, maintenance: None }
    }

    #[test]
    fn one_line_says_how_it_is_and_the_number_what_a_script_asks() {
        let mdt = space(target(TargetId::mdt(0), 1));
        let (mut gone, near) = (space(target(TargetId::ost(3), 2)), space(target(TargetId::ost(4), 3)));
        let well = health_of(&[mdt.clone(), gone.clone(), near.clone()]);
        assert_eq!((well.line(1180).as_str(), well.verdict as i32), ("/mnt: well", 0));
        gone.errno = Some(Errno::ETIMEDOUT.0);
        let degraded = health_of(&[mdt.clone(), gone.clone(), near]);
        let line = degraded.line(1180);
        let begin = "/mnt: degraded: OST0003 (oss2, 10.0.0.2@tcp) does not answer since ";
        assert!(line.starts_with(begin), "{line}");
        assert!(line.ends_with(", 3 min; reads and writes of files on it wait"), "{line}");
        assert_eq!(degraded.json(1180)["troubles"][0]["seconds"], 180);
        assert_eq!(degraded.verdict as i32, 1);
        let none = health_of(&[mdt.clone(), gone.clone()]);
        assert_eq!((none.verdict as i32, none.json(0)["status"].as_str()), (2, Some("not_usable")));
        let mut mdt = mdt;
        mdt.errno = Some(Errno::ETIMEDOUT.0);
        assert_eq!(health_of(&[mdt]).verdict, Verdict::Unusable);
    }

    #[test]
    fn a_maintenance_is_told_with_its_reason() {
        let m = Maintenance::parse("closed since=1000 reason=a new switch").unwrap();
        let verdict = by_maintenance(Some(&m));
        let h = Health { verdict, maintenance: Some(m), ..health_of(&[]) };
        let line = h.line(1180);
        assert!(line.starts_with("/mnt: not usable: closed for maintenance: a new switch since "), "{line}");
        assert!(line.ends_with("3 min; operations wait until it ends, and can be interrupted"), "{line}");
    }
}
