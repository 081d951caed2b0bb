//! `lctl pool_new`, `pool_add`, `pool_remove`, `pool_destroy` (on the MGS node), and `pool_list` of `lctl`
//! and `lfs`: named sets of OSTs.

mod items;

use crate::command::osts::chosen_mounts;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Parsed, flag};
use crate::local::{self, Daemon, DaemonReply, DaemonRequest, KnownPools, LocalMount};
use crate::{output, say};
use client::control::{Reply, Request};
use mgs::pools::{PoolChange, PoolOrder, PoolVerb};
use model::limits::POOL_MEMBERS_MAX;
use model::{Errno, Pool, TargetId};
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use world::sys::Deadline;

pub const USAGE_NEW: &str = "[-n|--nowait] FSNAME.POOL   (on the MGS node)";
pub const USAGE_DESTROY: &str = "[-n|--nowait] FSNAME.POOL   (on the MGS node)";
pub const USAGE_ADD: &str = "[-n|--nowait] FSNAME.POOL OST...   (on the MGS node)\n\
    OST: FSNAME-OST0001[_UUID], OST0001, 1, FSNAME-OST[0-10/2], OST[0-10/2,13], [0-3], 12-14";
pub const USAGE_REMOVE: &str = USAGE_ADD;
pub const USAGE_LIST: &str = "[--json] FSNAME | FSNAME.POOL | PATH";

/// How long a change waits until the mounts and MDTs of this host know it.
const VISIBLE_WITHIN: Duration = Duration::from_secs(12);

fn uuid(fsname: &str, ost: u16) -> String {
    format!("{}_UUID", TargetId::ost(ost).label(fsname))
}

/// The pools as the mount knows them.
pub fn of_mount(dir: &Path) -> Result<KnownPools, Failure> {
    match local::ask(dir, &Request::Pools)? {
        Reply::Pools { version, pools } => {
            Ok(KnownPools { target: dir.display().to_string(), version, pools })
        }
        other => Err(local::strange(dir, &other)),
    }
}

/// As the daemons of this host know them.
fn of_daemons(fsname: &str) -> Vec<KnownPools> {
    let asked = DaemonRequest::Pools { fsname: fsname.to_string() };
    let known = |r| match r {
        Ok(DaemonReply::Pools(known)) => known,
        _ => Vec::new(),
    };
    Daemon::ask_all(&Daemon::all(), &asked).into_iter().flat_map(known).collect()
}

fn mounts_of(fsname: &str) -> Vec<LocalMount> {
    local::mounts(false).into_iter().filter(|m| m.name.fsname == fsname).collect()
}

/// As the MGS says if it is here, else whoever of this host was told last. `ENOENT`: nobody knows the file
/// system.
fn of_fs(fsname: &str) -> Result<KnownPools, Failure> {
    let mut known = of_daemons(fsname);
    if let Some(i) = known.iter().position(|k| k.target == "MGS") {
        return Ok(known.swap_remove(i));
    }
    known.extend(mounts_of(fsname).iter().filter_map(|m| of_mount(&m.dir).ok()));
    known.into_iter().max_by_key(|k| k.version).ok_or_else(|| {
        let why = "no mount of it is on this host, and no server";
        Failure::explained("cannot list pools of", fsname, Errno::ENOENT, why)
    })
}

/// The OSTs of `pool`, which may be `FSNAME.POOL`, as the mount knows them. `ENOENT`: there is no such pool;
/// `EINVAL`: it is another file system's.
pub fn members(m: &LocalMount, pool: &str) -> Result<Pool, Failure> {
    let fsname = &m.name.fsname;
    let name = match pool.split_once('.') {
        Some((fs, name)) if fs == fsname => name,
        Some((fs, _)) => {
            let why = format!("{} is a mount of '{fsname}', not of '{fs}'", m.dir.display());
            return Err(Failure::explained("cannot use pool", pool, Errno::EINVAL, &why));
        }
        None => pool,
    };
    let missing = || Failure::explained("cannot use pool", pool, Errno::ENOENT, "there is no such pool");
    of_mount(&m.dir)?.pools.into_iter().find(|p| p.name == name).ok_or_else(missing)
}

