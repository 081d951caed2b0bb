//! `lctl barrier_freeze`, `barrier_thaw`, `barrier_stat`, `barrier_rescan`: the write barrier of a file
//! system's metadata targets, on the host of its MGS, or the one that serves them.

use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag};
use crate::interrupt::{Interrupt, guarded};
use crate::local::{Daemon, DaemonReply, DaemonRequest, DaemonTarget, HostAnswer, HostOrder, show};
use crate::orders::{Place, Site};
use crate::{output, say};
use model::barrier::{BARRIER_DEFAULT_S, BARRIER_MAX_S, BarrierOrder, BarrierStanding, BarrierState};
use model::{Errno, TargetId};
use serde_json::json;
use std::ffi::OsString;
use std::time::Duration;

pub const USAGE_FREEZE: &str = "FSNAME [TIMEOUT]   (seconds, 1 to 3600; 30)";
pub const USAGE_THAW: &str = "FSNAME";
pub const USAGE_STAT: &str = "[-s|--state] [-t|--timeout] [--json] FSNAME";
pub const USAGE_RESCAN: &str = "FSNAME [TIMEOUT]   (seconds; 30)";

/// Between two looks whether it is frozen.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whom a metadata target's barrier is asked by.
enum Way {
    /// The daemon of this host that serves it.
    Here(Daemon),
    /// The MGS of this host, wherever the target is.
    Mgs(Site),
}

/// A metadata target, and how it is reached.
pub struct Served {
    way: Way,
    pub label: String,
}

impl Served {
    /// One that the MGS of this host knows.
    pub fn by(site: &Site, place: &Place) -> Served {
        Served { way: Way::Mgs(site.clone()), label: place.label.clone() }
    }

    /// That of a daemon of this host which is known to serve it.
    pub fn here(daemon: &Daemon, label: &str) -> Served {
        Served { way: Way::Here(daemon.clone()), label: label.to_string() }
    }

    /// Those of a file system: all of them on the host of its MGS, those that are here on others. `ENODEV`:
    /// there is none.
    pub fn of(what: &str, fsname: &str) -> Result<Vec<Served>, Failure> {
        if let Some(site) = Site::known(fsname) {
            let mdts = site.targets.iter().filter(|t| is_mdt_of(&t.label, fsname));
            let all: Vec<Served> = mdts.map(|t| Served::by(&site, t)).collect();
            if !all.is_empty() {
                return Ok(all);
            }
        }
        let ours = |(daemon, t): (Daemon, DaemonTarget)| {
            is_mdt_of(&t.label, fsname).then_some(Served { way: Way::Here(daemon), label: t.label })
        };
        let mut all: Vec<Served> = Daemon::served().into_iter().filter_map(ours).collect();
        all.sort_by(|a, b| a.label.cmp(&b.label));
        if all.is_empty() {
            let why = "no nacred of this host serves a metadata target of it, or its MGS: run this on the host of its MGS, as root";
            return Err(Failure::explained(what, fsname, Errno::ENODEV, why));
        }
        Ok(all)
    }

    /// What the target's barrier says to that.
    pub fn ask(&self, what: &str, order: BarrierOrder) -> Result<BarrierStanding, Failure> {
        let failed = |errno: i32, why: &str| Failure::explained(what, &self.label, Errno(errno), why);
        let strange = || failed(Errno::EPROTO.0, "its answer is none");
        match &self.way {
            Way::Here(d) => match d.ask(&DaemonRequest::Barrier { target: self.label.clone(), order })? {
                DaemonReply::Barrier(standing) => Ok(standing),
                DaemonReply::Error { errno, message } => Err(failed(errno, &message)),
                _ => Err(strange()),
            },
            Way::Mgs(site) => {
                let heard = site.ask(vec![(self.label.clone(), HostOrder::Barrier(order))])?;
                match heard.into_iter().next().map(|h| h.answer) {
                    Some(HostAnswer::Barrier(standing)) => Ok(standing),
                    Some(HostAnswer::Failed { errno, why }) => Err(failed(errno, &why)),
                    _ => Err(strange()),
                }
            }
        }
    }

