//! `lfs quota`: what users, groups and projects use, and may use; `nacre quota verify`: whether the servers
//! count that right. `lfs setquota` is in `set`, `nacre top users` and its like are in `top`.

pub mod directory;
pub mod set;
pub mod top;

use super::{pool, with_page};
use crate::command::osts::{chosen_file_systems, chosen_mounts};
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Parsed, flag, value};
use crate::local::{self, LocalMount};
use crate::size::{human, parse_index};
use crate::{names, output, say};
use client::control::{Reply, Request, TargetUsage};
use model::quota::{Limit, PoolStanding, Standing, Standings};
use model::usage::{QuotaId, QuotaType, Usage};
use model::{Errno, Pool, TargetKind};
use serde_json::{Value, json};
use set::{show_grace, show_seconds};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use wire::msg::quotactl::QuotaAsk;

pub const USAGE: &str = "[-q] [-v] [-h] [-o IDX|-m IDX] [--pool [FSNAME.]POOL] [-u|-g|-p ID] [--json] [MOUNT]\n       lfs quota [-q] [-v] [-h] [-o IDX|-m IDX] [--pool [FSNAME.]POOL] -d [--json] DIR...\n       lfs quota -a [-u|-g|-p|-d] [--pool [FSNAME.]POOL] [-s START] [-e END] [-n] [-h] [--json] [MOUNT]\n       lfs quota -t {-u|-g|-p|-d} [--json] [MOUNT]\n       lfs quota {-U|-G|-P} [-h] [--json] [MOUNT]";

const INCOMPLETE: &str = "Some errors happened when getting quota info. Some devices may be not working or deactivated. The data in \"[]\" is inaccurate.";

/// What all targets together say of one owner.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Sum {
    usage: Usage,
    limits: Standings,
    /// A target did not answer.
    incomplete: bool,
}

/// The mark behind what is more than it should be.
fn mark(s: &Standing, used: u64) -> &'static str {
    let Limit { soft, hard } = s.limit;
    if soft > 0 && used > soft || hard > 0 && used >= hard { "*" } else { "" }
}

/// How long a soft limit may still be exceeded.
fn grace(left: Option<u64>) -> String {
    match left {
        None => "-".into(),
        Some(0) => "expired".into(),
        Some(s) => show_seconds(s),
    }
}

/// How numbers are written.
#[derive(Clone, Copy)]
struct Style {
    human: bool,
    incomplete: bool,
}

impl Style {
    fn number(self, text: String) -> String {
        if self.incomplete { format!("[{text}]") } else { text }
    }

    /// As du(1) does: a part of a KiB is one.
    fn space(self, bytes: u64) -> String {
        let kib = bytes.div_ceil(1024);
        if self.human && kib > 0 { human(kib << 10, 1024) } else { kib.to_string() }
    }

    /// The columns behind a name. Limits of 0 are none.
    fn columns(self, u: Usage, l: &Standings) -> String {
        let blocks = self.number(self.space(u.bytes())) + mark(&l.space, u.bytes());
        let files = self.number(u.inodes.to_string()) + mark(&l.inodes, u.inodes);
        let (space, inodes) = (l.space.limit, l.inodes.limit);
        format!(
            "{blocks:>8}{:>8}{:>8}{:>8}{files:>8}{:>8}{:>8}{:>8}",
            self.space(space.soft),
            self.space(space.hard),
            grace(l.space_grace_left),
            inodes.soft,
            inodes.hard,
            grace(l.inodes_grace_left)
        )
    }

    fn row(self, name: &str, u: Usage, l: &Standings) {
        let columns = self.columns(u, l);
        if name.chars().count() > 10 {
            say!("      {name}\n{:16}{columns}", "");
        } else {
            say!("      {name:<10}{columns}");
        }
    }
}

fn header(first: &str) {
    say!(
        "      {first:<10}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}",
        "kbytes",
        "bquota",
        "blimit",
        "bgrace",
        "files",
        "iquota",
        "ilimit",
        "igrace"
    );
}

/// The long name of a type, and its letter.
pub(super) fn words(of: QuotaType) -> (&'static str, &'static str) {
    match of {
        QuotaType::User => ("user", "uid"),
        QuotaType::Group => ("group", "gid"),
        QuotaType::Project => ("project", "pid"),
        QuotaType::Directory => ("directory", "id"),
    }
}

