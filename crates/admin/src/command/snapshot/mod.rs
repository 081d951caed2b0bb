//! `nacre snapshot` and `lctl snapshot_*`: all targets of a file system as they are at one moment, in clones
//! of their files (decision 0084).

mod create;
mod mount;
pub mod record;
mod restore;
mod within;

use super::changelog::when;
use super::with_page;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::interrupt::{Interrupt, guarded};
use crate::live::ProgressLine;
use crate::local::show;
use crate::{output, say};
use create::CreateOptions;
use model::Errno;
use model::barrier::{BARRIER_DEFAULT_S, BARRIER_MAX_S};
use model::snapshot::SnapshotOrder;
use record::{Here, Snapshot};
use serde_json::json;
use std::ffi::OsString;
use store::snapshot;
use world::sys::{self, control, files};

const USAGE: &str = "\
usage: nacre snapshot create NAME [-F FSNAME] [-c TEXT] [-b on|off] [-t SECONDS] [--quiet]
       nacre snapshot list [NAME] [-F FSNAME] [-d] [--json]
       nacre snapshot mount NAME [-F FSNAME] [--nid NID] [--port N]
       nacre snapshot umount NAME [-F FSNAME]
       nacre snapshot modify NAME [-F FSNAME] [-c TEXT] [-N NEWNAME]
       nacre snapshot destroy NAME [-F FSNAME] [-f] [--quiet]
       nacre snapshot restore NAME PATH [--to PATH] [--from DIR] [--overwrite]
                              [--threads N] [-F FSNAME] [--json] [--quiet]

A snapshot is all targets of a file system as they are at one moment, in clones
of their files that take room only for what changes since: on XFS (reflink=1)
and btrfs. Run it on the host of the MGS: the servers of targets on other hosts
do their part when its daemon asks them. lctl knows the same as snapshot_create,
snapshot_list and so on, with -n NAME.

  create   under a write barrier: nobody waits for longer than that takes
  list     name, times, the file system's name when it is mounted, whether it is
  mount    each server of it serves its part beside the file system, as one of
           its own that nobody changes; prints how clients mount it
  umount   ends these servers
  modify   another name, another comment
  destroy  removes it and gives its room back
  restore  brings a file or a tree back, to where it was or to another place; what
           is there and is otherwise stays and is named. Root on the host of the
           MGS; anybody, with his own rights, where the snapshot is mounted

  -F, --fsname FSNAME   which, if the MGS has several
  -n, --name NAME       the snapshot, instead of the operand
  -c, --comment TEXT    what it is for
  -b, --barrier on|off  without: as after a power cut of all servers at once
  -t, --timeout SECONDS the barrier ends by then whatever happens (30)
  -N, --new NEWNAME     another name
  -f, --force           also if it is mounted, which ends
  -d, --detail          its targets, their folders, and the room that each takes for
                        itself: what no other file shares
      --nid NID         serve its MGS at this address of the host
      --port N          at this port, instead of the first that is free on all hosts
      --to PATH         what comes back is to be this, instead of what it was
      --from DIR        the snapshot is mounted there
      --overwrite       replace what is there and is otherwise
      --threads N       workers (twice as many as processors)
      --json            one JSON document
      --quiet           no progress

exit status: 0, or the errno of the failure, 4 wrong usage; of restore 1: not all
is as it was then, 130: interrupted, the same command goes on
";

const FSNAME: Opt = value('F', "fsname");
const NAME: Opt = value('n', "name");
const COMMENT: Opt = value('c', "comment");
const QUIET: Opt = flag('q', "quiet");
/// Lustre runs commands on other hosts with it.
const RSH: Opt = value('r', "rsh");

pub const USAGE_CREATE: &str =
    "-F FSNAME -n NAME [-c COMMENT] [-b on|off] [-t TIMEOUT]   (of the barrier: 1 to 3600 s; 30)";
