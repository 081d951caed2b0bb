//! What is wrong with a mount's targets, as it sees them: for `lfs status` and `nacre doctor`.

use client::control::{Target, TargetSpace};
use model::{Errno, TargetKind};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::msg::statfs::state::{DEGRADED, NO_INODES, NO_SPACE, READ_ONLY};
use world::sys;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// It goes on, with less than there should be.
    Warning,
    /// Somebody waits, or gets errors.
    Error,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// What is wrong with something; as it is written, behind its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    Deactivated,
    /// The server's words.
    Refused(String),
    InRecovery,
    Failing(Errno),
    NeverReached,
    Silent,
    ReadOnly,
    NoSpace,
    NoInodes,
    Degraded,
    /// Nobody on a network answers, of so many targets.
    NetworkSilent(usize),
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wrong::Deactivated => f.write_str("is deactivated on this host"),
            Wrong::Refused(why) => write!(f, "does not let this host in: {why}"),
            Wrong::InRecovery => f.write_str("is in recovery"),
            Wrong::Failing(e) => write!(f, "answers with an error: {}", e.text()),
            Wrong::NeverReached => f.write_str("was never reached"),
            Wrong::Silent => f.write_str("does not answer"),
            Wrong::ReadOnly => f.write_str("is read-only"),
            Wrong::NoSpace => f.write_str("has no space left"),
            Wrong::NoInodes => f.write_str("has no inodes left"),
            Wrong::Degraded => f.write_str("has a degraded disk"),
            Wrong::NetworkSilent(targets) => write!(f, "none of the {targets} targets on it answers"),
        }
    }
}

/// What is wrong with a target, or with all of a network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// `OST0003`, `network tcp1`.
    pub object: String,
    /// Of a target: where it is.
    pub place: String,
    pub what: Wrong,
    /// Seconds of the wall clock.
    pub since: Option<i64>,
    /// For the users of the mount.
    pub consequence: &'static str,
    pub severity: Severity,
    /// Targets that it is about.
    pub targets: Vec<String>,
    /// Nothing goes on without it.
    pub is_fatal: bool,
}

/// `14:02`, or with the day if that is another one.
pub fn clock(seconds: i64, now: i64) -> String {
    let Some(t) = sys::local_time(seconds) else { return seconds.to_string() };
    let time = format!("{:02}:{:02}", t.hour, t.minute);
    match sys::local_time(now) {
        Some(n) if (n.year, n.month, n.day) == (t.year, t.month, t.day) => time,
        _ => format!("{:04}-{:02}-{:02} {time}", t.year, t.month, t.day),
    }
}

/// `40 s`, `3 min`, `2 h`, `4 days`.
pub fn ago(d: Duration) -> String {
    match d.as_secs() {
        s @ 0..=89 => format!("{s} s"),
        s @ 90..=5399 => format!("{} min", s / 60),
        s @ 5400..=172_799 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}

/// `since 14:02, 3 min`.
pub fn since(seconds: i64, now: i64) -> String {
    let lasts = Duration::from_secs(u64::try_from(now.saturating_sub(seconds)).unwrap_or(0));
    format!("since {}, {}", clock(seconds, now), ago(lasts))
}

/// Program version and host in what a server calls itself, `nacred 0.1.0 on oss2`.
pub fn version_and_host(server: &str) -> Option<(&str, &str)> {
    server.strip_prefix("nacred ")?.split_once(" on ")
}

/// `oss2, 10.0.0.4@tcp`.
fn place(t: &Target) -> String {
    match version_and_host(&t.server) {
        Some((_, host)) => format!("{host}, {}", t.nid),
        None => t.nid.clone(),
    }
}

fn waits(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Mgt => "what is mounted goes on; new mounts and new settings wait",
        TargetKind::Mdt => "whoever opens, makes or removes files of it waits",
        TargetKind::Ost => "reads and writes of files on it wait",
    }
}

fn refuses(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Mgt | TargetKind::Mdt => "changes of its files fail",
        TargetKind::Ost => "writes to files on it fail, new files go elsewhere",
    }
}