fn name_of(q: QuotaId) -> String {
    match q.of {
        QuotaType::User => names::user(q.id),
        QuotaType::Group => names::group(q.id),
        QuotaType::Project => names::project_name(q.id),
        // By itself; [`directory::Names`] knows its path.
        QuotaType::Directory => q.id.to_string(),
    }
}

/// The types that were asked for.
fn types(p: &Parsed) -> Vec<QuotaType> {
    let all = QuotaType::ALL.map(|of| (words(of).0, of));
    all.into_iter().filter(|(long, _)| p.has(long)).map(|(_, of)| of).collect()
}

/// An owner by name or number, also as `u:NAME`.
fn parse_id(of: QuotaType, s: &str) -> Result<QuotaId, Failure> {
    let found = match of {
        QuotaType::User => names::uid(s.strip_prefix("u:").unwrap_or(s)),
        QuotaType::Group => names::gid(s.strip_prefix("g:").unwrap_or(s)),
        QuotaType::Project => names::project(s),
        QuotaType::Directory => None,
    };
    let id = found.ok_or_else(|| Failure::op(&format!("unknown {}", words(of).0), s, Errno::ENOENT))?;
    Ok(QuotaId { of, id })
}

/// What targets say of some owners, or of all of a type.
fn ask(m: &LocalMount, ask: QuotaAsk) -> Result<(Vec<TargetUsage>, Option<u32>), Failure> {
    match local::ask(&m.dir, &Request::Quota { ask })? {
        Reply::Quota { targets, next } => Ok((targets, next)),
        other => Err(local::strange(&m.dir, &other)),
    }
}

/// Whether a target is in the pool that is asked about.
fn is_within(pool: Option<&Pool>, t: &TargetUsage) -> bool {
    let target = t.target.target;
    pool.is_none_or(|p| target.kind == TargetKind::Ost && p.has(target.index))
}

/// How somebody stands with a pool, in the place of all of his limits.
fn standings_in(pool: &Pool, said: &[PoolStanding], id: QuotaId) -> Standings {
    let found = said.iter().find(|p| p.of == id && p.pool == pool.name);
    let of = |p: &PoolStanding| Standings {
        space: p.space,
        space_grace_left: p.grace_left,
        ..Standings::default()
    };
    found.map(of).unwrap_or_default()
}

/// Targets that `-o` and `-m` leave in.
fn chosen(p: &Parsed, t: &TargetUsage) -> Result<bool, Failure> {
    let pick = |long| -> Result<Option<u16>, Failure> {
        let bad = |v: &str| Failure::usage(format!("bad target index '{v}'"));
        p.value(long).map(|v| parse_index(v).ok_or_else(|| bad(v))).transpose()
    };
    Ok(match (pick("ost")?, pick("mdt")?, t.target.target.kind) {
        (None, None, _) => true,
        (Some(i), _, TargetKind::Ost) | (_, Some(i), TargetKind::Mdt) => i == t.target.target.index,
        _ => false,
    })
}

fn sum_of(targets: &[TargetUsage], id: QuotaId) -> Sum {
    targets.iter().filter(|t| t.target.active).fold(Sum::default(), |sum, t| Sum {
        usage: t.usage.iter().filter(|(q, _)| *q == id).fold(sum.usage, |s, (_, u)| s.plus(*u)),
        limits: limits_of(t, id).unwrap_or(sum.limits),
        incomplete: sum.incomplete || t.errno.is_some(),
    })
}

/// What a target says of somebody's limits: the metadata target does.
fn limits_of(t: &TargetUsage, id: QuotaId) -> Option<Standings> {
    t.limits.iter().find(|(q, _)| *q == id).map(|(_, s)| *s)
}

/// Bytes that somebody may have on a target without anybody being asked, if his space is limited.
fn granted(t: &TargetUsage, id: QuotaId) -> Option<u64> {
    t.shares.iter().find(|(q, _)| *q == id).map(|(_, share)| *share)
}

/// What a target may let somebody have by itself, in the place of limits.
fn share_of(t: &TargetUsage, id: QuotaId, all: &Standings) -> Standings {
    let of = |hard| Standing { limit: Limit { soft: 0, hard }, ..Standing::default() };
    let mdt = t.target.target.kind == TargetKind::Mdt;
    let inodes = if mdt { all.inodes.limit.hard } else { 0 };
    Standings { space: of(granted(t, id).unwrap_or(0)), inodes: of(inodes), ..Standings::default() }
}

