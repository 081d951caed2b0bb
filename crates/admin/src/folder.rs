//! The right to change a target's folder.

use crate::local::Daemon;
use std::time::Duration;
use store::format::{Superblock, TargetLock};
use store::{StoreError, mmp};
use world::World;
use world::sys::Deadline;

/// Who was told to let a folder go finishes what is under way first.
const LEAVING_PATIENCE: Duration = Duration::from_secs(30);

/// Whether a server of this host is about to let the folder go: its mount point was unmounted, or it ends.
pub fn is_being_left(dir: &str) -> bool {
    Daemon::statuses().iter().any(|s| s.leaving.iter().any(|d| d == dir))
}

/// Holds the folder; nobody serves it meanwhile. Refused, with the holder's words, if somebody does.
pub fn hold(world: &World, dir: &str) -> Result<TargetLock, StoreError> {
    let end = Deadline::after(LEAVING_PATIENCE);
    let canonical = world::sys::files::canonical(dir).ok();
    let known = canonical.as_ref().and_then(|d| d.to_str()).unwrap_or(dir);
    let lock = loop {
        match Superblock::lock(world, dir) {
            Err(StoreError::Refused(_)) if !end.passed() && is_being_left(known) => {
                world::sys::sleep(Duration::from_millis(50));
            }
            // It let go between the two looks.
            Err(StoreError::Refused(_)) if !end.passed() && Daemon::statuses().is_empty() => {
                break Superblock::lock(world, dir)?;
            }
            other => break other?,
        }
    };
    mmp::wait_idle(world, dir, &lock, world::sys::sleep)?;
    Ok(lock)
}
