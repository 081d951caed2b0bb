//! The commands of users and administrators: `lfs`, `lctl`, `lljobstat`, `mkfs.nacre`, `tunefs.nacre`,
//! `nacre copy`, `nacre checksum`.
//!
//! `command/NAME.rs` holds one each. `lfs` talks to a mount through the ioctl of `client::control`, `lctl` to
//! local mounts the same way and to local daemons through their control sockets.

pub mod command;
pub mod failure;
pub mod getopt;
pub mod glob;
pub mod interrupt;
pub mod lctl;
pub mod lfs;
pub mod live;
pub mod local;
pub mod names;
pub mod output;
pub mod pool;
pub mod size;
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
        "copy" => command::copy::main(args),
        "checksum" => command::checksum::main(args),
        "domains" => command::domains::main(args),
        "drain" => command::drain::main(args),
        "rebalance" => command::rebalance::main(args),
        "remove" => command::remove::main(args),
        "replace" => command::replace::main(args),
        "lost" => command::lost::main(args),
        "movements" => command::movements::main(args),
        "policy" => command::policy::main(args),
        "quota" => command::quota::main(args),
        "lljobstat" => command::jobs::lljobstat::main(args),
        "top" => command::top::main(args),
        _ => return None,
    };
    output::flush();
    Some(code)
}
