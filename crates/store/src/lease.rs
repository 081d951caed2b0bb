//! For how long the holder of a target may write: renewed by its heartbeat ([`crate::mmp`]), looked at before
//! each change of a file.
//!
//! The clock may have stood still, with everything else on a virtual machine that was paused. Then the wall
//! clock jumps ([`world::Clock::jumped`]), and a look at the block on disk says whether another server took
//! the target meanwhile. Between that and the next heartbeat the look counts for as long as a successor waits
//! between writing its block and using the target. A clock that NTP sets costs this look and nothing else.

use crate::StoreError;
use crate::mmp::{self, Seen, Times};
use model::planted::{self, Bug};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use world::gate::{GatedDisk, Kind};
use world::{Instant, World};

/// Clones are the same lease. The default one never ends: nobody else can reach the target.
#[derive(Clone, Debug)]
pub struct Lease(Arc<LeaseInner>);

#[derive(Debug)]
struct LeaseInner {
    /// Nanoseconds of the clock.
    until: AtomicU64,
    /// Why it ended before its time.
    lost: OnceLock<String>,
    /// The block on disk; none without a heartbeat.
    beats: Option<Arc<Beats>>,
}

/// The heartbeats behind a lease, as the clocks saw them.
#[derive(Debug)]
pub(crate) struct Beats {
    /// In the block on disk.
    pub(crate) nonce: u64,
    times: Times,
    /// When the last one was begun. Of the first one: when the block before it was looked at.
    begun: Moment,
    /// When the block was read that the one on its way is put over.
    read: Moment,
    /// A block is on its way to the disk.
    writing: AtomicBool,
    /// One was for so long that it may lie over a successor's.
    late: AtomicBool,
    /// The jump of the wall clock after which the block was looked at, and when.
    jump: AtomicU64,
    looked: AtomicU64,
}

