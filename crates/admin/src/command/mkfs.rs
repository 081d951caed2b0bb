//! `mkfs.nacre`: makes a target in a folder.

use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::{VERSION, say};
use model::nid::parse_nid_list;
use model::target::INDEX_UNASSIGNED;
use model::target::fsname_is_valid;
use model::{Errno, HostNid, TargetId, TargetKind, domain};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use store::format::{INCOMPAT_SUCCESSOR, Superblock};
use store::object::Objects;
use store::{Db, StoreError};
use world::World;
use world::sys::files;

pub const USAGE: &str =
    "mkfs.nacre {--mgs|--mdt|--ost|--mgs --mdt} [--fsname=NAME] [--index=N] [--mgsnode=NID[,NID][:NID]...]
  [--servicenode=NID[,NID]... | --failnode=NID[,NID]...] [--param KEY=VALUE]...
  [--domain NAME[/NAME]...] [--replace] [--reformat] [--dryrun] [--quiet] [--verbose] DIR";

pub const OPTS: &[Opt] = &[
    flag('\0', "mgs"),
    flag('\0', "mdt"),
    flag('\0', "ost"),
    value('L', "fsname"),
    value('i', "index"),
    value('m', "mgsnode"),
    value('s', "servicenode"),
    value('f', "failnode"),
    value('p', "param"),
    value('\0', "domain"),
    flag('\0', "replace"),
    flag('r', "reformat"),
    flag('n', "dryrun"),
    flag('q', "quiet"),
    flag('v', "verbose"),
    flag('V', "version"),
    flag('h', "help"),
    value('b', "backfstype"),
    // Of Lustre's, refused by name ([`REFUSED`]).
    value('u', "comment"),
    value('\0', "device-size"),
    value('\0', "mkfsoptions"),
    value('\0', "mountfsoptions"),
    value('\0', "backfs-mount-opts"),
    value('c', "stripe-count-hint"),
    value('\0', "network"),
    // And true of every folder.
    flag('\0', "skipmmp"),
    flag('\0', "force-nohostid"),
];

/// Options of Lustre's mkfs that would change nothing here, and what to use.
const REFUSED: &[(&str, &str)] = &[
    ("comment", "a target has no comment: name its folder or its device so"),
    (
        "device-size",
        "a target takes the room that its file system has: make that as large, or set a quota on the folder",
    ),
    (
        "mkfsoptions",
        "a target is a folder: give them to mkfs(8) when you make the file system that it lies on",
    ),
    ("mountfsoptions", "a target is a folder: mount the file system that it lies on with them"),
    ("backfs-mount-opts", "a target is a folder: mount the file system that it lies on with them"),
    (
        "stripe-count-hint",
        "layouts of any number of stripes fit: 'lfs setstripe -c N' on the root sets the default",
    ),
    ("network", "a target answers at the addresses of its server: nacred --nid"),
];

/// Folder of the MGT that an MDT's folder holds too (`--mgs --mdt`).
pub const MGT_SUBDIR: &str = "mgt";

/// File of a daemon's events, in the folder of its first target.
pub const EVENTS_FILE: &str = "events";

/// File of what a target recorded each hour (`nacre history`).
pub const HISTORY_FILE: &str = "history";

/// What a target's folder holds; nothing else in it is ever touched.
pub const OWN_NAMES: &[&str] = &[
    "superblock",
    "superblock.1",
    "lock",
    "mmp",
    "journal",
    "table.redb",
    "objects",
    EVENTS_FILE,
    HISTORY_FILE,
    MGT_SUBDIR,
];

pub fn store_failure(what: &str, dir: &str, e: &StoreError) -> Failure {
    Failure::Op { text: format!("{what} '{dir}': {e}"), errno: e.errno() }
}

/// Joins `--option=a --option=b:c` into one list; Lustre's command separates nodes by either.
pub fn nids(p: &Parsed, option: &str) -> Result<Vec<HostNid>, Failure> {
    let mut out = Vec::new();
    for v in p.values(option) {
        out.extend(parse_nid_list(v).map_err(|e| Failure::usage(format!("--{option}: {e}")))?);
    }
    Ok(out)
}