/// What is wrong with one target. `space`: what came of asking it; the MGS is not asked.
fn of_target(t: &Target, space: Option<&TargetSpace>) -> Option<Trouble> {
    let kind = t.target.kind;
    let (heard, away) = (t.heard.sec, t.away.map(|a| a.sec));
    let trouble = |what: Wrong, since: Option<i64>, consequence, severity, is_fatal| Trouble {
        object: t.target.to_string(),
        place: place(t),
        what,
        since,
        consequence,
        severity,
        targets: vec![t.target.to_string()],
        is_fatal,
    };
    if !t.active {
        let gone = "reads and writes of files on it fail";
        return Some(trouble(Wrong::Deactivated, None, gone, Severity::Error, kind == TargetKind::Mdt));
    }
    let failed = space.and_then(|s| s.errno).map(Errno);
    let is_up = matches!(t.state.as_str(), "FULL" | "IDLE");
    let is_silent = failed.is_some() || space.is_none() && !is_up && t.state != "NEW";
    if is_silent {
        let known = |s: i64| Some(s).filter(|s| *s > 0);
        let (what, since) = match (&t.refusal, t.state.as_str(), failed) {
            (Some(why), _, _) => (Wrong::Refused(why.clone()), away),
            (None, "RECOVER", _) => (Wrong::InRecovery, away),
            (None, "FULL" | "IDLE", Some(e)) if e != Errno::ETIMEDOUT => (Wrong::Failing(e), None),
            // It may have been connected, and silent, for a while before that was noticed.
            _ if t.server.is_empty() => (Wrong::NeverReached, away),
            _ => (Wrong::Silent, known(heard).or(away)),
        };
        let severity = if kind == TargetKind::Mgt { Severity::Warning } else { Severity::Error };
        return Some(trouble(what, since, waits(kind), severity, kind == TargetKind::Mdt));
    }
    let flags = space.map_or(0, |s| s.flags);
    if flags & READ_ONLY != 0 {
        return Some(trouble(Wrong::ReadOnly, None, refuses(kind), Severity::Error, false));
    }
    if flags & (NO_SPACE | NO_INODES) != 0 {
        let what = if flags & NO_SPACE != 0 { Wrong::NoSpace } else { Wrong::NoInodes };
        return Some(trouble(what, None, refuses(kind), Severity::Error, false));
    }
    let slower = "it is slower, and gets no new files";
    (flags & DEGRADED != 0).then(|| trouble(Wrong::Degraded, None, slower, Severity::Warning, false))
}

/// The network of a NID: `tcp1`.
fn network(nid: &str) -> &str {
    nid.rsplit_once('@').map_or("?", |(_, n)| n)
}

