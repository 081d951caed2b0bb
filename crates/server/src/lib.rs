//! The programs: `nacred` (a server node), `nacre up` and its relatives (a whole file system on one machine),
//! `mount.nacre` (the mount helper and its client daemon).

mod backup;
mod etcd_url;
pub mod fsck;
mod ha;
pub mod links;
pub mod log;
mod lst;
mod metrics;
mod mgt;
pub mod mount;
pub mod nacred;
mod object;
mod outcome;
mod param;
mod scrub;
pub mod up;

use std::ffi::OsString;
use std::path::Path;
use world::World;

/// Runs a command's work on this host, and ends what it left running. The error is a sentence.
fn in_real_world<T, F: Future<Output = Result<T, String>>>(
    work: impl FnOnce(World) -> F,
) -> Result<T, String> {
    let (world, runtime) = world::real::start(2).map_err(|e| format!("cannot start: {e}"))?;
    let r = runtime.block_on(work(world));
    runtime.shutdown();
    r
}

const HELP: &str = "\
nacre: a parallel file system in user space

usage: nacre COMMAND ...

A whole file system on this machine:
  up --dir DIR [--mount MNT]...   start it (made at the first time); what runs already is left alone
  down --dir DIR [--force]        unmount and stop it; the files stay
  status [--dir DIR] [--json]     its processes
  shell [--dir DIR] [COMMAND...]  without root: where its mounts are seen
  watch --dir DIR                 start again what is killed; 'up' leaves it behind, 'down' ends it
  events [-f]                     what they had to tell: disks, connections, evictions, ...
  history [TARGET...]             files, space and response time of targets, by the hour, for a year
  trace [TEXT...]                 what daemons and mounts of this host do, as it happens
  doctor [MOUNT...]               what is wrong right now, and which command helps
  wipe --dir DIR                  remove it with all files
  fsck DIR | --online             check it, offline or as it is served
  scrub OST                       read all that an OST stores and compare it with its checksums
  backup mdt|mgt|ost-labels TARGET OUT   label and table of a target as of one moment, also while it is served
  snapshot create|list|mount|umount|modify|destroy   all targets at one moment, in clones of their files
  restore mdt|mgt|ost-labels OUT DIR   a target's folder of a backup
  object show|dump DIR OBJECT     one object of an OST that is stopped: whose it is, where it lies, its bytes

Data, from and to any file system:
  copy SRC DST                    make DST the copy of SRC, by many threads; goes on where it was
  checksum scan DIR               compare files with the checksums that their attributes hold

  drain OST                       no new objects there, and those that are there go to other OSTs
  remove OST                      takes an OST out for good, after it was drained
  replace OST                     another, empty OST takes the place of one whose disk died
  rebalance                       files go from the fullest OSTs to the emptiest ones
  lost OST                        which files an OST had that is gone for good
  policy check|run|status|history rules about files: purge, move, tell their users, report
  trash on|off|status|list|restore|empty  removed files that are kept for a while
  userdir add|remove|list|login   directories of users and groups, with limits and layout in one step
  movements                       which files are moved to other objects, and how far that is
  top                             what happens now: targets, jobs, clients, times
  top jobs                        the jobs with the most operations on all targets

Measuring, on any mounted directory:
  bench ior|mdtest|io500 ...      load generators with live progress, JSON and plots
  lst serve|new_session|...       the transport alone, between nodes (lst)
  survey all|sgpdd|...            what a site measures before it lets users in, bottom up
  tune --check|--apply|--undo     what a host should be set to for what it is for, and why
  plan --servers N --disks N ...  what a cluster would hold and do, and what bounds it

What is there:
  dashboard [--listen ADDR:PORT]  the console in a browser, for who has a token (dashboard token add)
  metrics [--target PATTERN]      numbers of all daemons and mounts of this host, for Prometheus
  domains [MOUNT]                 racks, hosts and the targets in them, with their space
  top users|groups|projects       who uses most
  top dirs DIR                    which directories have most in them
  quota verify [MOUNT...]         whether servers count right what users, groups and projects have
  report striping|owners|sizes|ages DIR   layouts, owners, sizes, ages of the files below a directory

The parts, for several hosts (each also a program of its own):
  mkfs.nacre, tunefs.nacre        make and change a target in a folder
  nacred [--nid NID] DIR...       serve targets
  mount.nacre NID:/FSNAME MNT     mount
  ha plan|diff|inventory|where|takeover|giveback   targets under Pacemaker; start, stop and monitor are for its agent (deploy/ocf/target)
  ha controller|status ...        an engine on etcd: targets move between hosts
  deploy plan|apply|status|wipe FILE   a cluster from one file: hosts, targets, pairs, mounts, pools
  config show|history|diff|rollback|export|import   what the MGS keeps, as data with versions
  maintenance on|off|status       changes are refused, or operations wait, and users are told why
  param help|list     what parameters mean: unit, bounds, default; of all nodes
  mgt import|export               move the MGS's data into an etcd, and back
  lfs, lctl, lljobstat            ask and tune; the busiest jobs on this host's targets

  install-links DIR               make the programs' links in DIR
";

/// Runs the program that `args[0]` or `args[1]` names. Returns the exit status.
pub fn run(args: &[OsString]) -> u8 {
    let called =
        args.first().and_then(|a| Path::new(a).file_name()).map(|n| n.to_string_lossy().into_owned());
    let mut program = called.unwrap_or_default();
    let mut rest = args.get(1..).unwrap_or_default();
    if !links::NAMES.contains(&program.as_str()) {
        let Some(first) = rest.first() else {
            eprint!("{HELP}");
            return 2;
        };
        program = first.to_string_lossy().into_owned();
        rest = &rest[1..];
    }
    if let Some(code) = admin::run(&program, rest) {
        return exit_status(code);
    }
    let code = match program.as_str() {
        "nacred" => nacred::main(rest),
        "mount.nacre" | "mount.fuse.nacre" => mount::main(rest),
        mount::GUARD => mount::guard(),
        "up" => up::main_up(rest),
        "down" => up::main_down(rest),
        "status" => up::main_status(rest),
        "shell" => up::main_shell(rest),
        "watch" => up::main_watch(rest),
        "wipe" => up::main_wipe(rest),
        "fsck" => fsck::main(rest),
        "scrub" => scrub::main(rest),
        "object" => object::main(rest),
        "backup" => backup::main(rest),
        "restore" => backup::restore_main(rest),
        "ha" => ha::main(rest),
        "mgt" => mgt::main(rest),
        "param" => param::main(rest),
        "bench" => bench::main(rest),
        "lst" => lst::main(rest),
        "dashboard" => dashboard::main(rest, ha::places),
        "survey" => bench::survey::main(rest, lst::network),
        name if links::SURVEYS.contains(&name) => {
            let named: Vec<OsString> =
                std::iter::once(OsString::from(name)).chain(rest.iter().cloned()).collect();
            bench::survey::main(&named, lst::network)
        }
        "report" => admin::command::report::main(rest),
        "install-links" => links::main(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            0
        }
        "version" | "--version" | "-V" => {
            println!("nacre {}", admin::VERSION);
            0
        }
        other => {
            eprintln!("nacre: unknown command '{other}'\n\n{HELP}");
            2
        }
    };
    exit_status(code)
}

fn exit_status(code: i32) -> u8 {
    u8::try_from(code & 0xff).unwrap_or(1)
}