pub fn params(p: &Parsed) -> Result<Vec<(String, String)>, Failure> {
    let split = |v: &str| match v.split_once('=') {
        Some((k, v)) if !k.is_empty() => Ok((k.to_string(), v.to_string())),
        _ => Err(Failure::usage(format!("--param '{v}': expected KEY=VALUE"))),
    };
    p.values("param").map(split).collect()
}

/// What `--domain` says; `None`: it was not given.
pub fn placed(p: &Parsed) -> Result<Option<Vec<String>>, Failure> {
    let read = |text: &str| {
        domain::parse(text).map_err(|_| {
            Failure::usage(format!(
                "--domain '{text}': 1 to {} names with '/' between, outermost first, each 1 to {} of A-Z a-z 0-9 . _ - : @",
                domain::LEVELS_MAX,
                domain::NAME_MAX_BYTES
            ))
        })
    };
    p.value("domain").map(read).transpose()
}

fn kind(p: &Parsed) -> Result<(TargetKind, bool), Failure> {
    match (p.has("mgs"), p.has("mdt"), p.has("ost")) {
        (true, false, false) => Ok((TargetKind::Mgt, false)),
        (mgs, true, false) => Ok((TargetKind::Mdt, mgs)),
        (false, false, true) => Ok((TargetKind::Ost, false)),
        (false, false, false) => Err(Failure::usage("say what to make: --mgs, --mdt or --ost")),
        _ => Err(Failure::usage("an OST stands alone: --mgs, --mdt, --ost or --mgs --mdt")),
    }
}

/// What the options describe; the UUID is new.
pub fn superblock(world: &World, p: &Parsed) -> Result<Superblock, Failure> {
    if let Some((option, instead)) = REFUSED.iter().find(|(o, _)| p.has(o)) {
        return Err(Failure::usage(format!("--{option} has no meaning here: {instead}")));
    }
    let (kind, with_mgt) = kind(p)?;
    let fsname = match (kind, p.value("fsname")) {
        (TargetKind::Mgt, None) => String::new(),
        (TargetKind::Mgt, Some(n)) => {
            eprintln!("note: --fsname={n} changes nothing: an MGS serves any number of file systems");
            String::new()
        }
        (_, None) => return Err(Failure::usage("--fsname is missing")),
        (_, Some(n)) if fsname_is_valid(n) => n.to_string(),
        (_, Some(n)) => return Err(Failure::usage(format!("--fsname '{n}': 1 to 8 of A-Z a-z 0-9 _ -"))),
    };
    let index = match (kind, p.value("index")) {
        (TargetKind::Mgt, _) => 0,
        // There is one.
        (TargetKind::Mdt, None) => 0,
        (TargetKind::Ost, None) if p.has("replace") => {
            return Err(Failure::usage("--replace needs --index: that of the target that is lost"));
        }
        (TargetKind::Ost, None) => INDEX_UNASSIGNED,
        (_, Some(v)) => crate::size::parse_int(v)
            .and_then(|n| u16::try_from(n).ok())
            .filter(|n| u32::from(*n) <= model::limits::OST_INDEX_MAX)
            .ok_or_else(|| Failure::usage(format!("--index '{v}': 0 to {}", model::limits::OST_INDEX_MAX)))?,
    };
    if kind == TargetKind::Mdt && index != 0 {
        return Err(Failure::usage("this release has one metadata target: --index=0"));
    }
    if with_mgt && index != 0 {
        return Err(Failure::usage("--mgs goes with MDT0000"));
    }
    let mgs_nids = nids(p, "mgsnode")?;
    if mgs_nids.is_empty() && kind != TargetKind::Mgt && !with_mgt {
        return Err(Failure::usage(
            "--mgsnode is missing: the NID of the host with the MGS, for example 10.0.0.1@tcp",
        ));
    }
    if let Some(b) = p.value("backfstype").filter(|b| !matches!(*b, "dir" | "posix")) {
        return Err(Failure::usage(format!(
            "--backfstype '{b}': Nacre keeps its targets in a folder ('dir')"
        )));
    }
    let (service_nids, fail_nids) = (nids(p, "servicenode")?, nids(p, "failnode")?);
    if !service_nids.is_empty() && !fail_nids.is_empty() {
        return Err(Failure::usage("--servicenode and --failnode exclude each other"));
    }
    Ok(Superblock {
        with_mgt,
        replace: p.has("replace"),
        incompat: if p.has("replace") && kind == TargetKind::Ost { INCOMPAT_SUCCESSOR } else { 0 },
        mgs_nids,
        service_nids,
        fail_nids,
        params: params(p)?,
        domain: placed(p)?.unwrap_or_default(),
        key: Some(world.random_key()),
        ..Superblock::fresh(TargetId { kind, index }, fsname, world.random_uuid())
    })
}

