//! `lfs setquota`: what users, groups and projects may use.

use super::{parse_id, words};
use crate::command::osts::chosen_mounts;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Parsed, flag, value};
use crate::local;
use crate::size::parse_bytes;
use client::control::{Reply, Request};
use model::Errno;
use model::quota::{Grace, LimitChange, LimitOrder};
use model::usage::{QuotaId, QuotaType};
use std::ffi::OsString;

pub const USAGE: &str = "{-u|-g|-p ID} [-b SOFT] [-B HARD] [-i SOFT] [-I HARD] MOUNT\n       lfs setquota {-U|-G|-P} [-b SOFT] [-B HARD] [-i SOFT] [-I HARD] MOUNT\n       lfs setquota {-D|--delete} {-u|-g|-p ID} MOUNT\n       lfs setquota -t {-u|-g|-p} [-b GRACE] [-i GRACE] MOUNT";

/// Options that are limits.
const LIMITS: [&str; 4] = ["block-softlimit", "block-hardlimit", "inode-softlimit", "inode-hardlimit"];

/// Options that say nothing beside `-t`.
const NOT_WITH_GRACE: [&str; 7] =
    ["block-hardlimit", "inode-hardlimit", "default-usr", "default-grp", "default-prj", "default", "delete"];

const UNITS: [(char, u64); 5] = [('w', 604_800), ('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];

/// A time as `1w2d3h4m5s` or in seconds; `notify` is for ever.
pub fn parse_grace(s: &str) -> Option<Grace> {
    if s == "notify" {
        return Some(Grace::Notify);
    }
    if let Ok(n) = s.parse() {
        return Some(Grace::Seconds(n));
    }
    let (mut rest, mut sum) = (s, 0u64);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let unit = rest[end..].chars().next()?;
        let (_, seconds) = UNITS.into_iter().find(|(c, _)| *c == unit)?;
        sum = sum.checked_add(rest[..end].parse::<u64>().ok()?.checked_mul(seconds)?)?;
        rest = &rest[end + unit.len_utf8()..];
    }
    (!s.is_empty()).then_some(Grace::Seconds(sum))
}

/// As [`parse_grace`] reads it.
pub fn show_seconds(mut seconds: u64) -> String {
    let mut out = String::new();
    for (unit, of) in UNITS {
        if seconds >= of {
            out.push_str(&format!("{}{unit}", seconds / of));
            seconds %= of;
        }
    }
    if out.is_empty() { "0s".into() } else { out }
}

pub fn show_grace(g: Grace) -> String {
    match g {
        Grace::Seconds(s) => show_seconds(s),
        Grace::Notify => "notify".into(),
    }
}

/// The type of the one option of these three that is given, with its value.
fn one_of<'a>(p: &'a Parsed, longs: [&str; 3]) -> Result<Option<(QuotaType, Option<&'a str>)>, Failure> {
    let mut given = longs.iter().zip(QuotaType::ALL).filter(|(long, _)| p.has(long));
    match (given.next(), given.next()) {
        (None, _) => Ok(None),
        (Some((long, of)), None) => Ok(Some((of, p.value(long)))),
        (Some(_), Some(_)) => Err(Failure::usage("only one user, group or project at a time")),
    }
}

fn limit(p: &Parsed, long: &str, unit: u64) -> Result<Option<u64>, Failure> {
    let bad = |v: &str| {
        Failure::usage(format!(
            "bad limit '{v}': expected a number, with K, M, G, T, P or E behind it or not"
        ))
    };
    p.value(long).map(|v| parse_bytes(v, unit).ok_or_else(|| bad(v))).transpose()
}

fn changes(p: &Parsed) -> Result<(LimitChange, LimitChange), Failure> {
    let space =
        LimitChange { soft: limit(p, "block-softlimit", 1024)?, hard: limit(p, "block-hardlimit", 1024)? };
    let inodes = LimitChange { soft: limit(p, "inode-softlimit", 1)?, hard: limit(p, "inode-hardlimit", 1)? };
    if space.is_nothing() && inodes.is_nothing() {
        return Err(Failure::usage("no limit given: at least one of -b, -B, -i and -I"));
    }
    Ok((space, inodes))
}

