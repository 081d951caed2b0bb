//! The write barrier: for a while nothing is modified here, what was acknowledged before is durable, and no
//! mount has anything that it did by itself and did not tell (decision 0082).
//!
//! Transactions look at it under the core's lock ([`Barrier::holds`]), and it begins to hold under that lock:
//! so none is half-way in between. Whoever waits does so in `callbacks`. It ends when it is thawed, or when
//! its time is over, which the table remembers over a restart. Who brings that about is `freeze`.

use crate::MdsError;
use crate::schema::{key, value};
use model::barrier::{BARRIER_MAX_S, BarrierStanding, BarrierState};
use model::mutex::Mutex;
use model::planted::{self, Bug};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::Db;
use world::sync::Notify;
use world::{Instant, World};

pub struct Barrier {
    world: World,
    pub inner: Mutex<Inner>,
    /// Modifications wait.
    closed: AtomicBool,
    changed: Notify,
}

/// Where it stands.
pub struct Inner {
    pub state: BarrierState,
    /// By then it is over.
    pub until: Instant,
    pub round: u64,
    pub why: Option<String>,
}

impl Barrier {
    /// As the table says: one that was frozen before a restart is frozen still, until its time is over.
    pub fn load(world: &World, db: &Db) -> Result<Barrier, MdsError> {
        let k = key::STATE_BARRIER;
        let stored = db.get(k)?.map(|v| value::decode_barrier(k, &v)).transpose()?;
        // The clock of another host may be far behind: it never holds for longer than it was to.
        let left = stored.map(|(until, whole)| {
            until.saturating_sub(wall_ms(world)).min(whole).min(u64::from(BARRIER_MAX_S) * 1000)
        });
        let state = match left {
            None => BarrierState::Init,
            Some(0) => BarrierState::Expired,
            Some(_) => BarrierState::Frozen,
        };
        let until = world.now().plus(Duration::from_millis(left.unwrap_or(0)));
        Ok(Barrier {
            world: world.clone(),
            inner: Mutex::new(Inner { state, until, round: 0, why: None }),
            closed: AtomicBool::new(state == BarrierState::Frozen),
            changed: Notify::new(),
        })
    }

    /// Whether modifications wait.
    pub fn holds(&self) -> bool {
        self.closed.load(Ordering::Acquire) && !planted::on(Bug::FrozenModified)
    }

    /// Whether it holds, or is to: nobody is given anything to change by himself.
    pub fn is_wanted(&self) -> bool {
        let state = self.inner.lock().state;
        state.is_freezing() || state == BarrierState::Frozen
    }

    /// Told whenever it ends.
    pub fn changed(&self) -> &Notify {
        &self.changed
    }

    /// How it stands, as administrators are told.
    pub fn standing(&self) -> BarrierStanding {
        let i = self.inner.lock();
        let holds = i.state.is_freezing() || i.state == BarrierState::Frozen;
        let left = i.until.since(self.world.now());
        let left_s = if holds { left.as_millis().div_ceil(1000) as u64 } else { 0 };
        assert!(left_s <= u64::from(BARRIER_MAX_S), "it holds for a bounded time");
        BarrierStanding { state: i.state, left_s, round: i.round, why: i.why.clone() }
    }

    /// From `from` to `to`, if it is the barrier of that number still. With every end of holding those who
    /// wait go on.
    pub fn step(&self, round: u64, from: &[BarrierState], to: BarrierState, why: Option<String>) -> bool {
        let mut i = self.inner.lock();
        if i.round != round || !from.contains(&i.state) {
            return false;
        }
        assert_ne!(i.state, to, "a step leads elsewhere");
        (i.state, i.why) = (to, why);
        let holds = matches!(to, BarrierState::FreezingP2 | BarrierState::Frozen);
        self.closed.store(holds, Ordering::Release);
        drop(i);
        if !holds {
            self.changed.notify_waiters();
        }
        true
    }
}

/// Milliseconds since 1970.
pub fn wall_ms(world: &World) -> u64 {
    u64::try_from(world.wall().as_nanos() / 1_000_000).unwrap_or(0)
}