pub const USAGE_LIST: &str = "-F FSNAME [-n NAME] [-d] [--json]";
pub const USAGE_MOUNT: &str = "-F FSNAME -n NAME [--nid NID] [--port N]";
pub const USAGE_UMOUNT: &str = "-F FSNAME -n NAME";
pub const USAGE_MODIFY: &str = "-F FSNAME -n NAME [-c COMMENT] [-N NEWNAME]";
pub const USAGE_DESTROY: &str = "-F FSNAME -n NAME [-f]";

type Run = fn(&Parsed) -> Result<FirstError, Failure>;

/// The subcommands, the options that each takes, and what it does.
const SUBCOMMANDS: &[(&str, &[Opt], Run)] = &[
    ("create", &[FSNAME, NAME, COMMENT, value('b', "barrier"), value('t', "timeout"), QUIET, RSH], create),
    ("list", &[FSNAME, NAME, flag('d', "detail"), flag('\0', "json"), RSH], list),
    ("mount", &[FSNAME, NAME, value('\0', "nid"), value('\0', "port"), RSH], mount),
    ("umount", &[FSNAME, NAME, RSH], umount),
    ("modify", &[FSNAME, NAME, COMMENT, value('N', "new"), RSH], modify),
    ("destroy", &[FSNAME, NAME, flag('f', "force"), QUIET, RSH], destroy),
    ("restore", RESTORE, restore::run),
];

const RESTORE: &[Opt] = &[
    FSNAME,
    value('\0', "to"),
    value('\0', "from"),
    flag('\0', "overwrite"),
    value('\0', "threads"),
    flag('\0', "json"),
    QUIET,
];

fn name_of(p: &Parsed) -> Result<Option<String>, Failure> {
    let words: Vec<String> = p.operands.iter().map(|a| show(a)).collect();
    let name = match (p.value("name"), words.as_slice()) {
        (Some(n), []) => n.to_string(),
        (None, [n]) => n.clone(),
        (None, []) => return Ok(None),
        _ => return Err(Failure::usage("name one snapshot, once")),
    };
    checked(name).map(Some)
}

fn checked(name: String) -> Result<String, Failure> {
    match snapshot::name_is_valid(&name) {
        true => Ok(name),
        false => Err(Failure::usage(format!(
            "'{name}' is no name of a snapshot: 1 to {} letters, digits, '_', '-' and '.', not a '.' first",
            snapshot::NAME_MAX_BYTES
        ))),
    }
}

fn wanted_name(p: &Parsed) -> Result<String, Failure> {
    name_of(p)?.ok_or_else(|| Failure::usage("name a snapshot: -n NAME"))
}

fn comment(p: &Parsed) -> Result<Option<String>, Failure> {
    match p.value("comment") {
        Some(c) if c.len() > 1024 || c.chars().any(char::is_control) => {
            Err(Failure::usage("a comment is one line of 1024 bytes at most"))
        }
        c => Ok(c.map(str::to_string)),
    }
}

/// Runs `work` on the file system, alone if it changes anything.
fn with<T>(
    p: &Parsed,
    what: &str,
    alone: bool,
    work: impl FnOnce(&Here) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if let Some(f) = p.value("fsname").filter(|f| !model::target::fsname_is_valid(f)) {
        return Err(Failure::usage(format!("'{f}' is no name of a file system")));
    }
    let here = record::here(what, p.value("fsname"))?;
    let path = control::run_dir().join(format!("snapshot-{}.lock", here.fsname()));
    let shown = path.display().to_string();
    let lock = match alone {
        true => files::FileLock::try_take(&path).map_err(|e| Failure::io("cannot lock", &shown, e))?,
        false => None,
    };
    if alone && lock.is_none() {
        let why = "another command is at work on its snapshots: wait for it";
        return Err(Failure::explained(what, here.fsname(), Errno::EBUSY, why));
    }
    work(&here)
}

/// Runs what may be interrupted; `so`: what is the case then.
fn interruptible(
    so: &str,
    work: impl FnOnce(&Interrupt) -> Result<FirstError, Failure>,
) -> Result<FirstError, Failure> {
    let (done, stopped) = guarded(output::flush, work);
    match stopped {
        Some(code) if done.is_err() => {
            let mut errors = FirstError::default();
            errors.interrupted_so("snapshot", so, code);
            Ok(errors)
        }
        _ => done,
    }
}

