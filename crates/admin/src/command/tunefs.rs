//! `tunefs.nacre`: shows and changes what mkfs.nacre wrote, while the target is not served.

use crate::command::mkfs::{OPTS, finish, folder, nids, params, placed, show, store_failure};
use crate::failure::Failure;
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::{VERSION, say};
use model::{Errno, TargetKind};
use std::ffi::OsString;
use store::format::Superblock;

pub const USAGE: &str =
    "tunefs.nacre [--mgsnode=NIDS] [--servicenode=NIDS | --failnode=NIDS] [--param KEY=VALUE]...
  [--domain NAME[/NAME]...]  [--erase-params] [--erase-param KEY]... [--writeconf] [--replace] [-n | --dryrun | --print] [--quiet] [--verbose] DIR";

const MORE: &[Opt] = &[
    flag('\0', "erase-params"),
    value('\0', "erase-param"),
    flag('\0', "writeconf"),
    flag('\0', "print"),
    flag('\0', "nolocallogs"),
    flag('\0', "nomgs"),
    value('\0', "rename"),
];

fn change(p: &Parsed, s: &mut Superblock) -> Result<(), Failure> {
    for refused in ["mgs", "mdt", "ost", "index", "fsname", "reformat", "rename", "nomgs"] {
        if p.has(refused) {
            return Err(Failure::usage(format!(
                "--{refused} is not changed on a made target: use mkfs.nacre"
            )));
        }
    }
    if p.has("erase-params") {
        s.params.clear();
        s.service_nids.clear();
        s.fail_nids.clear();
    }
    for k in p.values("erase-param") {
        let before = s.params.len();
        s.params.retain(|(name, _)| name != k);
        if s.params.len() == before {
            return Err(Failure::op("no such parameter", k, Errno::ENOENT));
        }
    }
    for (k, v) in params(p)? {
        s.params.retain(|(name, _)| *name != k);
        s.params.push((k, v));
    }
    for (option, field) in
        [("mgsnode", &mut s.mgs_nids), ("servicenode", &mut s.service_nids), ("failnode", &mut s.fail_nids)]
    {
        let new = nids(p, option)?;
        if !new.is_empty() {
            *field = new;
        }
    }
    if !s.service_nids.is_empty() && !s.fail_nids.is_empty() {
        return Err(Failure::usage("--servicenode and --failnode exclude each other"));
    }
    if let Some(names) = placed(p)? {
        s.domain = names;
    }
    if p.has("writeconf") || p.has("nolocallogs") {
        s.config.clear();
    }
    s.replace |= p.has("replace");
    Ok(())
}

fn run(args: &[OsString]) -> Result<(), Failure> {
    let opts: Vec<Opt> = OPTS.iter().chain(MORE).copied().collect();
    let p = getopt::parse(&getopt::two_dashes(args, &opts), &opts)?;
    if p.has("version") {
        say!("tunefs.nacre {VERSION}");
        return Ok(());
    }
    if p.has("help") {
        say!("usage: {USAGE}");
        return Ok(());
    }
    let (world, _runtime) = world::real::start(1).map_err(|e| Failure::io("cannot start", "runtime", e))?;
    let path = folder(&p)?;
    let dir = path.to_string_lossy().into_owned();
    // A folder without a superblock, or none at all.
    let is_none = |e: &store::StoreError| match e {
        store::StoreError::Refused(why) => why.contains("is not formatted"),
        e => e.errno() == Errno::ENOENT,
    };
    let lost = |e: store::StoreError| match is_none(&e) {
        true => Failure::explained(
            "cannot read",
            &dir,
            Errno::ENODEV,
            "it has not been formatted with mkfs.nacre",
        ),
        false => store_failure("cannot read", &dir, &e),
    };
    let old = Superblock::read(&world, &dir).map_err(lost)?;
    let mut new = old.clone();
    change(&p, &mut new)?;
    if !p.has("quiet") {
        let has_mgs = old.target.kind == TargetKind::Mgt || old.with_mgt;
        if p.has("erase-params") && !has_mgs && nids(&p, "mgsnode")?.is_empty() {
            // Lustre drops the NIDs with the parameters; a target without an MGS could not start.
            say!("keeping mgsnode (give --mgsnode to change it)");
        }
        show("Previous values", &old);
        show("Permanent disk data", &new);
    }
    // `--print`, as Lustre has it, is a dry run.
    let is_dry = p.has("dryrun") || p.has("print");
    if is_dry || new == old {
        if is_dry && new != old && !p.has("quiet") {
            say!("Nothing was written (--dryrun)");
        }
        return Ok(());
    }
    let fail = |e: store::StoreError| store_failure("cannot change", &dir, &e);
    let _lock = crate::folder::hold(&world, &dir).map_err(fail)?;
    // Read again under the lock: a server may just have ended.
    let mut new = Superblock::read(&world, &dir).map_err(lost)?;
    change(&p, &mut new)?;
    new.write(&world, &dir).map_err(|e| store_failure("cannot write", &dir, &e))?;
    if !p.has("quiet") {
        say!("Writing CONFIGS/mountdata");
    }
    Ok(())
}

pub fn main(args: &[OsString]) -> i32 {
    finish("tunefs.nacre", USAGE, run(args))
}