/// File system and pool.
fn split(text: &str) -> Result<(&str, &str), Failure> {
    let why = "a pool is named with its file system: FSNAME.POOL";
    text.split_once('.').ok_or_else(|| Failure::explained("cannot use pool", text, Errno::EINVAL, why))
}

/// Has the active MGS do it.
fn order(what: &str, order: &PoolOrder) -> Result<PoolChange, Failure> {
    // The active one answers.
    let mut last = None;
    for d in Daemon::of_mgs() {
        match d.ask_if_there(&DaemonRequest::Pool(order.clone()))? {
            None => {}
            Some(DaemonReply::Pool(change)) => return Ok(change),
            Some(DaemonReply::Error { errno, message }) => last = Some((errno, message)),
            Some(_) => last = Some((Errno::EPROTO.0, "its answer is none".to_string())),
        }
    }
    let nowhere = || {
        let (errno, why) = local::no_mgs();
        (errno.0, why.to_string())
    };
    let (errno, why) = last.unwrap_or_else(nowhere);
    let pool = format!("{}.{}", order.fsname, order.pool);
    Err(Failure::explained(what, &pool, Errno(errno), &why))
}

/// Waits until the MDTs and mounts of this host have this configuration. `ETIMEDOUT`: one has not.
fn wait_visible(fsname: &str, version: u64) -> Result<(), Failure> {
    let mounts = mounts_of(fsname);
    let mut behind = String::new();
    let all_there = || {
        let daemons = of_daemons(fsname).into_iter();
        let known = daemons.chain(mounts.iter().filter_map(|m| of_mount(&m.dir).ok()));
        match known.into_iter().find(|k| k.version < version) {
            Some(k) => {
                behind = k.target;
                None
            }
            None => Some(()),
        }
    };
    Deadline::after(VISIBLE_WITHIN).wait_for(all_there).ok_or_else(|| {
        let why = "the pool is changed, and it was not told of it yet";
        Failure::explained("no news at", &behind, Errno::ETIMEDOUT, why)
    })
}

fn parse(args: &[OsString]) -> Result<Parsed, Failure> {
    getopt::parse(args, &[flag('n', "nowait")])
}

/// Makes or ends a pool.
fn whole(args: &[OsString], what: &str, verb: PoolVerb, done: &str) -> Result<FirstError, Failure> {
    let p = parse(args)?;
    let [name] = p.operands.as_slice() else { return Err(Failure::usage("name one pool: FSNAME.POOL")) };
    let name = local::show(name);
    let (fsname, pool) = split(&name)?;
    let change = order(what, &PoolOrder { fsname: fsname.into(), pool: pool.into(), verb })?;
    say!("Pool {name} {done}");
    output::flush();
    if !p.has("nowait") {
        wait_visible(fsname, change.version)?;
    }
    Ok(FirstError::default())
}

pub fn run_new(args: &[OsString]) -> Result<FirstError, Failure> {
    whole(args, "cannot create pool", PoolVerb::New, "created")
}

pub fn run_destroy(args: &[OsString]) -> Result<FirstError, Failure> {
    whole(args, "cannot destroy pool", PoolVerb::Destroy, "destroyed")
}

/// How members come or go: the words of it.
struct Change {
    command: &'static str,
    what: &'static str,
    done: &'static str,
    verb: fn(Vec<u16>) -> PoolVerb,
}

const ADD: Change =
    Change { command: "pool_add", what: "cannot add to pool", done: "added to", verb: PoolVerb::Add };
const REMOVE: Change = Change {
    command: "pool_remove",
    what: "cannot remove from pool",
    done: "removed from",
    verb: PoolVerb::Remove,
};

fn why(e: Errno, fsname: &str, pool: &str, ost: &str) -> String {
    match e {
        Errno::EINVAL => format!("OST {ost} is not part of the '{fsname}' fs"),
        Errno::EEXIST => format!("OST {ost} is already in pool {pool}"),
        Errno::ENOENT => format!("OST {ost} is not in pool {pool}"),
        Errno::ENOSPC => format!("all pools together have at most {POOL_MEMBERS_MAX} members"),
        _ => e.text().to_string(),
    }
}