fn order(p: &Parsed) -> Result<LimitOrder, Failure> {
    let owner = one_of(p, ["user", "group", "project"])?;
    let default = one_of(p, ["default-usr", "default-grp", "default-prj"])?;
    let reset = p.has("default") || p.has("delete");
    let id = |(of, id): (QuotaType, Option<&str>)| -> Result<QuotaId, Failure> {
        match id {
            Some(id) => parse_id(of, id),
            None => Err(Failure::usage(format!("no {} given", words(of).0))),
        }
    };
    match (owner, default) {
        (Some(_), Some(_)) => {
            Err(Failure::usage("-U, -G and -P are for all who have no limits of their own"))
        }
        (None, None) => Err(Failure::usage("whose limits? One of -u, -g, -p, -U, -G and -P")),
        (None, Some(_)) if reset => Err(Failure::usage("-D and --delete need one of -u, -g and -p")),
        (None, Some((of, _))) => {
            let (space, inodes) = changes(p)?;
            Ok(LimitOrder::Default { of, space, inodes })
        }
        (Some(_), None) if reset && LIMITS.iter().any(|long| p.has(long)) => {
            Err(Failure::usage("limits and -D or --delete do not go together"))
        }
        (Some(owner), None) if reset => Ok(LimitOrder::UseDefault { of: id(owner)? }),
        (Some(owner), None) => {
            let of = id(owner)?;
            let (space, inodes) = changes(p)?;
            Ok(LimitOrder::Own { of, space, inodes })
        }
    }
}

/// With `-t` the options -u, -g and -p have no value, and -b and -i are times.
fn grace_order(p: &Parsed) -> Result<LimitOrder, Failure> {
    if NOT_WITH_GRACE.iter().any(|long| p.has(long)) {
        return Err(Failure::usage("-t goes with -u, -g or -p, and with -b and -i, which are times"));
    }
    let of = one_of(p, ["user", "group", "project"])?;
    let (of, _) = of.ok_or_else(|| Failure::usage("whose grace times? One of -u, -g and -p"))?;
    let time = |long: &str| -> Result<Option<Grace>, Failure> {
        let bad =
            |v: &str| Failure::usage(format!("bad time '{v}': expected seconds, XXwXXdXXhXXmXXs or notify"));
        p.value(long).map(|v| parse_grace(v).ok_or_else(|| bad(v))).transpose()
    };
    let (space, inodes) = (time("block-grace")?, time("inode-grace")?);
    if space.is_none() && inodes.is_none() {
        return Err(Failure::usage("no grace time given: -b TIME or -i TIME"));
    }
    Ok(LimitOrder::Grace { of, space, inodes })
}

/// Whether `-t` is among the options: it changes what the others take.
fn asks_for_grace(args: &[OsString]) -> bool {
    args.iter().any(|a| a == "-t" || a == "--times")
}

fn parse(args: &[OsString]) -> Result<(Parsed, LimitOrder), Failure> {
    let grace = asks_for_grace(args);
    let owner = |c, long| if grace { flag(c, long) } else { value(c, long) };
    let opts = [
        owner('u', "user"),
        owner('g', "group"),
        owner('p', "project"),
        value('b', if grace { "block-grace" } else { "block-softlimit" }),
        value('B', "block-hardlimit"),
        value('i', if grace { "inode-grace" } else { "inode-softlimit" }),
        value('I', "inode-hardlimit"),
        flag('U', "default-usr"),
        flag('G', "default-grp"),
        flag('P', "default-prj"),
        flag('D', "default"),
        flag('\0', "delete"),
        flag('r', "reset"),
        flag('t', "times"),
        value('\0', "pool"),
    ];
    let p = getopt::parse(args, &opts)?;
    let unknown = |shown, why| Err(Failure::explained("cannot use option", shown, Errno::EOPNOTSUPP, why));
    if p.has("pool") {
        return unknown("--pool", "usage is not counted by pool");
    }
    if p.has("reset") {
        return unknown("-r", "usage is kept in transactions: see nacre quota verify");
    }
    if p.has("times") && !grace {
        return Err(Failure::usage("-t stands apart from other letters"));
    }
    let order = if grace { grace_order(&p)? } else { order(&p)? };
    Ok((p, order))
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let (p, order) = parse(args)?;
    if p.operands.len() != 1 {
        return Err(Failure::usage("of which file system? One mount point is given last"));
    }
    for m in chosen_mounts(&p.operands)? {
        match local::ask(&m.dir, &Request::SetQuota { order }) {
            Ok(Reply::Done) => {}
            Ok(other) => return Err(local::strange(&m.dir, &other)),
            Err(f) => return Err(explained(f, &order, &m.dir.display().to_string())),
        }
    }
    Ok(FirstError::default())
}

