//! For how long the holder of a target may write: renewed by its heartbeat ([`crate::mmp`]), looked at before each change
//! of a file.

use crate::StoreError;
use model::planted::{self, Bug};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use world::gate::{GatedDisk, Kind};
use world::{Instant, World};

/// Clones are the same lease. The default one never ends: nobody else can reach the target.
#[derive(Clone, Debug)]
pub struct Lease(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Nanoseconds of the clock.
    until: AtomicU64,
    /// Why it ended before its time.
    lost: OnceLock<String>,
}

impl Default for Lease {
    fn default() -> Lease {
        Lease::new(u64::MAX)
    }
}

impl Lease {
    fn new(until: u64) -> Lease {
        Lease(Arc::new(Inner { until: AtomicU64::new(until), lost: OnceLock::new() }))
    }

    /// Ends at `t`, unless renewed.
    pub fn until(t: Instant) -> Lease {
        Lease::new(t.0)
    }

    /// Nothing is written from `t` on, unless this is said again. `Refused`: it is over.
    pub(crate) fn renew(&self, t: Instant) -> Result<(), StoreError> {
        self.0.until.store(t.0, Relaxed);
        self.lost()
    }

    fn lost(&self) -> Result<(), StoreError> {
        self.0.lost.get().map_or(Ok(()), |why| Err(StoreError::Refused(why.clone())))
    }

    /// The world of the target in `dir`, whose disk takes no change any more once the lease is over: `Refused`, wrapped.
    /// A server that sleeps in the middle of anything, of a checkpoint say, and wakes up as its successor works, cannot
    /// spoil what that one wrote; but for the one call that was on its way to the disk.
    pub(crate) fn guard(&self, world: &World, dir: &str) -> World {
        let (lease, w, dir) = (self.clone(), world.clone(), dir.to_string());
        let gate = move |kind, _: &str| match kind {
            Kind::Read => Ok(()),
            Kind::Write | Kind::Flush | Kind::Name => lease.check(&w, &dir).map_err(io::Error::other),
        };
        World { disk: Arc::new(GatedDisk::new(world.disk.clone(), Arc::new(gate))), ..world.clone() }
    }

    /// It ends now, for good.
    pub fn lose(&self, why: &str) {
        let _ = self.0.lost.set(why.to_string());
    }

    /// `Refused`: somebody else may have the target in `dir` by now; the words for its administrator. Found over once, it
    /// stays over: a heartbeat that was on its way meanwhile comes too late for whoever was refused a change, and a server
    /// that went on would take that for an error of its disk, and tell its clients so.
    pub fn check(&self, world: &World, dir: &str) -> Result<(), StoreError> {
        if planted::on(Bug::ZombieAccepted) {
            return Ok(());
        }
        self.lost()?;
        let until = self.0.until.load(Relaxed);
        if until == u64::MAX || world.now().0 < until || planted::on(Bug::HeartbeatTooLate) {
            return Ok(());
        }
        self.lose(&format!(
            "the heartbeat of '{dir}' was not written for half its term: another server may have taken the target"
        ));
        self.lost()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The simulator's seed 1852: a server slept in the middle of writing its heartbeat, until its lease was over. It was
    /// refused a write, the heartbeat reached the disk, and clients were told that the disk had failed (EROFS).
    #[test]
    fn a_lease_that_was_found_over_is_not_renewed() {
        let world = world::real::start(1).unwrap().0;
        let lease = Lease::until(world.now());
        world::sys::sleep(Duration::from_millis(1));
        let later = world.now().plus(Duration::from_secs(60));
        let mut other = lease.clone();
        assert!(
            other.renew(later).is_ok() && lease.check(&world, "/t").is_ok(),
            "nobody was refused anything"
        );
        other = Lease::until(world.now());
        world::sys::sleep(Duration::from_millis(1));
        let refused = other.check(&world, "/t").unwrap_err().to_string();
        assert!(refused.contains("half its term"), "{refused}");
        assert_eq!(other.renew(later).unwrap_err().to_string(), refused);
        assert_eq!(other.check(&world, "/t").unwrap_err().to_string(), refused);
    }
}