fn create(p: &Parsed) -> Result<FirstError, Failure> {
    let name = wanted_name(p)?;
    let comment = comment(p)?.unwrap_or_default();
    let timeout = match p.value("timeout") {
        None => BARRIER_DEFAULT_S,
        Some(t) => t.parse().ok().filter(|t| (1..=BARRIER_MAX_S).contains(t)).ok_or_else(|| {
            Failure::usage(format!("'{t}' is no time: whole seconds, 1 to {BARRIER_MAX_S}"))
        })?,
    };
    let barrier = match p.value("barrier") {
        None | Some("on") => Some(timeout),
        Some("off") => None,
        Some(b) => return Err(Failure::usage(format!("'-b {b}': on or off"))),
    };
    let wanted = CreateOptions { name, comment, barrier };
    interruptible("there is no snapshot; what is left of it goes with the next one", |i| {
        with(p, "cannot make a snapshot of", true, |here| {
            let (world, _runtime) =
                world::real::start(1).map_err(|e| Failure::io("cannot start", "threads", e))?;
            let line = ProgressLine::for_terminal(p.has("quiet"));
            let made = create::create(&world, here, &wanted, (i, &line));
            line.clear();
            let r = made?;
            say!("{}: snapshot {} of {} targets", r.fsname, r.name, r.targets.len());
            Ok(FirstError::default())
        })
    })
}

/// The bytes of its parts, if they were asked for, as long as all can be told.
fn total(sizes: &[Option<u64>]) -> Option<u64> {
    sizes.iter().copied().sum()
}

fn described(s: &Snapshot, sizes: Option<&[Option<u64>]>) -> serde_json::Value {
    let r = &s.record;
    let targets: Vec<_> = s
        .parts
        .iter()
        .enumerate()
        .map(|(n, p)| {
            let mut t = json!({ "target": p.place.label, "folder": p.folder, "nids": p.nids.iter().map(ToString::to_string).collect::<Vec<_>>(), "pid": p.pid });
            if let Some(all) = sizes {
                t["own_bytes"] = json!(all[n]);
            }
            t
        })
        .collect();
    let mut all = json!({ "fsname": r.fsname, "name": r.name, "comment": r.comment, "created": r.created, "modified": r.modified,
            "snapshot_fsname": r.snapshot_fsname, "barrier": r.barrier, "status": s.status(), "missing": s.missing(),
            "unknown": s.unknown, "pid": s.mounted(), "targets": targets });
    if let Some(sizes) = sizes {
        all["own_bytes"] = json!(total(sizes));
    }
    all
}

fn size_words(size: Option<u64>) -> String {
    size.map_or_else(
        || "its size cannot be told".into(),
        |n| format!("{} of its own", crate::size::human(n, 1024)),
    )
}

/// In Lustre's lines.
fn print(s: &Snapshot, sizes: Option<&[Option<u64>]>) {
    let r = &s.record;
    say!("filesystem_name: {}\nsnapshot_name: {}", r.fsname, r.name);
    if !r.comment.is_empty() {
        say!("comment: {}", r.comment);
    }
    say!("create_time: {}\nmodify_time: {}", when(r.created), when(r.modified));
    say!("snapshot_fsname: {}\nstatus: {}", r.snapshot_fsname, s.status());
    if let Some(sizes) = sizes {
        say!("barrier: {}", if r.barrier { "on" } else { "off" });
        say!("size: {}", size_words(total(sizes)));
        for (p, size) in s.parts.iter().zip(sizes) {
            let at: Vec<String> = p.nids.iter().map(ToString::to_string).collect();
            say!("{}: {} at {}, {}", p.place.label, p.folder, at.join(","), size_words(*size));
        }
        s.missing().iter().for_each(|t| say!("{t}: missing"));
        s.unknown.iter().for_each(|t| say!("{t}: its server does not answer"));
    }
}

