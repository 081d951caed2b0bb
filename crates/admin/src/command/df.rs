//! `lfs df`: space and inodes, target by target.

use crate::command::osts::chosen_mounts;
use crate::command::pool;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag, maybe, value};
use crate::local::{self, LocalMount};
use crate::size::{human, parse_index};
use crate::{output, say};
use client::control::{Reply, Request, TargetSpace};
use model::{Errno, TargetKind};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;

pub const USAGE: &str = "[-i|--inodes] [-h|--human-readable|-H|--si] [-l|--lazy] [-m[IDX]|--mdt[=IDX]] [-o[IDX]|--ost[=IDX]] [-p|--pool [FSNAME.]POOL] [-v] [--json] [PATH...]";

struct View {
    inodes: bool,
    /// 1024 or 1000 for human-readable numbers.
    base: Option<u64>,
}

/// Total, used, available in the units of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    pub total: u64,
    pub used: u64,
    pub available: u64,
}

impl Numbers {
    pub fn of_space(s: &TargetSpace) -> Numbers {
        Numbers { total: s.total, used: s.total.saturating_sub(s.free), available: s.available }
    }

    pub fn of_inodes(s: &TargetSpace) -> Numbers {
        Numbers { total: s.files, used: s.files.saturating_sub(s.files_free), available: s.files_free }
    }

    /// Use%: rounded up.
    pub fn percent(self) -> u64 {
        let whole = u128::from(self.used) + u128::from(self.available);
        if whole == 0 { 0 } else { (u128::from(self.used) * 100).div_ceil(whole) as u64 }
    }
}

impl View {
    fn numbers(&self, s: &TargetSpace) -> Numbers {
        if self.inodes { Numbers::of_inodes(s) } else { Numbers::of_space(s) }
    }

    fn show(&self, n: u64) -> String {
        match (self.base, self.inodes) {
            (Some(b), _) => human(n, b),
            (None, true) => n.to_string(),
            (None, false) => (n >> 10).to_string(),
        }
    }

    fn header(&self) {
        let (size, used, free, pct) = match (self.inodes, self.base) {
            (true, _) => ("Inodes", "IUsed", "IFree", "IUse%"),
            (false, Some(_)) => ("bytes", "Used", "Available", "Use%"),
            (false, None) => ("1K-blocks", "Used", "Available", "Use%"),
        };
        say!("{:<20} {size:>11} {used:>11} {free:>11} {pct:>4} Mounted on", "UUID");
    }

    fn row(&self, name: &str, n: Numbers, place: &str, letters: &str) {
        let pct = n.percent();
        let tail = if letters.is_empty() { String::new() } else { format!(" {letters}") };
        let (t, u, a) = (self.show(n.total), self.show(n.used), self.show(n.available));
        say!("{name:<20} {t:>11} {u:>11} {a:>11} {:>4} {place}{tail}", format!("{pct}%"));
    }
}

/// A target's state, a letter for each bit.
pub fn letters(flags: u32) -> String {
    use wire::msg::statfs::state::{DEGRADED, NO_CREATE, NO_INODES, NO_SPACE, READ_ONLY};
    let all = [(DEGRADED, 'D'), (READ_ONLY, 'R'), (NO_CREATE, 'N'), (NO_SPACE, 'S'), (NO_INODES, 'I')];
    all.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, c)| c).collect()
}

/// Which targets `-o[IDX]` and `-m[IDX]` leave in.
fn chosen(p: &getopt::Parsed, s: &TargetSpace) -> Result<bool, Failure> {
    let pick = |long: &str| -> Result<Option<Option<u16>>, Failure> {
        match p.options.iter().rev().find(|(n, _)| *n == long) {
            None => Ok(None),
            Some((_, None)) => Ok(Some(None)),
            Some((_, Some(v))) => {
                let i = parse_index(v).ok_or_else(|| Failure::usage(format!("bad target index '{v}'")))?;
                Ok(Some(Some(i)))
            }
        }
    };
    let (mdt, ost) = (pick("mdt")?, pick("ost")?);
    if mdt.is_none() && ost.is_none() {
        return Ok(true);
    }
    let wanted = match s.target.target.kind {
        TargetKind::Mdt => mdt,
        TargetKind::Ost => ost,
        TargetKind::Mgt => None,
    };
    Ok(wanted.is_some_and(|i| i.is_none_or(|i| i == s.target.target.index)))
}

