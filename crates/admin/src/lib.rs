//! The commands of users and administrators: `lfs`, `lctl`, `lljobstat`, `mkfs.nacre`, `tunefs.nacre`,
//! `nacre copy`, `nacre checksum`.
//!
//! `command/NAME.rs` holds one each. `lfs` talks to a mount through the ioctl of `client::control`, `lctl` to
//! local mounts the same way and to local daemons through their control sockets.

pub mod command;
pub mod failure;
pub mod folder;
pub mod getopt;
pub mod glob;
pub mod health;
pub mod hosts;
pub mod interrupt;
pub mod lctl;
pub mod lfs;
pub mod live;
pub mod local;
pub mod names;
pub mod orders;
pub mod output;
pub mod pool;
pub mod query;
pub mod rates;
pub mod shell;
pub mod size;
pub mod views;
pub mod walk;

use std::ffi::OsString;

/// What `lfs version` and the others print.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Exit status of a command that was called wrongly (Lustre's parser help code).
pub const EXIT_USAGE: i32 = 4;

/// Runs the command that answers to `program`; `None` if this crate has no such command. Returns the exit
/// status: 0, an errno, or [`EXIT_USAGE`]; of commands of `nacre` what their pages say.
pub fn run(program: &str, args: &[OsString]) -> Option<i32> {
    let code = match program {
        "lfs" => lfs::main(args),
        "lfs_migrate" => command::migrate::script::main(args),
        "lctl" => lctl::main(args),
        "mkfs.nacre" => command::mkfs::main(args),
        "tunefs.nacre" => command::tunefs::main(args),
        "config" => command::config::main(args),
        "deploy" => command::deploy::main(args),
        "copy" => command::copy::main(args),
        "checksum" => command::checksum::main(args),
        "domains" => command::domains::main(args),
        "doctor" => command::doctor::main(args),
        "events" => command::events::main(args),
        "history" => command::history::main(args),
        "drain" => command::drain::main(args),
        "rebalance" => command::rebalance::main(args),
        "remove" => command::remove::main(args),
        "replace" => command::replace::main(args),
        "lost" => command::lost::main(args),
        "maintenance" => command::maintenance::main(args),
        "metrics" => command::metrics::main(args),
        "movements" => command::movements::main(args),
        "plan" => command::plan::main(args),
        "policy" => command::policy::main(args),
        "quota" => command::quota::main(args),
        "snapshot" => command::snapshot::main(args),
        "lljobstat" => command::jobs::lljobstat::main(args),
        "top" => command::top::main(args),
        "trace" => command::trace::main(args),
        "trash" => command::trash::main(args),
        "tune" => command::tune::main(args),
        "userdir" => command::userdir::main(args),
        _ => return None,
    };
    output::flush();
    Some(code)
}
