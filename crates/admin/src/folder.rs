//! The right to change a target's folder.

use crate::local::Daemon;
use std::time::Duration;
use store::format::{Superblock, TargetLock};
use store::{StoreError, mmp};
use world::World;
use world::sys::Deadline;

/// Who was told to let a folder go finishes what is under way first.
const LEAVING_PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Whether a server of this host is about to let the folder go: its mount point was unmounted, or it ends.
pub fn is_being_left(dir: &str) -> bool {
    Daemon::statuses().iter().any(|s| s.leaving.iter().any(|d| d == dir))
}

/// Tries to lock for as long as who holds it is leaving. `is_left` waits a moment before it says yes.
fn when_left<L>(
    mut lock: impl FnMut() -> Result<L, StoreError>,
    mut is_left: impl FnMut() -> bool,
) -> Result<L, StoreError> {
    loop {
        match lock() {
            Err(StoreError::Refused(_)) if is_left() => {}
            // Who held it may have let go between the two looks: who refuses it now does hold it, as a
            // server says that it leaves a folder for as long as it has the lock.
            Err(StoreError::Refused(_)) => return lock(),
            other => return other,
        }
    }
}

/// Holds the folder; nobody serves it meanwhile. Refused, with the holder's words, if somebody does.
pub fn hold(world: &World, dir: &str) -> Result<TargetLock, StoreError> {
    let end = Deadline::after(LEAVING_PATIENCE);
    let canonical = world::sys::files::canonical(dir).ok();
    let known = canonical.as_ref().and_then(|d| d.to_str()).unwrap_or(dir);
    let lock = when_left(
        || Superblock::lock(world, dir),
        || {
            let waits = !end.passed() && is_being_left(known);
            if waits {
                world::sys::sleep(LOOK_AGAIN);
            }
            waits
        },
    )?;
    mmp::wait_idle(world, dir, &lock, world::sys::sleep)?;
    Ok(lock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A server that holds the folder for some looks, whoever looks: while it does, it says that it leaves.
    fn tried(looks: u32, leaves: bool) -> (Result<(), StoreError>, u32) {
        let (left, asked) = (Cell::new(looks), Cell::new(0));
        let holds = || {
            let n = left.get();
            left.set(n.saturating_sub(1));
            n > 0
        };
        let lock = || match holds() {
            true => Err(StoreError::Refused("it is served".to_string())),
            false => Ok(()),
        };
        let done = when_left(lock, || {
            asked.set(asked.get() + 1);
            holds() && leaves
        });
        (done, asked.get())
    }

    #[test]
    fn a_folder_is_had_whenever_its_server_lets_it_go() {
        // Odd: between the refusal and the question whether it leaves.
        for looks in 0..6 {
            let (done, asked) = tried(looks, true);
            assert!(done.is_ok(), "let go after {looks} looks: {done:?}");
            assert_eq!(asked, looks.div_ceil(2));
        }
    }

    #[test]
    fn a_folder_that_is_served_is_refused() {
        let (done, asked) = tried(100, false);
        assert!(matches!(done, Err(StoreError::Refused(_))), "{done:?}");
        assert_eq!(asked, 1);
    }
}
