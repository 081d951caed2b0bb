//! `mount.nacre`: the mount helper, as mount(8), fstab and autofs call it, and the client daemon it starts.
//! Of a target's folder it starts the target instead.

mod daemon;
mod helper;
mod target;

pub use client::Source;
pub use fuse::guard;
pub use helper::{MountRequest, check_options, mount, open_fuse_device};

use std::ffi::OsString;

/// Set in the daemon's environment: this process is the daemon, not the helper.
const DAEMON_ENV: &str = "NACRE_MOUNT_DAEMON";

/// The command that ends the connection of a mount whose daemon was killed: `nacre mount-guard DIR`, started
/// by the daemon.
pub const GUARD: &str = "mount-guard";

/// mount(8): the mount failed.
const EXIT_FAILURE: i32 = 32;

pub fn main(args: &[OsString]) -> i32 {
    let daemon = std::env::var_os(DAEMON_ENV).is_some();
    if daemon { daemon::main(args) } else { helper::main(args) }
}
