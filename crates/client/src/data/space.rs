//! Bounds: how much may be dirty for one OST and for all, what the OSTs promised to have room for, and what is kept of
//! what was read.

use super::file::File;
use super::{Data, SEGMENTS_MAX, content_share};
use crate::Fs;
use crate::targets::Target;
use bytes::Bytes;
use model::TargetKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::msg::grant::Grant;
use world::{Instant, World, sync};

/// `osc.*.max_dirty_mb` unless set otherwise.
pub(crate) const DIRTY_DEFAULT_MB: u64 = 256;
/// Requests under locks to one OST at a time, at most: the others are for those that wait for locks, which must never
/// keep the former from their slots.
const LOCKED_RPCS_MAX: usize = 24;
/// As many requests without a lock at most, whatever `max_rpcs_in_flight` says.
pub(crate) const UNLOCKED_RPCS_MAX: usize = 32;
/// An OST that promised nothing is asked again after so long.
const ASK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Promise {
    /// Bytes of promised space that no dirty byte uses; negative after the server forgot.
    left: i64,
    asking: bool,
    refused: Option<Instant>,
}

/// The data side of one OST.
pub(crate) struct OstSpace {
    /// Dirty and being written.
    pub unwritten: AtomicU64,
    pub max_dirty: AtomicU64,
    /// Told when bytes were written or lost.
    pub drained: sync::Notify,
    /// Turns of requests under locks.
    pub turns: Arc<sync::Semaphore>,
    turns_max: Mutex<usize>,
    /// Grows when the server forgot or may have forgotten locks: answers to what was asked before count no more.
    pub generation: AtomicU64,
    promise: Mutex<Promise>,
    answered: sync::Notify,
}

impl Default for OstSpace {
    fn default() -> OstSpace {
        OstSpace {
            unwritten: AtomicU64::new(0),
            max_dirty: AtomicU64::new(DIRTY_DEFAULT_MB << 20),
            drained: sync::Notify::new(),
            turns: Arc::new(sync::Semaphore::new(LOCKED_RPCS_MAX)),
            turns_max: Mutex::new(LOCKED_RPCS_MAX),
            generation: AtomicU64::new(0),
            promise: Mutex::default(),
            answered: sync::Notify::new(),
        }
    }
}

impl OstSpace {
    /// Whether locks of this OST can be relied on: it was heard from lately, so nobody can have been given what they
    /// cover.
    pub fn is_leased(&self, world: &World, target: &Target) -> bool {
        world.now() < target.import.leases_until()
    }

    /// `max_rpcs_in_flight`, as far as the slots of a session allow.
    pub fn set_turns(&self, n: usize, world: &World) {
        let n = n.min(LOCKED_RPCS_MAX);
        let was = std::mem::replace(&mut *self.turns_max.lock().expect("no panic while locked"), n);
        if n > was {
            self.turns.add_permits(n - was);
        } else if n < was {
            let (turns, excess) = (self.turns.clone(), (was - n) as u32);
            world.spawn("client-rpcs-in-flight", async move {
                if let Ok(p) = turns.acquire_many(excess).await {
                    p.forget();
                }
            });
        }
    }

    fn promise(&self) -> std::sync::MutexGuard<'_, Promise> {
        self.promise.lock().expect("no panic while locked")
    }

    /// Uses promised space; false if there is not so much.
    fn take(&self, bytes: u64) -> bool {
        let mut p = self.promise();
        let ok = p.left >= bytes as i64;
        if ok {
            p.left -= bytes as i64;
        }
        ok
    }

    /// Promised space that is not needed after all.
    pub fn give_back(&self, bytes: u64) {
        self.promise().left += bytes as i64;
    }

    /// Bytes of promised space left.
    pub fn left(&self) -> u64 {
        self.promise().left.max(0) as u64
    }

    /// The server restarted: what it promised is void.
    pub fn forget_promise(&self) {
        let mut p = self.promise();
        p.left = 0;
        p.refused = None;
    }
}

impl Fs {
    /// Uses promised space of an OST for `bytes`; asks for more first if need be. False: it promises no more.
    pub(super) async fn take_promise(self: &Arc<Self>, target: &Arc<Target>, bytes: u64) -> bool {
        let space = &target.data;
        if space.take(bytes) {
            if space.left() < space.max_dirty.load(Ordering::Relaxed) / 4 {
                self.ask_promise(target);
            }
            return true;
        }
        loop {
            let mut answered = Box::pin(space.answered.notified());
            answered.as_mut().enable();
            if !self.ask_promise(target) {
                return space.take(bytes);
            }
            answered.await;
            if space.take(bytes) {
                return true;
            }
            if space.promise().refused.is_some() {
                return false;
            }
        }
    }