/// The last line of a list of targets, as Lustre has it.
fn allocated(targets: &[TargetUsage], id: QuotaId, all: &Standings, style: Style) -> String {
    let each = || targets.iter().map(|t| share_of(t, id, all));
    let blocks = each().fold(0u64, |sum, s| sum.saturating_add(s.space.limit.hard));
    let inodes = each().fold(0u64, |sum, s| sum.saturating_add(s.inodes.limit.hard));
    format!("Total allocated inode limit: {inodes}, total allocated block limit: {}", style.space(blocks))
}

fn limits_json(l: &Standings) -> Value {
    let one = |s: &Standing, left: Option<u64>| json!({"soft": s.limit.soft, "hard": s.limit.hard, "over_since": s.over_since, "grace_left_s": left});
    json!({"bytes": one(&l.space, l.space_grace_left), "inodes": one(&l.inodes, l.inodes_grace_left),
           "default": l.by_default})
}

fn one(
    m: &LocalMount,
    p: &Parsed,
    (id, name): (QuotaId, &str),
    errors: &mut FirstError,
) -> Result<Value, Failure> {
    let pool = p.value("pool").map(|name| pool::members(m, name)).transpose()?;
    let (mut targets, _) = ask(m, QuotaAsk::Of(vec![id]))?;
    targets.sort_by_key(|t| t.target.target);
    let in_pools: Vec<PoolStanding> = targets.iter().flat_map(|t| t.pools.clone()).collect();
    let mut kept = Vec::new();
    for t in targets {
        if chosen(p, &t)? && is_within(pool.as_ref(), &t) {
            kept.push(t);
        }
    }
    let mut sum = sum_of(&kept, id);
    if let Some(pool) = &pool {
        sum.limits = standings_in(pool, &in_pools, id);
    }
    let style = Style { human: p.has("human-readable"), incomplete: sum.incomplete };
    let of_target = |t: &TargetUsage| t.usage.first().map(|(_, u)| *u).unwrap_or_default();
    if !p.has("json") {
        if !p.has("quiet") {
            say!("Disk quotas for {} {name} ({} {}):", id.of.name(), words(id.of).1, id.id);
            if let Some(pool) = &pool {
                say!("Quotas for pool: {}", pool.name);
            }
            header("Filesystem");
        }
        style.row(&m.dir.display().to_string(), sum.usage, &sum.limits);
        if p.has("verbose") || p.has("ost") || p.has("mdt") {
            for t in &kept {
                let own = Style { incomplete: t.errno.is_some(), ..style };
                own.row(&t.target.uuid, of_target(t), &share_of(t, id, &sum.limits));
            }
            say!("{}", allocated(&kept, id, &sum.limits, style));
        }
        if sum.incomplete {
            say!("{INCOMPLETE}");
        }
    }
    report_unanswered("lfs quota", &kept, errors);
    let rows: Vec<Value> = kept
        .iter()
        .map(|t| {
            let u = of_target(t);
            json!({"uuid": t.target.uuid, "errno": t.errno, "bytes": u.bytes(), "inodes": u.inodes,
                   "bytes_granted": granted(t, id)})
        })
        .collect();
    Ok(json!({"mount": m.dir, "type": words(id.of).0, "id": id.id, "name": name,
              "bytes": sum.usage.bytes(), "inodes": sum.usage.inodes, "limits": limits_json(&sum.limits),
              "complete": !sum.incomplete, "pool": pool.map(|p| p.name),
              "targets": rows}))
}

/// What some owners have, and may have, in their order; a target that does not answer is reported.
pub(super) fn standings(
    m: &LocalMount,
    ids: Vec<QuotaId>,
    program: &str,
    errors: &mut FirstError,
) -> Result<Vec<(Usage, Standings)>, Failure> {
    let (targets, _) = ask(m, QuotaAsk::Of(ids.clone()))?;
    report_unanswered(program, &targets, errors);
    Ok(ids.into_iter().map(|id| sum_of(&targets, id)).map(|s| (s.usage, s.limits)).collect())
}