fn join(nids: &[HostNid]) -> String {
    nids.iter().map(HostNid::to_string).collect::<Vec<_>>().join(":")
}

/// The block that readers of mkfs's and tunefs's output look for.
pub fn show(title: &str, s: &Superblock) {
    let mut flags = match s.target.kind {
        TargetKind::Mdt => 0x1,
        TargetKind::Ost => 0x2,
        TargetKind::Mgt => 0x4,
    };
    let mut words = vec![match s.target.kind {
        TargetKind::Mdt => "MDT",
        TargetKind::Ost => "OST",
        TargetKind::Mgt => "MGS",
    }];
    for (on, bit, word) in [
        (s.with_mgt, 0x4, "MGS"),
        (s.first_time, 0x20, "first_time"),
        (s.first_time, 0x40, "update"),
        (s.replace, 0x800, "replace"),
    ] {
        if on {
            flags |= bit;
            words.push(word);
        }
    }
    let separator = match (s.first_time, s.replace) {
        (_, true) if s.first_time => "=",
        (true, _) => ":",
        _ => "-",
    };
    let name = match s.target.kind {
        TargetKind::Mgt => "MGS".to_string(),
        _ => format!("{}{separator}{}", s.fsname, s.target),
    };
    let mut list = Vec::new();
    for (key, v) in [("mgsnode", &s.mgs_nids), ("servicenode", &s.service_nids), ("failnode", &s.fail_nids)] {
        if !v.is_empty() {
            list.push(format!("{key}={}", join(v)));
        }
    }
    if !s.domain.is_empty() {
        list.push(format!("domain={}", domain::text(&s.domain)));
    }
    list.extend(s.params.iter().map(|(k, v)| format!("{k}={v}")));
    say!("\n   {title}:");
    say!("Target:     {name}");
    match s.target.is_assigned() {
        true => say!("Index:      {}", s.target.index),
        false => say!("Index:      unassigned: the next free one, which the MGS gives at the first start"),
    }
    say!("Lustre FS:  {}", s.fsname);
    say!("Mount type: nacre");
    say!("Flags:      {flags:#x}");
    say!("              ({} )", words.join(" "));
    say!("Persistent mount opts:");
    say!("Parameters: {}\n", list.join(" "));
}

fn text_of(dir: &Path) -> Result<&str, Failure> {
    let shown = dir.display().to_string();
    dir.to_str()
        .ok_or_else(|| Failure::explained("cannot use", &shown, Errno::EINVAL, "the path must be UTF-8"))
}

/// A device in the place of a folder, as Lustre's command has it.
fn check_device(dir: &str, p: &Parsed) -> Result<(), Failure> {
    if !files::stat(Path::new(dir), true).is_ok_and(|s| s.is_device()) {
        return Ok(());
    }
    let options = p.value("mkfsoptions").map_or_else(String::new, |o| format!(" {o}"));
    let why = format!(
        "it is a device, and targets lie in folders: make a file system on it (mkfs.ext4{options} {dir}, or mkfs.xfs {dir}), mount that and give a folder in it"
    );
    Err(Failure::explained("cannot format", dir, Errno::ENOTDIR, &why))
}

