//! `lctl`: what administrators ask this host's mounts and daemons.

use crate::command::{
    barrier, changelog, debug, dl, get_param, lfsck, list_nids, ping, pool, recovery, registration,
    set_param, snapshot,
};
use crate::failure::{Failure, FirstError};
use crate::lfs::{Subcommand, interactive, resolve};
use crate::{EXIT_USAGE, VERSION, say};
use std::ffi::OsString;

pub const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand { name: "abort_recovery", run: recovery::run_abort, usage: recovery::USAGE_ABORT },
    Subcommand { name: "abort_recovery_mdt", run: recovery::run_abort, usage: recovery::USAGE_ABORT },
    Subcommand { name: "activate", run: set_param::run_activate, usage: set_param::USAGE_ACTIVATE },
    Subcommand { name: "barrier_freeze", run: barrier::run_freeze, usage: barrier::USAGE_FREEZE },
    Subcommand { name: "barrier_rescan", run: barrier::run_rescan, usage: barrier::USAGE_RESCAN },
    Subcommand { name: "barrier_stat", run: barrier::run_stat, usage: barrier::USAGE_STAT },
    Subcommand { name: "barrier_thaw", run: barrier::run_thaw, usage: barrier::USAGE_THAW },
    Subcommand {
        name: "changelog_deregister",
        run: changelog::run_deregister,
        usage: changelog::USAGE_DEREGISTER,
    },
    Subcommand { name: "changelog_register", run: changelog::run_register, usage: changelog::USAGE_REGISTER },
    Subcommand { name: "clear", run: debug::run_clear, usage: debug::USAGE_CLEAR },
    Subcommand { name: "conf_param", run: set_param::run_conf, usage: set_param::USAGE_CONF },
    Subcommand { name: "deactivate", run: set_param::run_deactivate, usage: set_param::USAGE_ACTIVATE },
    Subcommand { name: "debug_daemon", run: debug::run_none, usage: debug::USAGE_NONE },
    Subcommand { name: "debug_file", run: debug::run_none, usage: debug::USAGE_NONE },
    Subcommand { name: "debug_kernel", run: debug::run_dk, usage: debug::USAGE_DK },
    Subcommand { name: "debug_list", run: debug::run_list, usage: debug::USAGE_LIST },
    Subcommand { name: "device_list", run: dl::run, usage: dl::USAGE },
    Subcommand { name: "dk", run: debug::run_dk, usage: debug::USAGE_DK },
    Subcommand { name: "dl", run: dl::run, usage: dl::USAGE },
    Subcommand { name: "get_param", run: get_param::run, usage: get_param::USAGE },
    Subcommand { name: "help_param", run: get_param::run_help, usage: get_param::USAGE_HELP },
    Subcommand { name: "lfsck_query", run: lfsck::run_query, usage: lfsck::USAGE_QUERY },
    Subcommand { name: "lfsck_start", run: lfsck::run_start, usage: lfsck::USAGE_START },
    Subcommand { name: "lfsck_stop", run: lfsck::run_stop, usage: lfsck::USAGE_STOP },
    Subcommand { name: "list_nids", run: list_nids::run, usage: list_nids::USAGE },
    Subcommand { name: "list_param", run: get_param::run_list, usage: get_param::USAGE_LIST },
    Subcommand { name: "mark", run: debug::run_mark, usage: debug::USAGE_MARK },
    Subcommand { name: "ping", run: ping::run, usage: ping::USAGE },
    Subcommand { name: "pool_add", run: pool::run_add, usage: pool::USAGE_ADD },
    Subcommand { name: "pool_destroy", run: pool::run_destroy, usage: pool::USAGE_DESTROY },
    Subcommand { name: "pool_list", run: pool::run_list, usage: pool::USAGE_LIST },
    Subcommand { name: "pool_new", run: pool::run_new, usage: pool::USAGE_NEW },
    Subcommand { name: "pool_remove", run: pool::run_remove, usage: pool::USAGE_REMOVE },
    Subcommand { name: "recover", run: recovery::run_recover, usage: recovery::USAGE_RECOVER },
    Subcommand { name: "registration", run: registration::run, usage: registration::USAGE },
    Subcommand { name: "replace_nids", run: registration::run_nids, usage: registration::USAGE_NIDS },
    Subcommand { name: "set_param", run: set_param::run, usage: set_param::USAGE },
    Subcommand { name: "snapshot_create", run: snapshot::run_create, usage: snapshot::USAGE_CREATE },
    Subcommand { name: "snapshot_destroy", run: snapshot::run_destroy, usage: snapshot::USAGE_DESTROY },
    Subcommand { name: "snapshot_list", run: snapshot::run_list, usage: snapshot::USAGE_LIST },
    Subcommand { name: "snapshot_modify", run: snapshot::run_modify, usage: snapshot::USAGE_MODIFY },
    Subcommand { name: "snapshot_mount", run: snapshot::run_mount, usage: snapshot::USAGE_MOUNT },
    Subcommand { name: "snapshot_umount", run: snapshot::run_umount, usage: snapshot::USAGE_UMOUNT },
    Subcommand { name: "which_nid", run: ping::run_which, usage: ping::USAGE_WHICH },
];

