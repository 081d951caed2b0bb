//! `lfs setquota`: what users, groups and projects may use.

use super::directory::{self, DirectoryChange};
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
use std::path::Path;

pub const USAGE: &str = "{-u|-g|-p ID} [-b SOFT] [-B HARD] [-i SOFT] [-I HARD] MOUNT\n       lfs setquota {-u|-g|-p ID|-d DIR} --pool [FSNAME.]POOL {[-b SOFT] [-B HARD]|--delete} MOUNT\n       lfs setquota {-U|-G|-P} [-b SOFT] [-B HARD] [-i SOFT] [-I HARD] MOUNT\n       lfs setquota {-D|--delete} {-u|-g|-p ID} MOUNT\n       lfs setquota -d DIR [-b SOFT] [-B HARD] [-i SOFT] [-I HARD]\n       lfs setquota --delete -d DIR\n       lfs setquota -t {-u|-g|-p|-d} [-b GRACE] [-i GRACE] MOUNT";

/// Options that are limits.
const LIMITS: [&str; 4] = ["block-softlimit", "block-hardlimit", "inode-softlimit", "inode-hardlimit"];

/// Options that say nothing beside `-t`.
const NOT_WITH_GRACE: [&str; 8] = [
    "block-hardlimit",
    "inode-hardlimit",
    "default-usr",
    "default-grp",
    "default-prj",
    "default",
    "delete",
    "pool",
];

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