/// Whether the folder may be formatted.
fn check_folder(world: &World, dir: &str, reformat: bool, verbose: bool) -> Result<(), Failure> {
    let names = match files::list(dir) {
        Ok(n) => n,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Failure::io("cannot use", dir, e)),
    };
    let ours: Vec<&String> = names.iter().filter(|n| OWN_NAMES.contains(&n.as_str())).collect();
    let foreign: Vec<&String> = names
        .iter()
        .filter(|n| !OWN_NAMES.contains(&n.as_str()) && *n != "lost+found" && *n != "log")
        .collect();
    if let Some(f) = foreign.first() {
        let why = format!("the folder is not empty (it holds '{f}'): give a new one");
        return Err(Failure::explained("cannot format", dir, Errno::ENOTEMPTY, &why));
    }
    if ours.is_empty() {
        return Ok(());
    }
    if !reformat {
        let why = match Superblock::read(world, dir) {
            Ok(s) => {
                format!("it was already formatted as {}: --reformat overwrites it", s.target.label(&s.fsname))
            }
            Err(_) => "it holds a half made or damaged target: --reformat overwrites it".to_string(),
        };
        return Err(Failure::explained("cannot format", dir, Errno::EEXIST, &why));
    }
    let fail = |e: StoreError| store_failure("cannot reformat", dir, &e);
    let _lock = crate::folder::hold(world, dir).map_err(fail)?;
    if verbose {
        say!("removing the old target in {dir}");
    }
    remove_own(dir)
}

/// Takes away what a target's folder holds, of a folder that the caller holds.
pub(super) fn remove_own(dir: &str) -> Result<(), Failure> {
    // The superblock first: what is left of an interrupted reformat is no target.
    for n in OWN_NAMES {
        let path = Path::new(dir).join(n);
        let gone = match files::stat(&path, false) {
            Ok(s) if s.is_dir() => files::remove_tree(&path),
            Ok(_) => files::remove_file(&path),
            Err(_) => Ok(()),
        };
        gone.map_err(|e| Failure::io("cannot remove", &path.display().to_string(), e))?;
    }
    Ok(())
}

/// Makes the target. The superblock comes last: a folder without one is no target.
pub fn format(world: &World, dir: &str, s: &Superblock) -> Result<(), Failure> {
    files::create_dir_all(dir).map_err(|e| Failure::io("cannot make", dir, e))?;
    let fail = |e: StoreError| store_failure("cannot format", dir, &e);
    Db::create(world, dir).map_err(fail)?;
    if s.target.kind == TargetKind::Ost {
        Objects::create(world, dir).map_err(fail)?;
    }
    if s.with_mgt {
        let sub = format!("{dir}/{MGT_SUBDIR}");
        files::create_dir_all(&sub).map_err(|e| Failure::io("cannot make", &sub, e))?;
        Db::create(world, &sub).map_err(fail)?;
    }
    store::mmp::format(world, dir).map_err(fail)?;
    s.write(world, dir).map_err(fail)
}

/// The one operand, absolute.
pub fn folder(p: &Parsed) -> Result<PathBuf, Failure> {
    let [dir] = p.operands.as_slice() else {
        return Err(Failure::usage("name one folder"));
    };
    files::absolute(dir).map_err(|e| Failure::io("cannot use", &dir.to_string_lossy(), e))
}

fn run(args: &[OsString]) -> Result<(), Failure> {
    let p = getopt::parse(&getopt::two_dashes(args, OPTS), OPTS)?;
    if let [dir] = p.operands.as_slice()
        && let Some(dir) = dir.to_str()
    {
        check_device(dir, &p)?;
    }
    if p.has("version") {
        say!("mkfs.nacre {VERSION}");
        return Ok(());
    }
    if p.has("help") {
        say!("usage: {USAGE}");
        return Ok(());
    }
    let (world, _runtime) = world::real::start(1).map_err(|e| Failure::io("cannot start", "runtime", e))?;
    let s = superblock(&world, &p)?;
    let dir = folder(&p)?;
    let dir = text_of(&dir)?;
    if !p.has("quiet") {
        show("Permanent disk data", &s);
    }
    if p.has("dryrun") {
        return Ok(());
    }
    check_folder(&world, dir, p.has("reformat"), p.has("verbose"))?;
    format(&world, dir, &s)?;
    if !p.has("quiet") {
        say!("Writing CONFIGS/mountdata");
    }
    Ok(())
}

/// Prints what went wrong; exit status of the command.
pub fn finish(program: &str, usage: &str, r: Result<(), Failure>) -> i32 {
    let Err(f) = r else { return 0 };
    let mut e = FirstError::default();
    e.report(program, &f);
    if matches!(f, Failure::Usage(_)) {
        eprintln!("usage: {usage}");
        return Errno::EINVAL.0;
    }
    e.exit_code()
}

pub fn main(args: &[OsString]) -> i32 {
    finish("mkfs.nacre", USAGE, run(args))
}