/// What everybody of a type from one id to another uses, on all targets or those of a pool, page by page:
/// what the targets said, and their sums. Returns what they said last.
pub(crate) fn each_page(
    m: &LocalMount,
    of: QuotaType,
    (start, end): (u32, u32),
    pool: Option<&Pool>,
    mut f: impl FnMut(&[TargetUsage], BTreeMap<u32, Usage>),
) -> Result<Vec<TargetUsage>, Failure> {
    let mut after = start.checked_sub(1);
    loop {
        let (targets, next) = ask(m, QuotaAsk::All { of, after })?;
        let mut sums: BTreeMap<u32, Usage> = BTreeMap::new();
        let within = targets.iter().filter(|t| is_within(pool, t));
        for (q, u) in within.flat_map(|t| &t.usage).filter(|(q, _)| (start..=end).contains(&q.id)) {
            let sum = sums.entry(q.id).or_default();
            *sum = sum.plus(*u);
        }
        // Who has limits and nothing else.
        let limited = targets.iter().flat_map(|t| &t.limits).map(|(q, _)| q.id);
        let in_pools = targets.iter().flat_map(|t| &t.pools).map(|p| p.of.id);
        for id in limited.chain(in_pools).filter(|id| (start..=end).contains(id)) {
            sums.entry(id).or_default();
        }
        f(&targets, sums);
        match next.filter(|n| *n < end) {
            Some(n) => after = Some(n),
            None => return Ok(targets),
        }
    }
}

/// Targets in use that did not answer.
fn unanswered(targets: &[TargetUsage]) -> impl Iterator<Item = &TargetUsage> {
    targets.iter().filter(|t| t.target.active && t.errno.is_some())
}

/// Whether there are any: they are named.
fn report_unanswered(program: &str, targets: &[TargetUsage], errors: &mut FirstError) -> bool {
    for t in unanswered(targets) {
        let e = Errno(t.errno.unwrap_or(0));
        errors.report(program, &Failure::op("cannot get usage of", &t.target.uuid, e));
    }
    unanswered(targets).next().is_some()
}

/// Everybody of a type.
fn everybody(
    m: &LocalMount,
    p: &Parsed,
    of: QuotaType,
    errors: &mut FirstError,
) -> Result<Vec<Value>, Failure> {
    let number = |long: &str, other: u32| match p.value(long) {
        None => Ok(other),
        Some(v) => v.parse().map_err(|_| Failure::usage(format!("bad id '{v}'"))),
    };
    let (start, end) = (number("start-qid", 0)?, number("end-qid", u32::MAX)?);
    let mut rows = Vec::new();
    let plural = if of == QuotaType::Directory { "directories".into() } else { format!("{}s", words(of).0) };
    let paths =
        if of == QuotaType::Directory { directory::Names::of(m)? } else { directory::Names::default() };
    if !p.has("json") && !p.has("quiet") {
        say!("Disk quotas for all {plural} of {}:", m.dir.display());
        header("Name");
    }
    let pool = p.value("pool").map(|name| pool::members(m, name)).transpose()?;
    let last = each_page(m, of, (start, end), pool.as_ref(), |targets, sums| {
        let incomplete = unanswered(targets).next().is_some();
        let style = Style { human: p.has("human-readable"), incomplete };
        // What lay in a directory that is gone is counted to it until its objects are gone, too.
        let is_there = |id: &u32| of != QuotaType::Directory || paths.get(*id).is_some();
        for (id, u) in sums.into_iter().filter(|(id, _)| is_there(id)) {
            let named = |id| paths.get(id).unwrap_or_else(|| name_of(QuotaId { of, id }));
            let name = if p.has("numeric") { id.to_string() } else { named(id) };
            let owner = QuotaId { of, id };
            let limits = match &pool {
                Some(pool) => {
                    let said = targets.iter().map(|t| standings_in(pool, &t.pools, owner));
                    said.into_iter().find(|s| !s.space.limit.is_none())
                }
                None => targets.iter().find_map(|t| limits_of(t, owner)),
            };
            let limits = limits.unwrap_or_default();
            if p.has("json") {
                rows.push(json!({"type": words(of).0, "id": id, "name": name, "bytes": u.bytes(),
                                 "inodes": u.inodes, "limits": limits_json(&limits),
                                 "complete": !incomplete, "pool": pool.as_ref().map(|p| &p.name)}));
            } else {
                style.row(&name, u, &limits);
            }
        }
    })?;
    let incomplete = report_unanswered("lfs quota", &last, errors);
    if incomplete && !p.has("json") {
        say!("{INCOMPLETE}");
    }
    Ok(rows)
}