/// The type of the one option of these that is given, with its value.
fn one_of<'a>(p: &'a Parsed, longs: &[&str]) -> Result<Option<(QuotaType, Option<&'a str>)>, Failure> {
    let mut given = longs.iter().zip(QuotaType::ALL).filter(|(long, _)| p.has(long));
    match (given.next(), given.next()) {
        (None, _) => Ok(None),
        (Some((long, of)), None) => Ok(Some((of, p.value(long)))),
        (Some(_), Some(_)) => Err(Failure::usage("only one user, group, project or directory at a time")),
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

/// What is said of space and of inodes.
fn given(p: &Parsed) -> Result<(LimitChange, LimitChange), Failure> {
    let space =
        LimitChange { soft: limit(p, "block-softlimit", 1024)?, hard: limit(p, "block-hardlimit", 1024)? };
    let inodes = LimitChange { soft: limit(p, "inode-softlimit", 1)?, hard: limit(p, "inode-hardlimit", 1)? };
    Ok((space, inodes))
}

fn changes(p: &Parsed) -> Result<(LimitChange, LimitChange), Failure> {
    let (space, inodes) = given(p)?;
    if space.is_nothing() && inodes.is_nothing() {
        return Err(Failure::usage("no limit given: at least one of -b, -B, -i and -I"));
    }
    Ok((space, inodes))
}

fn order(p: &Parsed) -> Result<LimitOrder, Failure> {
    let owner = one_of(p, &["user", "group", "project"])?;
    if p.has("pool") && owner.is_none() {
        return Err(Failure::usage(
            "--pool goes with one of -u, -g, -p and -d: limits by pool are somebody's own",
        ));
    }
    let default = one_of(p, &["default-usr", "default-grp", "default-prj"])?;
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
        (Some(owner), None) if p.has("pool") => by_pool(p, id(owner)?),
        (Some(owner), None) if reset => Ok(LimitOrder::UseDefault { of: id(owner)? }),
        (Some(owner), None) => {
            let of = id(owner)?;
            let (space, inodes) = changes(p)?;
            Ok(LimitOrder::Own { of, space, inodes })
        }
    }
}

/// With `--pool`: what somebody may have on its OSTs. `-D` and `--delete` take that away.
fn by_pool(p: &Parsed, of: QuotaId) -> Result<LimitOrder, Failure> {
    let (space, inodes) = given(p)?;
    if !inodes.is_nothing() {
        return Err(Failure::usage("OSTs of a pool hold no inodes: with --pool only -b and -B"));
    }
    let zero = LimitChange { soft: Some(0), hard: Some(0) };
    let space = match (p.has("default") || p.has("delete"), space.is_nothing()) {
        (true, _) => zero,
        (false, true) => return Err(Failure::usage("no limit given: at least one of -b and -B")),
        (false, false) => space,
    };
    let pool = p.value("pool").unwrap_or_default();
    Ok(LimitOrder::Pool { of, pool: pool.to_string(), space })
}

/// With `-t` the options -u, -g and -p have no value, and -b and -i are times.
fn grace_order(p: &Parsed) -> Result<LimitOrder, Failure> {
    if NOT_WITH_GRACE.iter().any(|long| p.has(long)) {
        return Err(Failure::usage(
            "-t goes with -u, -g, -p or -d, and with -b and -i, which are times (of all pools as well)",
        ));
    }
    let of = one_of(p, &["user", "group", "project", "directory"])?;
    let (of, _) = of.ok_or_else(|| Failure::usage("whose grace times? One of -u, -g, -p and -d"))?;
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

/// What is asked for.
enum Asked {
    Order(LimitOrder),
    Directory(DirectoryChange),
}

fn parse(args: &[OsString]) -> Result<(Parsed, Asked), Failure> {
    let grace = asks_for_grace(args);
    let owner = |c, long| if grace { flag(c, long) } else { value(c, long) };
    let opts = [
        owner('u', "user"),
        owner('g', "group"),
        owner('p', "project"),
        owner('d', "directory"),
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
    if p.has("reset") {
        let why = "usage is kept in transactions: see nacre quota verify";
        return Err(Failure::explained("cannot use option", "-r", Errno::EOPNOTSUPP, why));
    }
    if p.has("times") && !grace {
        return Err(Failure::usage("-t stands apart from other letters"));
    }
    let asked = if grace {
        Asked::Order(grace_order(&p)?)
    } else if p.has("directory") {
        Asked::Directory(directory_change(&p)?)
    } else {
        Asked::Order(order(&p)?)
    };
    Ok((p, asked))
}

/// With `-d`: limits of a directory, which has a quota from then on, or none.
fn directory_change(p: &Parsed) -> Result<DirectoryChange, Failure> {
    let others = ["user", "group", "project", "default-usr", "default-grp", "default-prj", "default"];
    if others.iter().any(|long| p.has(long)) {
        return Err(Failure::usage("-d goes with limits, with --delete, and with -t, and with nothing else"));
    }
    if let Some(pool) = p.value("pool") {
        // Of whom is known once the directory is looked at.
        let nobody = QuotaId { of: QuotaType::Directory, id: 0 };
        return match by_pool(p, nobody)? {
            LimitOrder::Pool { space, .. } => Ok(DirectoryChange::Pool { pool: pool.to_string(), space }),
            other => unreachable!("with --pool it is of a pool: {other:?}"),
        };
    }
    match (p.has("delete"), given(p)?) {
        (true, (space, inodes)) if space.is_nothing() && inodes.is_nothing() => Ok(DirectoryChange::Delete),
        (true, _) => Err(Failure::usage("limits and --delete do not go together")),
        (false, (space, inodes)) => Ok(DirectoryChange::Limits { space, inodes }),
    }
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let (p, asked) = parse(args)?;
    let order = match asked {
        Asked::Order(order) => order,
        // The directory says which file system it is; a mount point behind it is what habit adds.
        Asked::Directory(_) if p.operands.len() > 1 => {
            return Err(Failure::usage("-d DIR says which directory: one mount point may follow it"));
        }
        Asked::Directory(change) => {
            return directory::change(Path::new(p.value("directory").unwrap_or_default()), &change);
        }
    };
    if p.operands.len() != 1 {
        return Err(Failure::usage("of which file system? One mount point is given last"));
    }
    for m in chosen_mounts(&p.operands)? {
        order_limits(&m.dir, &order)?;
    }
    Ok(FirstError::default())
}

/// Sets limits of the file system that is mounted there.
pub(crate) fn order_limits(mount: &Path, order: &LimitOrder) -> Result<(), Failure> {
    let order = &in_file_system(mount, order)?;
    match local::ask(mount, &Request::SetQuota { order: order.clone() }) {
        Ok(Reply::Done) => Ok(()),
        Ok(other) => Err(local::strange(mount, &other)),
        Err(f) => Err(explained(f, order, &mount.display().to_string())),
    }
}

/// A pool may be named with its file system, which then is the one that is mounted there.
fn in_file_system(mount: &Path, order: &LimitOrder) -> Result<LimitOrder, Failure> {
    let LimitOrder::Pool { of, pool, space } = order else { return Ok(order.clone()) };
    let Some((fs, name)) = pool.split_once('.') else { return Ok(order.clone()) };
    let here = local::mount_name(mount)?.fsname;
    if fs != here {
        let why = format!("{} is a mount of '{here}', not of '{fs}'", mount.display());
        return Err(Failure::explained("cannot use pool", pool, Errno::EINVAL, &why));
    }
    Ok(LimitOrder::Pool { of: *of, pool: name.to_string(), space: *space })
}

/// What the server's errno means here.
fn explained(f: Failure, order: &LimitOrder, mount: &str) -> Failure {
    let errno = Errno(f.exit_code());
    let why = match errno {
        Errno::EPERM => "only root may set limits",
        Errno::ENOENT if matches!(order, LimitOrder::Pool { .. }) => {
            "there is no such pool: see lfs pool_list"
        }
        Errno::EINVAL if matches!(order, LimitOrder::Pool { of, .. } if of.is_limited()) => {
            "that is no pool's name"
        }
        Errno::EINVAL if !matches!(order, LimitOrder::Default { .. } | LimitOrder::Grace { .. }) => {
            "root, its group and project 0 have no limits"
        }
        Errno::EOPNOTSUPP if matches!(order, LimitOrder::Pool { .. }) => {
            "its metadata server is of a version that does not know limits by pool: upgrade it"
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
        match parse(&args.iter().map(OsString::from).collect::<Vec<_>>())?.1 {
            Asked::Order(order) => Ok(order),
            Asked::Directory(change) => panic!("of a directory: {change:?}"),
        }
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
        let pool = |space| LimitOrder::Pool { of, pool: "flash".into(), space };
        let set = ["-u", "77", "-b", "0", "-B", "5m", "--pool", "flash", "/mnt"];
        assert_eq!(parsed(&set).unwrap(), pool(LimitChange { soft: Some(0), hard: Some(5 << 20) }));
        let none = LimitChange { soft: Some(0), hard: Some(0) };
        assert_eq!(parsed(&["--delete", "-u", "77", "--pool=flash", "/mnt"]).unwrap(), pool(none));
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
            (&["-u", "7", "--pool", "p", "-i", "5", "/mnt"], "no inodes"),
            (&["-u", "7", "--pool", "p", "/mnt"], "no limit given"),
            (&["-U", "--pool", "p", "-B", "5", "/mnt"], "own"),
            (&["-t", "-u", "--pool", "p", "-b", "5", "/mnt"], "all pools"),
            (&["-d", "/mnt/a", "-u", "7"], "nothing else"),
            (&["-D", "-d", "/mnt/a"], "nothing else"),
            (&["--delete", "-d", "/mnt/a", "-I", "5"], "do not go together"),
            (&["-d", "/mnt/a", "-I", "5x"], "bad limit"),
        ] {
            let f = parsed(bad).expect_err("it makes no sense");
            assert!(f.to_string().contains(why), "{bad:?}: {f}");
        }
    }

    #[test]
    fn a_directory_may_be_limited_or_only_counted() {
        let of = |args: &[&str]| match parse(&args.iter().map(OsString::from).collect::<Vec<_>>()) {
            Ok((p, Asked::Directory(change))) => (p.value("directory").map(String::from), change),
            _ => panic!("{args:?}"),
        };
        let dir = Some("/mnt/a".to_string());
        let none = LimitChange::default();
        let counted = DirectoryChange::Limits { space: none, inodes: none };
        assert_eq!(of(&["-d", "/mnt/a"]), (dir.clone(), counted));
        let hard = LimitChange { hard: Some(1 << 30), ..none };
        let limited = DirectoryChange::Limits { space: hard, inodes: none };
        assert_eq!(of(&["-d", "/mnt/a", "-B", "1G", "/mnt"]), (dir.clone(), limited));
        assert_eq!(of(&["--delete", "-d", "/mnt/a"]), (dir, DirectoryChange::Delete));
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
