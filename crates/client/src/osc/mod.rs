//! One object target (OST), and what this mount keeps of its objects: bytes that were written and are not
//! there yet, bytes that were read, sizes and times, each under an extent lock.
//!
//! `object` is one object, `segments` its bytes, `ranges` which of them are in pages of a kernel. `obtain`
//! gets locks, `revoke` gives them back, `writeback` sends what is dirty, `fetch` reads, `change` does what
//! goes to the server at once, `glimpselist` asks about many objects, `grant` bounds what may be dirty,
//! `keep` what may be for owners with limits, `cache` what is kept of all objects of all OSTs.
//!
//! Nothing here knows of files but that an object belongs to one: which bytes of which file they are is
//! `lov`'s. Whoever opens an object is asked through [`ObjectHolder`].
//!
//! Lock order: an object's state is the innermost, but for `grant` and the list of dirty objects. The objects
//! of a file are locked in the order of their stripes.

mod cache;
mod change;
mod fetch;
mod glimpselist;
mod grant;
mod keep;
pub(crate) mod lru;
mod object;
mod obtain;
pub(crate) mod params;
mod ranges;
mod revoke;
mod segments;
mod writeback;

#[cfg(test)]
mod tests;

pub(crate) use cache::ObjectCache;
pub(crate) use fetch::{Fetching, Gap};
pub(crate) use object::{Label, Lock, LockEnqueue, Object, ObjectHolder, ObjectState, Outcome, WriteMeta};
pub(crate) use obtain::{Group, LockRequest, Look};
pub(crate) use writeback::Flushed;

use crate::base::Context;
use crate::session::RECLAIM_BATCH;
use crate::session::{SessionOwner, Target};
use bytes::Bytes;
use grant::Grant;
use keep::KeepBook;
use lru::HeldLocks;
use model::mutex::Mutex;
use model::{Nid, TargetId, TargetKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use wire::Op;
use wire::msg::extent::ExtentSpec;
use wire::msg::notify::Notify;
use wire::msg::reclaim::{Reclaim, ReclaimReply};
use world::{Instant, sync};

/// `osc.*.max_dirty_mb` unless set otherwise.
pub(crate) const DIRTY_DEFAULT_MB: u64 = 256;
/// Requests under locks to one OST at a time, at most: the others are for those that wait for locks, which
/// must never keep the former from their slots.
const LOCKED_RPCS_MAX: usize = 24;

pub(crate) struct Osc {
    pub cx: Arc<Context>,
    pub target: Arc<Target>,
    pub cache: Arc<ObjectCache>,
    /// Bytes that are dirty or being written.
    pub unwritten: AtomicU64,
    pub max_dirty: AtomicU64,
    /// Told when bytes were written or lost.
    pub drained: sync::Notify,
    pub(super) lru: Arc<HeldLocks>,
    /// Requests under locks that may be in flight.
    pub locked_rpcs: Arc<sync::Semaphore>,
    locked_rpcs_max: Mutex<usize>,
    /// Grows when the server forgot or may have forgotten locks: answers to what was asked before count no
    /// more.
    generation: AtomicU64,
    /// When it said that it does not know lists of glimpses: a target of an earlier version.
    without_lists: Mutex<Option<Instant>>,
    grant: Mutex<Grant>,
    keeps: Mutex<KeepBook>,
    grant_answered: sync::Notify,
}

impl Osc {
    /// The session with an OST, which is made with it; it connects at its first call.
    pub(crate) fn new(cache: &Arc<ObjectCache>, id: TargetId, nids: Vec<Nid>) -> Arc<Osc> {
        assert!(id.kind == TargetKind::Ost, "objects lie on object targets");
        let osc = Arc::new_cyclic(|me: &Weak<Osc>| {
            let cx = cache.cx.clone();
            Osc {
                target: Target::new(&cx, id, nids, me.clone()),
                cx,
                cache: cache.clone(),
                unwritten: AtomicU64::new(0),
                max_dirty: AtomicU64::new(DIRTY_DEFAULT_MB << 20),
                drained: sync::Notify::new(),
                lru: Arc::default(),
                locked_rpcs: Arc::new(sync::Semaphore::new(LOCKED_RPCS_MAX)),
                locked_rpcs_max: Mutex::new(LOCKED_RPCS_MAX),
                generation: AtomicU64::new(0),
                without_lists: Mutex::default(),
                grant: Mutex::default(),
                keeps: Mutex::default(),
                grant_answered: sync::Notify::new(),
            }
        });
        cache.add_session(osc.target.clone());
        osc
    }

    /// Whether what is kept under its locks may be used.
    pub(crate) fn is_usable(&self) -> bool {
        self.target.is_active() && self.target.is_leased()
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// `max_rpcs_in_flight`, as far as the slots of a session allow.
    pub(crate) fn set_locked_rpcs(&self, n: usize) {
        let n = n.clamp(1, LOCKED_RPCS_MAX);
        let was = std::mem::replace(&mut *self.locked_rpcs_max.lock(), n);
        if n > was {
            self.locked_rpcs.add_permits(n - was);
        } else if n < was {
            let (rpcs, excess) = (self.locked_rpcs.clone(), (was - n) as u32);
            self.cx.world.spawn("client-rpcs-in-flight", async move {
                if let Ok(p) = rpcs.acquire_many(excess).await {
                    p.forget();
                }
            });
        }
    }
}

impl SessionOwner for Osc {
    fn reclaim(&self) -> Vec<Reclaim> {
        let held = self.held_locks();
        tracing::info!("{} recovers: {} locks are reclaimed", self.target.id, held.len());
        let piece = |c: &[ExtentSpec]| Reclaim { extents: c.to_vec(), ..Reclaim::default() };
        held.chunks(RECLAIM_BATCH).map(piece).collect()
    }

    fn reclaimed(&self, lost: &ReclaimReply) {
        self.locks_lost(&lost.lost_locks);
    }

    fn request_lost(&self, op: Op, body: &Bytes, reply: &Bytes) {
        self.cx.request_lost(op, body, reply);
    }

    fn notice(self: Arc<Self>, n: Notify) {
        self.extent_notice(&n);
    }

    fn evicted(&self) {
        self.lost_all_locks();
    }
}