/// With `-t`, `-U`, `-G` or `-P`: the type that is asked about as a whole.
fn whole_type(p: &Parsed, types: &[QuotaType]) -> Result<Option<QuotaType>, Failure> {
    let defaults = ["default-usr", "default-grp", "default-prj"].iter().zip(QuotaType::ALL);
    let default: Vec<QuotaType> = defaults.filter(|(long, _)| p.has(long)).map(|(_, of)| of).collect();
    let asked = p.has("times") || !default.is_empty();
    if asked && p.has("pool") {
        return Err(Failure::usage("--pool goes not with -t, -U, -G and -P: those hold for all pools"));
    }
    if asked && ["all", "verbose", "ost", "mdt"].iter().any(|long| p.has(long)) {
        return Err(Failure::usage("-t, -U, -G and -P are about a whole type: not with -a, -v, -o and -m"));
    }
    match (p.has("times"), types, default.as_slice()) {
        (false, _, []) => Ok(None),
        (true, [of], []) | (false, [], [of]) => Ok(Some(*of)),
        (true, [], []) => Err(Failure::usage("whose grace times? One of -u, -g, -p and -d")),
        _ => Err(Failure::usage(
            "one type at a time: -t with one of -u, -g, -p and -d, or one of -U, -G and -P",
        )),
    }
}

/// Grace times of a type, or the limits of who has none of his own.
fn of_type(m: &LocalMount, p: &Parsed, of: QuotaType) -> Result<Value, Failure> {
    let (targets, _) = ask(m, QuotaAsk::Types)?;
    let found = targets.iter().flat_map(|t| &t.types).find(|t| t.of == of).copied();
    let Some(t) = found else {
        let errno = targets.iter().find_map(|t| t.errno.filter(|_| t.target.target.kind == TargetKind::Mdt));
        let why = "the metadata target does not say what holds for a whole type";
        let mount = m.dir.display().to_string();
        return Err(Failure::explained(
            "cannot get limits of",
            &mount,
            Errno(errno.unwrap_or(Errno::EOPNOTSUPP.0)),
            why,
        ));
    };
    let (space, inodes) = (show_grace(t.default.space.grace), show_grace(t.default.inodes.grace));
    if p.has("json") {
    } else if p.has("times") {
        say!("Block grace time: {space}; Inode grace time: {inodes}");
    } else {
        let style = Style { human: p.has("human-readable"), incomplete: false };
        let (blocks, files) = (t.default.space.limit, t.default.inodes.limit);
        if !p.has("quiet") {
            say!("Disk default {} quota:", of.name());
            say!(
                "      {:<10}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}",
                "Filesystem",
                "bquota",
                "blimit",
                "bgrace",
                "iquota",
                "ilimit",
                "igrace"
            );
        }
        let (soft, hard) = (style.space(blocks.soft), style.space(blocks.hard));
        say!(
            "      {:<10}{soft:>8}{hard:>8}{space:>8}{:>8}{:>8}{inodes:>8}",
            m.dir.display(),
            files.soft,
            files.hard
        );
    }
    Ok(json!({"mount": m.dir, "type": words(of).0, "enforced": t.enforced,
              "limits": limits_json(&t.default), "grace": {"bytes": space, "inodes": inodes}}))
}