    /// Freezes it and waits until it is. A barrier that cannot be had, or is not wanted any more, is none
    /// when this returns.
    pub fn freeze(&self, what: &str, timeout_s: u32, i: &Interrupt) -> Result<BarrierStanding, Failure> {
        let mut s = self.ask(what, BarrierOrder::Freeze { timeout_s })?;
        while s.state.is_freezing() && !i.stopped() {
            i.pause(LOOK_EVERY);
            s = self.ask(what, BarrierOrder::Stat)?;
        }
        if s.state == BarrierState::Frozen {
            return Ok(s);
        }
        if i.stopped() {
            // Its answer changes nothing: it is over, or ends by itself.
            let _ = self.ask(what, BarrierOrder::Thaw);
            return Err(Failure::op(what, &self.label, Errno::EINTR));
        }
        let why = s.why.unwrap_or_else(|| format!("its barrier is in '{}'", s.state));
        Err(Failure::explained(what, &self.label, Errno::ETIMEDOUT, &why))
    }
}

/// Of which file system a target is the metadata target, if it is one.
pub fn fsname_of_mdt(label: &str) -> Option<&str> {
    label.rsplit_once("-MDT").map(|(fsname, _)| fsname).filter(|f| is_mdt_of(label, f))
}

fn is_mdt_of(label: &str, fsname: &str) -> bool {
    let index = label.strip_prefix(fsname).and_then(|l| l.strip_prefix("-MDT"));
    let index = index.filter(|n| n.len() == 4).and_then(|n| u16::from_str_radix(n, 16).ok());
    index.is_some_and(|n| TargetId::mdt(n).label(fsname) == label)
}

fn fsname(words: &[String]) -> Result<&String, Failure> {
    let name = words.first().ok_or_else(|| Failure::usage("name one file system"))?;
    if model::target::fsname_is_valid(name) {
        Ok(name)
    } else {
        Err(Failure::usage(format!("'{name}' is no name of a file system: 1 to 8 letters, digits, _ and -")))
    }
}

/// A file system, and perhaps for how long.
fn with_time(args: &[OsString]) -> Result<(String, u32), Failure> {
    let p = getopt::parse(args, &[])?;
    let words: Vec<String> = p.operands.iter().map(|a| show(a)).collect();
    let fsname = fsname(&words)?.clone();
    let time = match &words[1..] {
        [] => BARRIER_DEFAULT_S,
        [t] => t.parse().ok().filter(|t| (1..=BARRIER_MAX_S).contains(t)).ok_or_else(|| {
            Failure::usage(format!("'{t}' is no time: whole seconds, 1 to {BARRIER_MAX_S}"))
        })?,
        _ => return Err(Failure::usage("a file system and a time")),
    };
    Ok((fsname, time))
}

fn only_name(args: &[OsString]) -> Result<String, Failure> {
    let p = getopt::parse(args, &[])?;
    let words: Vec<String> = p.operands.iter().map(|a| show(a)).collect();
    if words.len() > 1 {
        return Err(Failure::usage("name one file system"));
    }
    fsname(&words).cloned()
}

/// `lctl barrier_freeze`: all metadata targets of this host, or none.
pub fn run_freeze(args: &[OsString]) -> Result<FirstError, Failure> {
    let (fsname, timeout_s) = with_time(args)?;
    let what = "cannot freeze";
    let all = Served::of(what, &fsname)?;
    let (done, stopped) = guarded(output::flush, |i| {
        for (n, t) in all.iter().enumerate() {
            if let Err(e) = t.freeze(what, timeout_s, i) {
                for frozen in &all[..n] {
                    let _ = frozen.ask("cannot thaw", BarrierOrder::Thaw);
                }
                return Err(e);
            }
        }
        Ok(())
    });
    let mut errors = FirstError::default();
    match stopped {
        Some(code) if done.is_err() => {
            errors.interrupted_so("lctl barrier_freeze", "nothing is frozen", code);
        }
        _ => done?,
    }
    Ok(errors)
}