fn list(p: &Parsed) -> Result<FirstError, Failure> {
    let name = name_of(p)?;
    interruptible("what was printed is not all", |i| {
        with(p, "cannot list snapshots of", false, |here| {
            let (mut all, failed) = record::all(here)?;
            if let Some(n) = &name {
                all = vec![record::of_name(all, here, "cannot list snapshot", n)?];
            }
            let line = ProgressLine::for_terminal(false);
            let mut sizes = Vec::new();
            for s in &all {
                let one = p.has("detail").then(|| {
                    record::sizes(here, s, i, &mut |n| {
                        line.show(|| format!("{}: {n} files measured", s.record.name))
                    })
                });
                sizes.push(one.transpose()?);
            }
            line.clear();
            if p.has("json") {
                let one = |(s, z): (&Snapshot, &Option<Vec<Option<u64>>>)| described(s, z.as_deref());
                say!("{}", json!(all.iter().zip(&sizes).map(one).collect::<Vec<_>>()));
            } else {
                for (n, (s, z)) in all.iter().zip(&sizes).enumerate() {
                    if n > 0 {
                        say!("");
                    }
                    print(s, z.as_deref());
                }
            }
            let mut errors = FirstError::default();
            failed.iter().for_each(|f| errors.report("error: snapshot", f));
            Ok(errors)
        })
    })
}

fn mount(p: &Parsed) -> Result<FirstError, Failure> {
    let (name, what) = (wanted_name(p)?, "cannot mount snapshot");
    interruptible("it is not mounted", |i| {
        with(p, what, true, |here| {
            let s = record::named(here, what, &name)?;
            if let Some(pid) = s.mounted() {
                let why = match s.status() {
                    "mounted" => format!("it is mounted already: pid {pid}"),
                    _ => "it is mounted in parts: unmount it first".to_string(),
                };
                return Err(Failure::explained(what, &name, Errno::EALREADY, &why));
            }
            let missing = s.missing();
            if !missing.is_empty() {
                let why = format!("it is not whole, {} lack it: destroy it", missing.join(", "));
                return Err(Failure::explained(what, &name, Errno::ENOENT, &why));
            }
            let at = mount::At::choose(here, &s, p.value("nid"), p.value("port"))?;
            mount::mount(here, &s, &at, i)?;
            say!("{}: snapshot {name} is served as {}", here.fsname(), s.record.snapshot_fsname);
            say!("{}", at.command(&s.record));
            Ok(FirstError::default())
        })
    })
}

fn umount(p: &Parsed) -> Result<FirstError, Failure> {
    let (name, what) = (wanted_name(p)?, "cannot unmount snapshot");
    interruptible("call it again", |i| {
        with(p, what, true, |here| {
            let (all, failed) = record::all(here)?;
            let s = record::of_name(all, here, what, &name)?;
            let mut errors = mount::umount(here, &s, i)?;
            failed.iter().for_each(|f| errors.report("error: snapshot", f));
            Ok(errors)
        })
    })
}

fn modify(p: &Parsed) -> Result<FirstError, Failure> {
    let (name, what) = (wanted_name(p)?, "cannot modify snapshot");
    let (comment, new) = (comment(p)?, p.value("new").map(|n| checked(n.to_string())).transpose()?);
    if comment.is_none() && new.is_none() {
        return Err(Failure::usage("say what: -c COMMENT, -N NEWNAME"));
    }
    let work = |here: &Here, i: &Interrupt| {
        let all = record::whole(here)?;
        let s = record::of_name(all.clone(), here, what, &name)?;
        if let Some(n) = &new {
            if s.mounted().is_some() {
                let why = "it is mounted, from a folder of its name: unmount it first";
                return Err(Failure::explained(what, &name, Errno::EBUSY, why));
            }
            let mut others = all.iter().filter(|o| o.record.id != s.record.id);
            if others.any(|o| o.record.name == *n || o.parts.iter().any(|p| p.name == *n)) {
                let why = format!("there is a snapshot {n}");
                return Err(Failure::explained(what, &name, Errno::EEXIST, &why));
            }
        }
        let mut r = s.record.clone();
        r.comment = comment.clone().unwrap_or(r.comment);
        r.name = new.clone().unwrap_or(r.name);
        r.modified = sys::wall_seconds();
        // Interrupted, it is the same snapshot under two names, and done again under either.
        let orders = s.orders(|part| {
            let (record, new) = (r.of(&part.place.label).bytes(), r.name.clone());
            SnapshotOrder::Modify { name: part.name.clone(), record, new }
        });
        here.site.all(what, orders, i, &mut |_| {})?;
        Ok(FirstError::default())
    };
    interruptible("call it again with the old name or the new one", |i| {
        with(p, what, true, |here| work(here, i))
    })
}