fn some(args: &[OsString], c: &Change) -> Result<FirstError, Failure> {
    let p = parse(args)?;
    let [name, listed @ ..] = p.operands.as_slice() else {
        return Err(Failure::usage("no pool given: FSNAME.POOL"));
    };
    if listed.is_empty() {
        return Err(Failure::usage("no OST given"));
    }
    let name = local::show(name);
    let (fsname, pool) = split(&name)?;
    let mut errors = FirstError::default();
    let prefix = format!("error: {}", c.command);
    let mut wanted: Vec<u16> = Vec::new();
    for item in listed {
        match items::osts(fsname, &local::show(item)) {
            Ok(osts) => wanted.extend(osts),
            Err(f) => errors.report(&prefix, &f),
        }
        if wanted.len() > POOL_MEMBERS_MAX {
            let why = format!("more than {POOL_MEMBERS_MAX} OSTs at a time");
            return Err(Failure::explained(c.what, &name, Errno::E2BIG, &why));
        }
    }
    let asked = PoolOrder { fsname: fsname.into(), pool: pool.into(), verb: (c.verb)(wanted) };
    let change = order(c.what, &asked)?;
    for (ost, refused) in change.osts {
        let id = uuid(fsname, ost);
        match refused {
            None => say!("OST {id} {} pool {name}", c.done),
            Some(e) => {
                let f = Failure::explained(c.what, &name, e, &why(e, fsname, &name, &id));
                errors.report(&prefix, &f);
            }
        }
    }
    output::flush();
    if !p.has("nowait") {
        wait_visible(fsname, change.version)?;
    }
    Ok(errors)
}

pub fn run_add(args: &[OsString]) -> Result<FirstError, Failure> {
    some(args, &ADD)
}

pub fn run_remove(args: &[OsString]) -> Result<FirstError, Failure> {
    some(args, &REMOVE)
}

fn show_pool(fsname: &str, pool: &Pool) {
    say!("Pool: {fsname}.{}", pool.name);
    pool.osts.iter().for_each(|i| say!("{}", uuid(fsname, *i)));
}

fn show_pools(fsname: &str, pools: &[Pool]) {
    say!("Pools from {fsname}:");
    pools.iter().for_each(|p| say!("{fsname}.{}", p.name));
}

fn as_json(fsname: &str, pools: &[Pool]) -> serde_json::Value {
    let osts = |p: &Pool| p.osts.iter().map(|i| uuid(fsname, *i)).collect::<Vec<_>>();
    let one = |p: &Pool| json!({"pool": p.name, "indices": p.osts, "osts": osts(p)});
    json!({"fsname": fsname, "pools": pools.iter().map(one).collect::<Vec<_>>()})
}

/// `FSNAME`, `FSNAME.POOL` or a path on a mount: the pools of a file system, or the OSTs of one.
pub fn run_list(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[flag('\0', "json")])?;
    let [operand] = p.operands.as_slice() else {
        return Err(Failure::usage("name a file system, a pool (FSNAME.POOL) or a path on a mount"));
    };
    let text = local::show(operand);
    let (fsname, pool, known) = if text.contains('/') || text == "." || text == ".." {
        let mounts = chosen_mounts(std::slice::from_ref(operand))?;
        let [m] = mounts.as_slice() else { return Err(Failure::usage("name one path")) };
        (m.name.fsname.clone(), None, of_mount(&m.dir)?)
    } else {
        let (fsname, pool) = text.split_once('.').map_or((text.as_str(), None), |(f, p)| (f, Some(p)));
        (fsname.to_string(), pool, of_fs(fsname)?)
    };
    let mut pools = known.pools;
    if let Some(name) = pool {
        pools.retain(|p| p.name == name);
        if pools.is_empty() {
            let why = "there is no such pool";
            return Err(Failure::explained("cannot list pool", &text, Errno::ENOENT, why));
        }
    }
    match (p.has("json"), pool) {
        (true, _) => output::json(&as_json(&fsname, &pools)),
        (false, Some(_)) => show_pool(&fsname, &pools[0]),
        (false, None) => show_pools(&fsname, &pools),
    }
    Ok(FirstError::default())
}