/// All targets but the MGS, in order; of the OSTs only those of `pool`, if there is one.
pub fn space(m: &LocalMount, pool: Option<&str>) -> Result<Vec<TargetSpace>, Failure> {
    let pool = pool.map(|p| pool::members(m, p)).transpose()?;
    match local::ask(&m.dir, &Request::Df)? {
        Reply::Space(mut s) => {
            s.retain(|t| {
                let ost = t.target.target.kind == TargetKind::Ost;
                !ost || pool.as_ref().is_none_or(|p| p.has(t.target.target.index))
            });
            s.retain(|t| t.target.target.kind != TargetKind::Mgt);
            s.sort_by_key(|t| t.target.target);
            Ok(s)
        }
        other => Err(local::strange(&m.dir, &other)),
    }
}

/// Targets together, and what several OSTs of them lie on once. Those that did not answer are not counted.
fn together<'a>(v: &View, all: impl Iterator<Item = &'a TargetSpace>) -> Numbers {
    let mut disks: BTreeMap<(u64, u16), Numbers> = BTreeMap::new();
    for s in all.filter(|s| s.errno.is_none()) {
        // What is not known to be shared is not.
        let alone = s.disk == 0 || s.target.target.kind == TargetKind::Mdt;
        let key = (s.disk, if alone { s.target.target.index + 1 } else { 0 });
        let (n, d) = (v.numbers(s), disks.entry(key).or_default());
        d.total = d.total.max(n.total);
        d.available = d.available.max(n.available);
        d.used = d.used.max(n.used);
    }
    disks.into_values().fold(Numbers::default(), |a, n| Numbers {
        total: a.total.saturating_add(n.total),
        used: a.used.saturating_add(n.used),
        available: a.available.saturating_add(n.available),
    })
}

/// Bytes of these OSTs together, what several of them lie on once.
pub fn bytes_of<'a>(osts: impl Iterator<Item = &'a TargetSpace>) -> Numbers {
    together(&View { inodes: false, base: None }, osts)
}

/// OSTs together; inodes are the MDTs', lowered to what the OSTs still can hold.
fn summary(v: &View, all: &[TargetSpace]) -> Numbers {
    let sum = |kind| together(v, all.iter().filter(|s| s.target.target.kind == kind));
    let osts = sum(TargetKind::Ost);
    if !v.inodes {
        return osts;
    }
    let mdts = sum(TargetKind::Mdt);
    // Hosts that make inodes as they go report none at all.
    let available = if osts.total > 0 { mdts.available.min(osts.available) } else { mdts.available };
    Numbers { total: mdts.used.saturating_add(available), used: mdts.used, available }
}

fn one_mount(m: &LocalMount, v: &View, p: &getopt::Parsed, errors: &mut FirstError) -> Result<(), Failure> {
    let all = space(m, p.value("pool"))?;
    v.header();
    let mut shown = Vec::new();
    for s in all {
        if !chosen(p, &s)? {
            continue;
        }
        let t = &s.target;
        let kind = if t.target.kind == TargetKind::Mdt { "MDT" } else { "OST" };
        if !t.active {
            if p.has("verbose") {
                say!("{:<20}: inactive device", t.target.to_string());
            }
            continue;
        }
        if let Some(e) = s.errno {
            say!("{:<20}: {}", t.uuid, Errno(e).text());
            if !p.has("lazy") {
                let f = Failure::op("cannot get space of", &t.uuid, Errno(e));
                errors.report("lfs df", &f);
            }
            continue;
        }
        let place = format!("{}[{kind}:{}]", m.dir.display(), t.target.index);
        v.row(&t.uuid, v.numbers(&s), &place, &letters(s.flags));
        shown.push(s);
    }
    say!("");
    v.row("filesystem_summary:", summary(v, &shown), &m.dir.display().to_string(), "");
    say!("");
    Ok(())
}

