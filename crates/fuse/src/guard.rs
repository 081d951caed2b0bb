//! What ends the connection when the daemon is killed.
//!
//! The kernel ends it when its last descriptor is closed. That never comes while a thread of the daemon waits
//! for a page (`pages.rs`) that is locked until somebody answers a READ: the descriptor that the thread
//! called with stays open, the dead daemon answers nothing, and whoever uses the mount waits with it. So a
//! process beside the daemon waits for the end of a pipe that the daemon holds, and then ends the connection
//! through fusectl.

use crate::mount::{self, Mounted};
use crate::reply::Channel;
use std::ffi::OsString;
use std::io;
use std::io::PipeWriter;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use world::sys::process::{self, SIGHUP, SIGINT, SIGTERM};

/// The process that ends the connection when this one ends, however it does.
#[derive(Debug)]
pub struct Guard {
    _daemon_lives: PipeWriter,
}

impl Guard {
    /// Starts `exe` with `arg0` and `args`, which must call [`guard`].
    pub fn start(mounted: &Mounted, exe: &Path, arg0: &str, args: &[OsString]) -> io::Result<Guard> {
        let abort = mount::abort_file(mounted.minor)?;
        let (dead, lives) = io::pipe()?;
        process::spawn_beside(exe, arg0, args, dead.into(), abort)?;
        Ok(Guard { _daemon_lives: lives })
    }
}

/// The process itself: waits for the end of standard input, then writes "1" to standard output. Returns the
/// exit status.
pub fn guard() -> i32 {
    // Who stops a service signals all of its processes; the daemon decides when it ends.
    process::block_signals(&[SIGTERM, SIGINT, SIGHUP]);
    let mut buf = [0];
    while let Ok(1..) | Err(rustix::io::Errno::INTR) = rustix::io::read(rustix::stdio::stdin(), &mut buf) {}
    // After an unmount there is no such connection.
    let _ = rustix::io::write(rustix::stdio::stdout(), b"1");
    0
}

/// Gives this thread a table of descriptors of its own with nothing in it but one of this connection,
/// returned if it is another than `of`.
pub fn only_descriptor(of: &Channel) -> io::Result<Option<Channel>> {
    // SAFETY: this thread has a copy of the table from here on; nobody else sees what it does with it.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // A new one, so that what was read from `of` ends when the others close it.
    let own = of.try_clone().ok();
    let keep = own.as_ref().unwrap_or(of).as_fd().as_raw_fd() as libc::c_uint;
    for (first, end) in [(0, keep), (keep + 1, libc::c_uint::MAX)] {
        // SAFETY: plain numbers. What is closed belongs to objects of other threads, which have a table of
        // their own; this thread uses none of them afterwards.
        if first < end && unsafe { libc::syscall(libc::SYS_close_range, first, end - 1, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(own)
}