/// What the server's errno means here.
fn explained(f: Failure, order: &LimitOrder, mount: &str) -> Failure {
    let errno = Errno(f.exit_code());
    let why = match errno {
        Errno::EPERM => "only root may set limits",
        Errno::EINVAL if matches!(order, LimitOrder::Own { .. } | LimitOrder::UseDefault { .. }) => {
            "root, its group and project 0 have no limits"
        }
        Errno::EOPNOTSUPP => "its metadata server is of a version that does not enforce limits on space",
        _ => return f,
    };
    Failure::explained("setquota failed on", mount, errno, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<LimitOrder, Failure> {
        parse(&args.iter().map(OsString::from).collect::<Vec<_>>()).map(|(_, o)| o)
    }

    #[test]
    fn the_forms_of_the_manual_are_understood() {
        let of = QuotaId { of: QuotaType::User, id: 77 };
        let none = LimitChange::default();
        let inodes = LimitChange { soft: Some(1000), hard: Some(2048) };
        let own = |space| LimitOrder::Own { of, space, inodes };
        assert_eq!(parsed(&["-u", "77", "-i", "1000", "-I", "2k", "/mnt"]).unwrap(), own(none));
        let zero = LimitChange { soft: Some(0), hard: Some(5 << 20) };
        let all = ["-u", "77", "-b", "0", "-B", "5120", "--inode-softlimit=1000", "-I2048", "/mnt"];
        assert_eq!(parsed(&all).unwrap(), own(zero), "a bare number of -B counts KiB");
        let hard = LimitChange { soft: None, hard: Some(9) };
        let default = LimitOrder::Default { of: QuotaType::Project, space: none, inodes: hard };
        assert_eq!(parsed(&["-P", "-I", "9", "/mnt"]).unwrap(), default);
        for reset in ["-D", "--delete"] {
            assert_eq!(parsed(&[reset, "-u", "77", "/mnt"]).unwrap(), LimitOrder::UseDefault { of });
        }
        let grace = |space, inodes| LimitOrder::Grace { of: QuotaType::Group, space, inodes };
        let week = Some(Grace::Seconds(604_800));
        assert_eq!(
            parsed(&["-t", "-g", "-b", "1w", "-i", "notify", "/mnt"]).unwrap(),
            grace(week, Some(Grace::Notify))
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        for (bad, why) in [
            (&["-u", "77", "/mnt"][..], "no limit given"),
            (&["-i", "5", "/mnt"], "whose limits"),
            (&["-u", "7", "-g", "8", "-i", "5", "/mnt"], "only one"),
            (&["-u", "7", "-U", "-i", "5", "/mnt"], "of their own"),
            (&["-D", "-u", "7", "-i", "5", "/mnt"], "do not go together"),
            (&["-D", "-u", "7", "-i", "5x", "/mnt"], "do not go together"),
            (&["-D", "-U", "/mnt"], "need one of"),
            (&["-t", "-u", "-U", "-i", "5", "/mnt"], "-t goes with"),
            (&["-t", "-u", "-i", "5", "-I", "6", "/mnt"], "-t goes with"),
            (&["-tu", "7", "-i", "5", "/mnt"], "apart"),
            (&["-u", "7", "-i", "5x", "/mnt"], "bad limit"),
            (&["-t", "-u", "/mnt"], "no grace time"),
            (&["-t", "-i", "5", "/mnt"], "whose grace"),
            (&["-t", "-u", "-i", "5q", "/mnt"], "bad time"),
            (&["-u", "7", "--pool", "p", "-i", "5", "/mnt"], "by pool"),
        ] {
            let f = parsed(bad).expect_err("it makes no sense");
            assert!(f.to_string().contains(why), "{bad:?}: {f}");
        }
    }

    #[test]
    fn times_are_written_as_they_are_read() {
        for s in ["1w2d3h4m5s", "6d23h59m57s", "1w", "1s"] {
            let Some(Grace::Seconds(n)) = parse_grace(s) else { panic!("{s}") };
            assert_eq!(show_seconds(n), s);
        }
        assert_eq!((parse_grace("90"), show_seconds(0)), (Some(Grace::Seconds(90)), "0s".into()));
        assert!(
            ["", "w", "5", "5x", "99999999999999w"]
                .iter()
                .filter(|s| parse_grace(s).is_some())
                .eq(["5"].iter())
        );
    }
}