    /// Asks for more in the background. False: it refused a moment ago.
    fn ask_promise(self: &Arc<Self>, target: &Arc<Target>) -> bool {
        let now = self.world.now();
        {
            let mut p = target.data.promise();
            if p.refused.is_some_and(|t| now.since(t) < ASK_AGAIN) {
                return false;
            }
            if p.asking {
                return true;
            }
            p.asking = true;
        }
        let (fs, t) = (self.clone(), target.clone());
        self.world.spawn("client-grant", async move {
            fs.ask_promise_now(&t).await;
            t.data.promise().asking = false;
            t.data.answered.notify_waiters();
        });
        true
    }

    /// One question and its answer.
    pub(super) async fn ask_promise_now(self: &Arc<Self>, t: &Arc<Target>) {
        let (have, want) = {
            let p = t.data.promise();
            let used = t.data.unwritten.load(Ordering::Relaxed);
            (p.left.max(0) as u64 + used, t.data.max_dirty.load(Ordering::Relaxed).max(4 << 20))
        };
        let r = t.call_now(self.own_ctx(), Grant { have, want }, Bytes::new()).await;
        let now = self.world.now();
        let mut p = t.data.promise();
        match r {
            Ok(r) if r.reply.have > have => {
                p.left += (r.reply.have - have) as i64;
                p.refused = None;
            }
            Ok(r) => {
                p.left -= (have - r.reply.have) as i64;
                p.refused = Some(now);
            }
            Err(_) => p.refused = Some(now),
        }
    }

    /// Waits until `bytes` more may be dirty for these OSTs. Interruptible; whoever waits holds nothing.
    pub(super) async fn room(self: &Arc<Self>, file: &Arc<File>, stripes: &[usize], bytes: u64) {
        for &stripe in stripes {
            let target = file.lock()[stripe].target.clone();
            loop {
                let (mut a, mut b) =
                    (Box::pin(target.data.drained.notified()), Box::pin(self.data.drained.notified()));
                a.as_mut().enable();
                b.as_mut().enable();
                let used = target.data.unwritten.load(Ordering::Relaxed);
                let max = target.data.max_dirty.load(Ordering::Relaxed);
                let all = self.data.unwritten.load(Ordering::Relaxed);
                let all_max = self.data.max_cached.load(Ordering::Relaxed) / 2;
                let crowded = self.data.segments.load(Ordering::Relaxed) > SEGMENTS_MAX;
                if (used == 0 || used + bytes <= max)
                    && (all == 0 || all + bytes <= all_max)
                    && !(crowded && all > 0)
                {
                    break;
                }
                self.flush_everything();
                world::select(a, world::select(b, self.world.sleep(ASK_AGAIN))).await;
            }
        }
    }

    /// The bound of what is kept changed.
    pub(crate) fn data_resized(&self) {
        self.content_resized(content_share(self.data.max_cached.load(Ordering::Relaxed)));
        self.evict_clean();
        self.data.drained.notify_waiters();
    }

    /// Looks how many bytes of requests the object servers have answered and may forget in a crash. They take memory beside
    /// what is cached: the same bytes may have been written anew since. Those that are cached too count twice, for a short time.
    pub(super) fn count_uncommitted(&self) {
        let osts = self.targets.of_kind(TargetKind::Ost);
        let bytes: u64 = osts.iter().map(|t| t.import.uncommitted().1 as u64).sum();
        self.data.uncommitted.store(bytes, Ordering::Relaxed);
    }

    /// Keeps what was read within its bound: the least recently used files' oldest bytes go.
    pub(super) fn evict_clean(&self) {
        let d = &self.data;
        let bound = |d: &Data| {
            let max = d.max_cached.load(Ordering::Relaxed);
            let again = d.uncommitted.load(Ordering::Relaxed).min(max / 2);
            let small = self.meta.content_bytes.load(Ordering::Relaxed);
            let coming = d.reading_ahead.load(Ordering::Relaxed).min(max / 2);
            let others = d.unwritten.load(Ordering::Relaxed).saturating_add(small).saturating_add(coming);
            max.saturating_sub(others).saturating_sub(again)
        };
        let over = |d: &Data, max: u64| {
            d.clean.load(Ordering::Relaxed) > max || d.segments.load(Ordering::Relaxed) > SEGMENTS_MAX
        };
        if !over(d, bound(d)) {
            return;
        }
        self.count_uncommitted();
        let max = bound(d);
        if !over(d, max) {
            return;
        }
        let target = max - max / 16;
        let mut all = d.all_files();
        all.sort_by_key(|f| f.used.load(Ordering::Relaxed));
        for f in all {
            let mut objs = f.lock();
            let now = self.world.now();
            let mut any = true;
            while any && (over(d, target)) {
                any = false;
                for o in objs.iter_mut() {
                    if o.segs.evict_oldest().is_some() {
                        any = true;
                        d.account(o, now);
                    }
                }
            }
            if !over(d, target) {
                return;
            }
        }
    }
}
