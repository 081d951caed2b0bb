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

    /// Nothing is written from `t` on, unless this is said again.
    pub fn renew(&self, t: Instant) {
        self.0.until.store(t.0, Relaxed);
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

    /// `Refused`: somebody else may have the target in `dir` by now; the words for its administrator.
    pub fn check(&self, world: &World, dir: &str) -> Result<(), StoreError> {
        if planted::on(Bug::ZombieAccepted) {
            return Ok(());
        }
        if let Some(why) = self.0.lost.get() {
            return Err(StoreError::Refused(why.clone()));
        }
        let until = self.0.until.load(Relaxed);
        if until == u64::MAX || world.now().0 < until || planted::on(Bug::HeartbeatTooLate) {
            return Ok(());
        }
        Err(StoreError::Refused(format!(
            "the heartbeat of '{dir}' was not written for half its term: another server may have taken the target"
        )))
    }
}