/// `lctl barrier_thaw`: of each that can be.
pub fn run_thaw(args: &[OsString]) -> Result<FirstError, Failure> {
    let what = "cannot thaw";
    let mut errors = FirstError::default();
    for t in Served::of(what, &only_name(args)?)? {
        if let Err(f) = t.ask(what, BarrierOrder::Thaw) {
            errors.report("error: barrier_thaw", &f);
        }
    }
    Ok(errors)
}

/// What there is to say of several targets: the one that keeps the file system from being frozen.
fn summary(all: Vec<BarrierStanding>) -> BarrierStanding {
    let rank = |s: &BarrierStanding| (s.state == BarrierState::Frozen, s.left_s);
    all.into_iter().min_by_key(rank).expect("there is one target at least")
}

/// `lctl barrier_stat`.
pub fn run_stat(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[flag('s', "state"), flag('t', "timeout"), flag('\0', "json")])?;
    let (what, name) = ("cannot look at", only_name(&p.operands)?);
    let all = Served::of(what, &name)?;
    let said: Result<Vec<_>, _> = all.iter().map(|t| t.ask(what, BarrierOrder::Stat)).collect();
    let said = said?;
    if p.has("json") {
        let one = |(t, s): (&Served, &BarrierStanding)| json!({ "target": t.label, "state": s.state.word(), "timeout": s.left_s, "why": s.why });
        let targets: Vec<_> = all.iter().zip(&said).map(one).collect();
        let s = summary(said);
        say!(
            "{}",
            json!({ "fsname": name, "state": s.state.word(), "timeout": s.left_s, "targets": targets })
        );
        return Ok(FirstError::default());
    }
    let s = summary(said);
    match (p.has("state"), p.has("timeout")) {
        (true, false) => say!("{}", s.state),
        (false, true) => say!("{}", s.left_s),
        _ => {
            say!("state: {}", s.state);
            say!("timeout: {} seconds", s.left_s);
        }
    }
    Ok(FirstError::default())
}

/// `lctl barrier_rescan`: which metadata targets answer.
pub fn run_rescan(args: &[OsString]) -> Result<FirstError, Failure> {
    let (fsname, _) = with_time(args)?;
    let what = "cannot look at";
    let all = Served::of(what, &fsname)?;
    let away = all.iter().filter(|t| t.ask(what, BarrierOrder::Stat).is_err()).count();
    say!("{away} of {} MDT(s) in the filesystem {fsname} are inactive", all.len());
    Ok(FirstError::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_time_is_whole_seconds_within_bounds() {
        let time = |t: &str| with_time(&words(t)).map_err(|f| f.to_string());
        assert_eq!(time("scratch"), Ok(("scratch".into(), BARRIER_DEFAULT_S)));
        assert_eq!(time("scratch 3600"), Ok(("scratch".into(), 3600)));
        for wrong in ["", "scratch 0", "scratch 3601", "scratch x", "scratch 1 2", "a/b"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn targets_are_known_by_their_whole_name() {
        assert!(is_mdt_of("fs-MDT0000", "fs") && is_mdt_of("fs-MDT001a", "fs"));
        for other in ["fs-OST0000", "fs2-MDT0000", "fs-MDT00000", "MGS", "fs-MDT000g"] {
            assert!(!is_mdt_of(other, "fs"), "{other}");
        }
        assert_eq!(fsname_of_mdt("a-MDT-MDT001a"), Some("a-MDT"));
        for other in ["a-MDT-OST0000", "fs-OST0000", "fs-MDT00000", "MGS"] {
            assert_eq!(fsname_of_mdt(other), None, "{other}");
        }
    }

    #[test]
    fn a_file_system_is_frozen_when_all_of_it_is() {
        let one = |state, left_s| BarrierStanding { state, left_s, round: 1, why: None };
        let s = summary(vec![one(BarrierState::Frozen, 9), one(BarrierState::FreezingP1, 20)]);
        assert_eq!(s.state, BarrierState::FreezingP1);
        let s = summary(vec![one(BarrierState::Frozen, 9), one(BarrierState::Frozen, 8)]);
        assert_eq!((s.state, s.left_s), (BarrierState::Frozen, 8));
    }
}