/// Some options are about everybody, others about one owner.
fn fits_together(p: &Parsed) -> Result<(), Failure> {
    let (all, wrong) = match p.has("all") {
        true => ("goes not with", [("verbose", "-v"), ("ost", "-o"), ("mdt", "-m")]),
        false => ("needs", [("numeric", "-n"), ("start-qid", "-s"), ("end-qid", "-e")]),
    };
    match wrong.iter().find(|(long, _)| p.has(long)) {
        Some((_, shown)) => Err(Failure::usage(format!("option {shown} {all} -a"))),
        None => Ok(()),
    }
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let opts = [
        flag('q', "quiet"),
        flag('v', "verbose"),
        flag('h', "human-readable"),
        value('o', "ost"),
        value('m', "mdt"),
        flag('u', "user"),
        flag('g', "group"),
        flag('p', "project"),
        flag('d', "directory"),
        flag('a', "all"),
        value('s', "start-qid"),
        value('e', "end-qid"),
        flag('n', "numeric"),
        flag('\0', "show-root"),
        flag('t', "times"),
        flag('U', "default-usr"),
        flag('G', "default-grp"),
        flag('P', "default-prj"),
        value('\0', "pool"),
        flag('\0', "json"),
    ];
    let p = getopt::parse(args, &opts)?;
    fits_together(&p)?;
    let (mut errors, mut rows) = (FirstError::default(), Vec::new());
    let types = types(&p);
    if let Some(of) = whole_type(&p, &types)? {
        for m in chosen_file_systems(&p.operands)? {
            rows.push(of_type(&m, &p, of)?);
        }
    } else if p.has("all") {
        let types = if types.is_empty() { vec![QuotaType::User, QuotaType::Group] } else { types };
        for m in chosen_mounts(&p.operands)? {
            for of in &types {
                rows.extend(everybody(&m, &p, *of, &mut errors)?);
            }
        }
    } else if types == [QuotaType::Directory] {
        if p.operands.is_empty() {
            return Err(Failure::usage("no directory given"));
        }
        for dir in &p.operands {
            let (m, id) = directory::quota_of(Path::new(dir))?;
            rows.push(one(&m, &p, (id, &dir.to_string_lossy()), &mut errors)?);
        }
    } else {
        let (ids, mounts) = match types.as_slice() {
            [] => {
                let own = [(QuotaType::User, world::sys::euid()), (QuotaType::Group, world::sys::egid())];
                (own.map(|(of, id)| QuotaId { of, id }).to_vec(), &p.operands[..])
            }
            [of] => match p.operands.split_first() {
                Some((id, mounts)) => (vec![parse_id(*of, &id.to_string_lossy())?], mounts),
                None => return Err(Failure::usage(format!("no {} given", words(*of).0))),
            },
            _ => return Err(Failure::usage("only one of -u, -g, -p and -d")),
        };
        for m in chosen_mounts(mounts)? {
            for id in &ids {
                rows.push(one(&m, &p, (*id, &name_of(*id)), &mut errors)?);
            }
        }
    }
    if p.has("json") {
        output::json(&json!(rows));
    }
    Ok(errors)
}

const PAGE: &str = "\
usage: nacre quota verify [--json] [MOUNT...]

Each metadata and object server counts what its users, groups and projects have
and compares that with what it has kept in its transactions; what differs is
shown and set right. Users go on meanwhile. Root only.

exit status: 0 nothing differed, 1 something did, else the errno of the first
failure, 4 wrong usage
";

pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre quota", PAGE), args, Failure::exit_code, |args| {
        let p = getopt::parse(args, &[flag('\0', "json")])?;
        match p.operands.split_first() {
            Some((what, mounts)) if what == "verify" => verify(&p, mounts),
            Some((what, _)) => Err(Failure::usage(format!("unknown command '{}'", what.to_string_lossy()))),
            None => Err(Failure::usage("no command given")),
        }
    })
}

fn verify(p: &Parsed, mounts: &[OsString]) -> Result<i32, Failure> {
    let (mut errors, mut rows, mut differed) = (FirstError::default(), Vec::new(), 0);
    for m in chosen_file_systems(mounts)? {
        let (mut targets, _) = ask(&m, QuotaAsk::Verify)?;
        targets.sort_by_key(|t| t.target.target);
        for t in targets.iter().filter(|t| t.target.active) {
            if let Some(e) = t.errno {
                errors
                    .report("nacre quota", &Failure::op("cannot verify usage of", &t.target.uuid, Errno(e)));
                continue;
            }
            differed += t.differed.len();
            if p.has("json") {
                let differences: Vec<Value> = t.differed.iter().map(difference).collect();
                rows.push(json!({"uuid": t.target.uuid, "differed": differences}));
                continue;
            }
            match t.differed.len() {
                0 => say!("{}: what is counted is what there is", t.target.uuid),
                n => say!("{}: {n} differed and are set right", t.target.uuid),
            }
            for (id, was, is) in &t.differed {
                let what = format!("{} {}", words(id.of).0, name_of(*id));
                say!("  {what}: {} inodes, {} bytes were counted", was.inodes, was.bytes());
                say!(
                    "  {:1$}  {2} inodes, {3} bytes are there",
                    "",
                    what.chars().count(),
                    is.inodes,
                    is.bytes()
                );
            }
        }
    }
    if p.has("json") {
        output::json(&json!(rows));
    }
    Ok(match errors.exit_code() {
        0 => i32::from(differed > 0),
        code => code,
    })
}