fn destroy(p: &Parsed) -> Result<FirstError, Failure> {
    let (name, what) = (wanted_name(p)?, "cannot destroy snapshot");
    interruptible("call it again to remove the rest", |i| {
        with(p, what, true, |here| {
            let line = ProgressLine::for_terminal(p.has("quiet"));
            let found = match record::named(here, what, &name) {
                // What an interrupted call left has no name any more.
                Err(e @ Failure::Op { errno: Errno::ENOENT, .. }) => {
                    let orders = here.orders(|_| SnapshotOrder::Destroy { name: name.clone() });
                    here.site.all(what, orders, i, &mut |_| {})?;
                    return Err(e);
                }
                other => other?,
            };
            if let Some(pid) = found.mounted() {
                if !p.has("force") {
                    let why = format!("it is mounted (pid {pid}): unmount it first, or -f");
                    return Err(Failure::explained(what, &name, Errno::EBUSY, &why));
                }
                mount::umount(here, &found, i)?;
            }
            let orders = found.orders(|part| SnapshotOrder::Destroy { name: part.name.clone() });
            let done = here.site.all(what, orders, i, &mut |n| {
                line.show(|| format!("{}: {n} files removed", here.fsname()));
            });
            if i.stopped() {
                let _ = here.site.ask_snapshots(what, here.orders(|_| SnapshotOrder::Drop));
            }
            line.clear();
            done.map(|_| FirstError::default())
        })
    })
}

fn run(name: &str, args: &[OsString]) -> Result<FirstError, Failure> {
    let (_, options, run) = SUBCOMMANDS.iter().find(|(n, ..)| *n == name).expect("the caller names one");
    let p = getopt::parse(args, options)?;
    if p.has("rsh") {
        return Err(Failure::usage(
            "-r, --rsh: no shell is needed on other hosts, their servers are asked: leave it out",
        ));
    }
    run(&p)
}

pub fn run_create(args: &[OsString]) -> Result<FirstError, Failure> {
    run("create", args)
}

pub fn run_list(args: &[OsString]) -> Result<FirstError, Failure> {
    run("list", args)
}

pub fn run_mount(args: &[OsString]) -> Result<FirstError, Failure> {
    run("mount", args)
}

pub fn run_umount(args: &[OsString]) -> Result<FirstError, Failure> {
    run("umount", args)
}

pub fn run_modify(args: &[OsString]) -> Result<FirstError, Failure> {
    run("modify", args)
}

pub fn run_destroy(args: &[OsString]) -> Result<FirstError, Failure> {
    run("destroy", args)
}

fn command(args: &[OsString]) -> Result<i32, Failure> {
    const ALL: &str = "nacre snapshot create|list|mount|umount|modify|destroy|restore";
    let Some((what, rest)) = args.split_first() else {
        return Err(Failure::usage(format!("say what: {ALL}")));
    };
    let what = what.to_string_lossy();
    if !SUBCOMMANDS.iter().any(|(n, ..)| *n == what) {
        return Err(Failure::usage(format!("'{what}' is none: {ALL}")));
    }
    run(&what, rest).map(|e| e.exit_code())
}

/// The command: arguments behind `snapshot`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre snapshot", USAGE), args, Failure::exit_code, command)
}