/// Nanoseconds from the clock of terms to the wall's.
pub(crate) fn apart(world: &World) -> i64 {
    let ns = world.wall().as_nanos() - i128::from(world.now().0);
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// A moment as both clocks had it.
#[derive(Debug)]
struct Moment {
    at: AtomicU64,
    /// See [`apart`].
    apart: AtomicI64,
}

impl Moment {
    fn now(world: &World) -> Moment {
        Moment { at: AtomicU64::new(world.now().0), apart: AtomicI64::new(apart(world)) }
    }

    fn set(&self, at: Instant, apart: i64) {
        self.at.store(at.0, Relaxed);
        self.apart.store(apart, Relaxed);
    }

    /// Since then: what the clock says, and for how long it stood still beside that.
    fn passed(&self, world: &World) -> (Duration, Duration) {
        let hidden = apart(world).abs_diff(self.apart.load(Relaxed));
        let hidden = if hidden > world::jumps::STEP_NS { hidden } else { 0 };
        (world.now().since(Instant(self.at.load(Relaxed))), Duration::from_nanos(hidden))
    }
}

impl Beats {
    pub(crate) fn new(world: &World, nonce: u64, times: Times) -> Arc<Beats> {
        Arc::new(Beats {
            nonce,
            times,
            begun: Moment::now(world),
            read: Moment::now(world),
            writing: AtomicBool::new(false),
            late: AtomicBool::new(false),
            jump: AtomicU64::new(0),
            looked: AtomicU64::new(0),
        })
    }

    /// The block on disk is looked at, before the first one is put over it.
    pub(crate) fn looks(&self, world: &World) {
        self.begun.set(world.now(), apart(world));
    }

    /// The block on disk is read, before the next one is put over it.
    pub(crate) fn reads(&self, world: &World) {
        self.read.set(world.now(), apart(world));
    }

    pub(crate) fn writes(&self) {
        self.writing.store(true, Relaxed);
    }

    /// Nothing is on its way any more. `Refused`: it may have been while a successor came, whose block lies
    /// under it now.
    pub(crate) fn ended(&self, world: &World, dir: &str) -> Result<(), StoreError> {
        let hidden = self.may_lie_over_another(world);
        let (passed, _) = self.begun.passed(world);
        if self.writing.load(Relaxed) && (hidden || passed >= self.times.term) {
            self.late.store(true, Relaxed);
        }
        self.writing.store(false, Relaxed);
        if hidden { Err(StoreError::Refused(over_another(dir))) } else { Ok(()) }
    }

    /// Whether a block is on its way to the disk.
    pub(crate) fn is_writing(&self) -> bool {
        self.writing.load(Relaxed)
    }

    /// The block on disk proves nothing: it may have been put over a successor's.
    pub(crate) fn is_late(&self) -> bool {
        self.late.load(Relaxed)
    }

    /// The last one was begun then, with the clocks so far apart, and is on disk.
    pub(crate) fn written(&self, begun: Instant, apart: i64) {
        self.begun.set(begun, apart);
    }

    /// The clocks stood still so long that somebody who watched the block before this one may have taken the
    /// target, and since that was read so much time passed that he may use it. (Who takes a target finds, or
    /// does not find, what comes sooner: he waits before he uses it.)
    fn may_lie_over_another(&self, world: &World) -> bool {
        let since_read = self.read.passed(world);
        let (passed, hidden) = self.begun.passed(world);
        let taken = !hidden.is_zero() && passed + hidden >= self.times.term;
        self.writing.load(Relaxed) && taken && since_read.0 + since_read.1 >= self.before_use()
    }

    /// For so long nobody uses a target that he took.
    fn before_use(&self) -> Duration {
        self.times.interval * mmp::INTERVALS_BEFORE_USE
    }

    /// Whether the first block reached the disk so long after the look at the one before that somebody who
    /// took the target in between may already use it.
    pub(crate) fn came_late(&self, world: &World) -> bool {
        let (passed, hidden) = self.begun.passed(world);
        passed + hidden >= self.before_use()
    }
}

fn over_another(dir: &str) -> String {
    format!(
        "the clocks stood still while the heartbeat of '{dir}' was written: another server may have taken the target"
    )
}

impl Default for Lease {
    fn default() -> Lease {
        Lease::new(u64::MAX, None)
    }
}

impl Lease {
    fn new(until: u64, beats: Option<Arc<Beats>>) -> Lease {
        Lease(Arc::new(LeaseInner { until: AtomicU64::new(until), lost: OnceLock::new(), beats }))
    }

    /// Ends at `t`, unless renewed.
    pub fn until(t: Instant) -> Lease {
        Lease::new(t.0, None)
    }

    /// The same, with heartbeats.
    pub(crate) fn of_heartbeats(t: Instant, beats: Arc<Beats>) -> Lease {
        Lease::new(t.0, Some(beats))
    }

    /// Nothing is written from `t` on, unless this is said again. `Refused`: it is over.
    pub(crate) fn renew(&self, t: Instant) -> Result<(), StoreError> {
        self.0.until.store(t.0, Relaxed);
        self.lost()
    }

    fn lost(&self) -> Result<(), StoreError> {
        self.0.lost.get().map_or(Ok(()), |why| Err(StoreError::Refused(why.clone())))
    }

    /// The world of the target in `dir`, whose disk takes no change any more once the lease is over:
    /// `Refused`, wrapped. A server that sleeps in the middle of anything, of a checkpoint say, and wakes up
    /// as its successor works, cannot spoil what that one wrote; but for the one call that was on its way to
    /// the disk.
    pub(crate) fn guard(&self, world: &World, dir: &str) -> World {
        let (lease, w, dir) = (self.clone(), world.clone(), dir.to_string());
        let gate = move |kind, _: &str| match kind {
            Kind::Read => Ok(()),
            Kind::Write | Kind::Flush | Kind::Name => lease.check(&w, &dir).map_err(io::Error::other),
        };
        World { disk: Arc::new(GatedDisk::new(world.disk.clone(), Arc::new(gate))), ..world.clone() }
    }

    /// It is over, and somebody noticed.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.lost.get().is_some()
    }

    /// It ends now, for good.
    pub fn lose(&self, why: &str) {
        let _ = self.0.lost.set(why.to_string());
    }

    /// `Refused`: somebody else may have the target in `dir` by now; the words for its administrator. Found
    /// over once, it stays over: a heartbeat that was on its way meanwhile comes too late for whoever was
    /// refused a change, and a server that went on would take that for an error of its disk, and tell its
    /// clients so.
    pub fn check(&self, world: &World, dir: &str) -> Result<(), StoreError> {
        if planted::on(Bug::ZombieAccepted) {
            return Ok(());
        }
        self.lost()?;
        let until = self.0.until.load(Relaxed);
        if until == u64::MAX {
            return Ok(());
        }
        if let Some(b) = &self.0.beats {
            self.look_after_jump(world, dir, b)?;
        }
        if world.now().0 < until || planted::on(Bug::HeartbeatTooLate) {
            return Ok(());
        }
        self.lose(&format!(
            "the heartbeat of '{dir}' was not written for half its term: another server may have taken the target"
        ));
        self.lost()
    }

    /// The block is read if the last heartbeat may be longer ago than the clock says. Another error than
    /// `Refused`: it cannot be read.
    fn look_after_jump(&self, world: &World, dir: &str, b: &Beats) -> Result<(), StoreError> {
        loop {
            let jump = world.jumped();
            if jump.0 <= b.begun.at.load(Relaxed) || planted::on(Bug::StoppedClockServer) {
                return Ok(());
            }
            let now = world.now();
            let counts = b.times.interval * mmp::INTERVALS_BEFORE_USE;
            if b.jump.load(Relaxed) == jump.0 && now < Instant(b.looked.load(Relaxed)).plus(counts) {
                return Ok(());
            }
            match mmp::read(world, dir)? {
                Seen::Block(_) if b.may_lie_over_another(world) => self.lose(&over_another(dir)),
                Seen::Block(there) if there.nonce == b.nonce => {
                    tracing::info!("the wall clock jumped: '{dir}' is still this server's");
                }
                other => self.lose(&mmp::taken(dir, &other)),
            }
            self.lost()?;
            b.looked.store(now.0, Relaxed);
            b.jump.store(jump.0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The simulator's seed 1852: a server slept in the middle of writing its heartbeat, until its lease was
    /// over. It was refused a write, the heartbeat reached the disk, and clients were told that the disk had
    /// failed (EROFS).
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