fn difference((id, was, is): &(QuotaId, Usage, Usage)) -> Value {
    json!({"type": words(id.of).0, "id": id.id, "name": name_of(*id),
           "counted": {"bytes": was.bytes(), "inodes": was.inodes},
           "there": {"bytes": is.bytes(), "inodes": is.inodes}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::control::Target;
    use model::TargetId;

    #[test]
    fn columns_are_where_scripts_look_for_them() {
        let style = Style { human: false, incomplete: false };
        let (u, none) = (Usage { inodes: 3, blocks: 2048 }, Standings::default());
        assert_eq!(
            style.columns(u, &none),
            "    1024       0       0       -       3       0       0       -"
        );
        let odd = Style { human: true, incomplete: true };
        assert_eq!(odd.columns(u, &none), "  [1.0M]       0       0       -     [3]       0       0       -");
        assert!(style.columns(Usage { inodes: 0, blocks: 1 }, &none).starts_with("       1"));
        let of = |soft, hard| Standing { limit: Limit { soft, hard }, ..Standing::default() };
        let (space, inodes) = (of(0, 2 << 20), of(2, 5));
        let over = Standings { space, inodes, inodes_grace_left: Some(604_797), ..none };
        assert_eq!(
            style.columns(u, &over),
            "    1024       0    2048       -      3*       2       56d23h59m57s"
        );
        let expired = Standings { inodes: of(2, 3), inodes_grace_left: Some(0), ..none };
        assert!(style.columns(u, &expired).ends_with("      3*       2       3 expired"));
    }

    #[test]
    fn what_each_target_was_given_of_a_limit_is_shown_and_summed_up() {
        let id = QuotaId { of: QuotaType::User, id: 7 };
        let target = |target: TargetId, share: Option<u64>| {
            let (uuid, nid, state) = (target.to_string(), String::new(), "FULL".to_string());
            TargetUsage {
                target: Target {
                    target,
                    uuid,
                    nid,
                    state,
                    active: true,
                    server: String::new(),
                    heard: model::Timestamp::ZERO,
                    away: None,
                    refusal: None,
                    domain: Vec::new(),
                },
                errno: None,
                usage: Vec::new(),
                differed: Vec::new(),
                limits: Vec::new(),
                types: Vec::new(),
                shares: share.map(|s| (id, s)).into_iter().collect(),
                pools: Vec::new(),
            }
        };
        let of = |hard| Standing { limit: Limit { soft: 0, hard }, ..Standing::default() };
        let all = Standings { space: of(8 << 20), inodes: of(5), ..Standings::default() };
        let targets = [
            target(TargetId::mdt(0), Some(1 << 20)),
            target(TargetId::ost(0), Some(3 << 20)),
            target(TargetId::ost(1), None),
        ];
        let style = Style { human: false, incomplete: false };
        let u = Usage { inodes: 1, blocks: 4096 };
        let rows: Vec<String> = targets.iter().map(|t| style.columns(u, &share_of(t, id, &all))).collect();
        assert_eq!(rows[0], "   2048*       0    1024       -       1       0       5       -");
        assert_eq!(rows[1], "    2048       0    3072       -       1       0       0       -");
        assert_eq!(rows[2], "    2048       0       0       -       1       0       0       -");
        let sums = "Total allocated inode limit: 5, total allocated block limit: 4096";
        assert_eq!(allocated(&targets, id, &all, style), sums);
    }

    #[test]
    fn options_that_have_nothing_to_say_are_refused() {
        let of = |args: &[&str]| run(&args.iter().map(OsString::from).collect::<Vec<_>>()).err();
        for bad in [&["-t", "-u", "-a"][..], &["-U", "-v"]] {
            let f = of(bad).expect("a failure");
            assert!(f.to_string().contains("whole type"), "{bad:?}: {f}");
        }
        for bad in [&["-n", "-u", "root"][..], &["-s", "5"], &["-e", "5"], &["-a", "-v"], &["-a", "-o", "0"]]
        {
            let f = of(bad).expect("a failure");
            assert!(f.to_string().contains(" -a"), "{bad:?}: {f}");
        }
    }

    #[test]
    fn owners_are_named_or_numbered() {
        for (of, s) in [(QuotaType::User, "root"), (QuotaType::User, "u:root"), (QuotaType::Group, "g:0")] {
            assert_eq!(parse_id(of, s).unwrap(), QuotaId { of, id: 0 }, "{s}");
        }
        assert_eq!(parse_id(QuotaType::Project, "77").unwrap().id, 77);
        assert!(parse_id(QuotaType::User, "nobody-of-that-name").is_err());
    }
}