/// What is wrong with the targets of a mount: the MGS's of `targets`, the others as `space` has them. Those
/// that do not answer because nobody on their network does are one trouble.
pub fn of_targets(targets: &[Target], space: &[TargetSpace]) -> Vec<Trouble> {
    let mgs = targets.iter().filter(|t| t.target.kind == TargetKind::Mgt).map(|t| (t, None));
    let rest = space.iter().map(|s| (&s.target, Some(s)));
    let all: Vec<_> = mgs.chain(rest).map(|(t, s)| (t, of_target(t, s))).collect();
    let mut out = Vec::new();
    let mut nets: BTreeMap<&str, Vec<(&Target, Option<&Trouble>)>> = BTreeMap::new();
    for (t, trouble) in &all {
        nets.entry(network(&t.nid)).or_default().push((*t, trouble.as_ref()));
    }
    let mut told = BTreeSet::new();
    for (net, those) in &nets {
        let away = |t: &Trouble| matches!(t.what, Wrong::Silent | Wrong::NeverReached);
        let silent = those.iter().all(|(_, trouble)| trouble.is_some_and(away));
        let hosts: BTreeSet<&str> = those.iter().map(|(t, _)| t.nid.as_str()).collect();
        if !silent || hosts.len() < 2 {
            continue;
        }
        told.insert(*net);
        out.push(Trouble {
            object: format!("network {net}"),
            place: format!("{} servers", hosts.len()),
            what: Wrong::NetworkSilent(those.len()),
            since: those.iter().filter_map(|(_, trouble)| trouble.and_then(|t| t.since)).max(),
            consequence: "everything on them waits; look at this host's own network first",
            severity: Severity::Error,
            targets: those.iter().map(|(t, _)| t.target.to_string()).collect(),
            is_fatal: those.iter().any(|(t, _)| t.target.kind == TargetKind::Mdt),
        });
    }
    out.extend(all.iter().filter(|(t, _)| !told.contains(network(&t.nid))).filter_map(|(_, t)| t.clone()));
    out.sort_by_key(|t| std::cmp::Reverse(t.severity));
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use model::{TargetId, Timestamp};

    pub(crate) fn target(id: TargetId, host: u8) -> Target {
        Target {
            target: id,
            uuid: format!("demo-{id}_UUID"),
            nid: format!("10.0.0.{host}@tcp"),
            state: "FULL".into(),
            active: true,
            server: format!("nacred {} on oss{host}", crate::VERSION),
            heard: Timestamp { sec: 1000, nsec: 0 },
            away: None,
            refusal: None,
            domain: Vec::new(),
        }
    }

    pub(crate) fn space(target: Target) -> TargetSpace {
        TargetSpace {
            target,
            errno: None,
            total: 1 << 40,
            free: 1 << 39,
            available: 1 << 39,
            files: 1000,
            files_free: 900,
            disk: 0,
            flags: 0,
        }
    }

    fn silent(mut s: TargetSpace) -> TargetSpace {
        s.errno = Some(Errno::ETIMEDOUT.0);
        s
    }

    #[test]
    fn who_does_not_answer_is_named_with_its_place_and_since_when() {
        let ok = space(target(TargetId::mdt(0), 1));
        let gone = silent(space(target(TargetId::ost(3), 2)));
        let found = of_targets(&[target(TargetId::MGT, 1)], &[ok.clone(), gone]);
        assert_eq!(found.len(), 1);
        let t = &found[0];
        assert_eq!((t.object.as_str(), t.place.as_str()), ("OST0003", "oss2, 10.0.0.2@tcp"));
        let what = t.what.to_string();
        assert_eq!((what.as_str(), t.since, t.is_fatal), ("does not answer", Some(1000), false));
        assert!(of_targets(&[target(TargetId::MGT, 1)], &[ok]).is_empty());
    }

    #[test]
    fn a_network_on_which_nobody_answers_is_one_trouble() {
        let mut osts: Vec<_> =
            (0..3).map(|n| silent(space(target(TargetId::ost(n), 10 + n as u8)))).collect();
        osts.iter_mut().for_each(|s| s.target.nid = s.target.nid.replace("@tcp", "@tcp1"));
        osts.push(space(target(TargetId::mdt(0), 1)));
        let found = of_targets(&[target(TargetId::MGT, 1)], &osts);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].object, "network tcp1");
        assert_eq!(found[0].targets, ["OST0000", "OST0001", "OST0002"]);
    }

    #[test]
    fn states_and_flags_have_their_words() {
        let mut off = space(target(TargetId::ost(0), 2));
        off.target.active = false;
        let mut recovering = silent(space(target(TargetId::ost(1), 3)));
        recovering.target.state = "RECOVER".into();
        let mut refused = silent(space(target(TargetId::ost(2), 4)));
        (refused.target.state, refused.target.refusal) =
            ("DISCONN".into(), Some("no such file system".into()));
        let mut never = silent(space(target(TargetId::ost(3), 5)));
        (never.target.server, never.target.state) = (String::new(), "CONNECTING".into());
        let flagged = |n, flags| TargetSpace { flags, ..space(target(TargetId::ost(n), 6)) };
        let all =
            [off, recovering, refused, never, flagged(4, READ_ONLY), flagged(5, NO_SPACE), flagged(6, 1)];
        let words: Vec<_> = of_targets(&[], &all).into_iter().map(|t| t.what.to_string()).collect();
        let want = [
            "is deactivated on this host",
            "is in recovery",
            "does not let this host in: no such file system",
            "was never reached",
            "is read-only",
            "has no space left",
            "has a degraded disk",
        ];
        assert_eq!(words, want);
    }

    #[test]
    fn durations_and_moments_are_short() {
        let all: Vec<_> = [5, 100, 6000, 400_000].map(|s| ago(Duration::from_secs(s))).to_vec();
        assert_eq!(all, ["5 s", "1 min", "1 h", "4 days"]);
        assert_eq!(clock(1_000_000_000, 1_000_000_060).len(), 5);
        assert_eq!(clock(1_000_000_000, 1_100_000_000).len(), "2001-09-09 01:46".len());
    }
}