/// Commands that take `--device`.
const OF_A_DEVICE: &[&str] = &[
    "abort_recovery",
    "abort_recovery_mdt",
    "activate",
    "changelog_deregister",
    "changelog_register",
    "deactivate",
    "lfsck_query",
    "lfsck_start",
    "lfsck_stop",
    "recover",
    "registration",
    "replace_nids",
];
const BUILTIN: &[&str] = &["exit", "help", "quit", "version"];

fn names() -> Vec<&'static str> {
    let mut all: Vec<&str> = SUBCOMMANDS.iter().map(|s| s.name).chain(BUILTIN.iter().copied()).collect();
    all.sort_unstable();
    all
}

fn one(args: &[OsString]) -> i32 {
    let mut args = args.to_vec();
    // `--device NAME CMD args`: the name becomes the first argument of the commands that take a device.
    let mut device = None;
    while args.first().is_some_and(|a| a == "--device" || a == "--net") {
        if args.len() < 2 {
            eprintln!("lctl: '{}' requires an argument", args[0].to_string_lossy());
            return EXIT_USAGE;
        }
        let rest = args.split_off(2);
        if args[0] == "--device" {
            device = args.pop();
        }
        args = rest;
    }
    let Some(first) = args.first() else { return EXIT_USAGE };
    let mut first = first.to_string_lossy().into_owned();
    // `barrier freeze` is `barrier_freeze`.
    if let Some(joined) = args.get(1).map(|second| format!("{first}_{}", second.to_string_lossy()))
        && !names().contains(&first.as_str())
        && names().contains(&joined.as_str())
    {
        args.remove(1);
        first = joined;
    }
    match first.as_str() {
        "--version" | "-V" => {
            say!("lctl {VERSION}");
            return 0;
        }
        "--list-commands" => {
            for n in names() {
                say!("{n}");
            }
            return 0;
        }
        _ => {}
    }
    let wanted = if matches!(first.as_str(), "--help" | "-h") { "help" } else { first.as_str() };
    let name = match resolve(wanted, &names(), "lctl") {
        Ok(n) => n,
        Err(code) => return code,
    };
    match name {
        "version" => {
            say!("lctl {VERSION}");
            0
        }
        "help" => help(args.get(1)),
        "exit" | "quit" => 0,
        _ => {
            let sub = SUBCOMMANDS.iter().find(|s| s.name == name).expect("a resolved name is in the table");
            let mut rest = args.split_off(1);
            if let Some(d) = device.filter(|_| OF_A_DEVICE.contains(&name)) {
                rest.insert(0, d);
            }
            run_sub(sub, &rest)
        }
    }
}

fn help(topic: Option<&OsString>) -> i32 {
    match topic {
        None => {
            say!("usage: lctl [--device NAME] COMMAND ARGUMENTS\n\nCommands:");
            for n in names() {
                say!("  {n}");
            }
            0
        }
        Some(t) => match resolve(&t.to_string_lossy(), &names(), "lctl") {
            Err(code) => code,
            Ok(n) => {
                say!("{n} {}", SUBCOMMANDS.iter().find(|s| s.name == n).map_or("", |s| s.usage));
                0
            }
        },
    }
}

fn run_sub(sub: &Subcommand, args: &[OsString]) -> i32 {
    if args.first().is_some_and(|a| a == "--help") {
        say!("{} {}", sub.name, sub.usage);
        return 0;
    }
    match (sub.run)(args) {
        Ok(first) => first.exit_code(),
        Err(f) => {
            let mut all = FirstError::default();
            all.report(&format!("error: {}", sub.name), &f);
            if matches!(f, Failure::Usage(_)) {
                eprintln!("usage: lctl {} {}", sub.name, sub.usage);
            }
            all.exit_code()
        }
    }
}

pub fn main(args: &[OsString]) -> i32 {
    if args.is_empty() { interactive("lctl > ", one) } else { one(args) }
}