/// A target's row as programs read it.
pub fn row_of(s: &TargetSpace) -> serde_json::Value {
    json!({"uuid": s.target.uuid, "index": s.target.target.index, "kind": s.target.target.kind,
           "active": s.target.active, "errno": s.errno, "state": letters(s.flags),
           "total_bytes": s.total, "used_bytes": s.total.saturating_sub(s.free),
           "available_bytes": s.available, "inodes": s.files, "inodes_free": s.files_free})
}

fn as_json(m: &LocalMount, pool: Option<&str>) -> Result<serde_json::Value, Failure> {
    let rows: Vec<_> = space(m, pool)?.iter().map(row_of).collect();
    Ok(json!({"fsname": m.name.fsname, "mount": m.dir, "targets": rows}))
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let opts = [
        flag('i', "inodes"),
        flag('h', "human-readable"),
        flag('H', "si"),
        flag('l', "lazy"),
        maybe('m', "mdt"),
        maybe('o', "ost"),
        flag('v', "verbose"),
        value('p', "pool"),
        flag('\0', "json"),
    ];
    let p = getopt::parse(args, &opts)?;
    let base = if p.has("si") { Some(1000) } else { p.has("human-readable").then_some(1024) };
    let v = View { inodes: p.has("inodes"), base };
    let mut errors = FirstError::default();
    let mut rows = Vec::new();
    // A pool's file system says which mounts are meant.
    let of_pool = p.value("pool").and_then(|pool| pool.split_once('.')).filter(|_| p.operands.is_empty());
    let mut mounts = chosen_mounts(&p.operands)?;
    if let Some((fsname, _)) = of_pool {
        mounts.retain(|m| m.name.fsname == fsname);
        if mounts.is_empty() {
            return Err(Failure::op("no mount of", fsname, Errno::ENOENT));
        }
    }
    for m in mounts {
        if p.has("json") {
            rows.push(as_json(&m, p.value("pool"))?);
        } else {
            one_mount(&m, &v, &p, &mut errors)?;
        }
    }
    if p.has("json") {
        output::json(&json!(rows));
    }
    Ok(errors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::control::Target;
    use model::TargetId;

    /// A target of an exbibyte, three quarters of it in use.
    fn exbibyte(target: TargetId) -> TargetSpace {
        let target = Target {
            target,
            uuid: String::new(),
            nid: String::new(),
            state: "FULL".into(),
            active: true,
            server: "oss1".into(),
            heard: model::Timestamp::ZERO,
            away: None,
            refusal: None,
            domain: Vec::new(),
        };
        let (total, free) = (1 << 60, 1 << 58);
        TargetSpace {
            target,
            errno: None,
            total,
            free,
            available: free,
            files: total,
            files_free: free,
            disk: 0,
            flags: 0,
        }
    }

    #[test]
    fn exbibytes_are_added_and_shown_and_more_than_a_number_holds_is_the_largest() {
        let osts = |n: u16| (0..n).map(|i| exbibyte(TargetId::ost(i))).collect::<Vec<_>>();
        let bytes = View { inodes: false, base: None };
        let n = summary(&bytes, &osts(15));
        assert_eq!((n.total, n.used, n.available, n.percent()), (15 << 60, 45 << 58, 15 << 58, 75));
        assert_eq!(bytes.show(n.total), (15u64 << 50).to_string());
        assert_eq!(View { base: Some(1024), ..bytes }.show(n.total), "15.0E");
        let n = summary(&bytes, &osts(100));
        assert_eq!((n.total, n.used, n.available), (u64::MAX, u64::MAX, u64::MAX), "not less, and no panic");
        assert_eq!(n.percent(), 50);
        let mut all = osts(100);
        all.push(exbibyte(TargetId::mdt(0)));
        let n = summary(&View { inodes: true, base: None }, &all);
        assert_eq!((n.used, n.available), (3 << 58, 1 << 58));
    }
}
