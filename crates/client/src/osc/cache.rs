//! What a mount keeps of all objects of all OSTs: how much that may be, what is dirty, what goes first.

use super::object::{Object, ObjectState};
use crate::base::Context;
use crate::session::Target;
use model::mutex::Mutex;
use model::{Map, ObjectId, TargetId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use world::sync;

/// Segments kept altogether; they are accounted for because tiny ones cost more than their bytes.
const SEGMENTS_MAX: usize = 200_000;
/// Dirty bytes older than this are written.
const AGE_MAX: Duration = Duration::from_secs(1);
/// How often ages are looked at.
const TICK: Duration = Duration::from_millis(250);
/// An unmount looks so often, and gives up after so many looks without progress; sooner if a server is away.
const FLUSH_TICK: Duration = Duration::from_millis(5);
const GIVE_UP_TICKS: u32 = 12_000;
const GIVE_UP_TICKS_AWAY: u32 = 1_000;

pub(crate) struct ObjectCache {
    pub(super) cx: Arc<Context>,
    objects: Mutex<Map<ObjectId, Weak<Object>>>,
    /// Objects with bytes to write.
    dirty: Mutex<BTreeMap<ObjectId, Arc<Object>>>,
    /// A task looks after those.
    ticking: AtomicBool,
    /// The sessions with the OSTs.
    sessions: Mutex<Vec<Arc<Target>>>,
    /// Bytes that are dirty or being written.
    pub unwritten: AtomicU64,
    /// Bytes that were read, or written and answered.
    pub clean: AtomicU64,
    /// Bytes of requests that are kept until their effect is durable, at the last look.
    uncommitted: AtomicU64,
    pub segments: AtomicUsize,
    /// Told when bytes were written or lost.
    pub drained: sync::Notify,
    /// `llite.*.max_cached_mb`, in bytes.
    pub max_cached: AtomicU64,
    /// Bytes being read ahead.
    pub reading_ahead: AtomicU64,
    /// Bytes of small files, which are kept elsewhere and share the bound.
    small: Arc<AtomicU64>,
}

impl ObjectCache {
    pub(crate) fn new(cx: Arc<Context>, max_cached: u64, small: Arc<AtomicU64>) -> Arc<ObjectCache> {
        Arc::new(ObjectCache {
            cx,
            objects: Mutex::default(),
            dirty: Mutex::default(),
            ticking: AtomicBool::new(false),
            sessions: Mutex::default(),
            unwritten: AtomicU64::new(0),
            clean: AtomicU64::new(0),
            uncommitted: AtomicU64::new(0),
            segments: AtomicUsize::new(0),
            drained: sync::Notify::new(),
            max_cached: AtomicU64::new(max_cached),
            reading_ahead: AtomicU64::new(0),
            small,
        })
    }

    pub(super) fn add_session(&self, t: Arc<Target>) {
        self.sessions.lock().push(t);
    }

    /// From now on the object is found by its id.
    pub(crate) fn add(&self, o: &Arc<Object>) {
        self.objects.lock().insert(o.id, Arc::downgrade(o));
    }

    /// Nothing is kept of this object any more.
    pub(crate) fn remove(&self, o: &Arc<Object>) {
        assert!(o.lock().is_idle(), "nothing is forgotten of an object that has bytes or locks");
        let mut all = self.objects.lock();
        if all.get(&o.id).is_some_and(|w| std::ptr::eq(w.as_ptr(), Arc::as_ptr(o))) {
            all.remove(&o.id);
        }
    }

    /// The object, if anything is kept of it.
    pub(crate) fn get(&self, id: ObjectId) -> Option<Arc<Object>> {
        self.objects.lock().get(&id)?.upgrade()
    }

    /// All objects of which something is kept, in the order of their ids.
    pub(super) fn all(&self) -> Vec<Arc<Object>> {
        let mut all: Vec<Arc<Object>> = self.objects.lock().values().filter_map(Weak::upgrade).collect();
        all.sort_by_key(|o| o.id);
        all
    }

    /// Those of one OST.
    pub(super) fn of_target(&self, id: TargetId) -> Vec<Arc<Object>> {
        let mut all = self.all();
        all.retain(|o| o.osc.target.id == id);
        all
    }

    fn all_dirty(&self) -> Vec<Arc<Object>> {
        self.dirty.lock().values().cloned().collect()
    }

    /// Brings the totals up to date after a change of an object, which is locked.
    pub(super) fn account(&self, o: &Object, s: &mut ObjectState) {
        let is = (s.segs.unwritten_bytes(), s.segs.clean_bytes(), s.segs.count(), s.locks.len());
        let was = std::mem::replace(&mut s.counted, is);
        add(&self.unwritten, was.0, is.0);
        add(&o.osc.unwritten, was.0, is.0);
        add(&self.clean, was.1, is.1);
        self.segments.fetch_add(is.2.wrapping_sub(was.2), Ordering::Relaxed);
        o.osc.lru.held.fetch_add(is.3.wrapping_sub(was.3), Ordering::Relaxed);
        if s.segs.dirty_bytes() == 0 {
            s.oldest = None;
        } else if s.oldest.is_none() {
            s.oldest = Some(self.cx.world.now());
        }
        if is.0 < was.0 {
            o.osc.drained.notify_waiters();
            self.drained.notify_waiters();
        }
    }

    /// Notes that an object has bytes to write, and sees to it that they are not forgotten.
    pub(crate) fn note_dirty(self: &Arc<Self>, o: &Arc<Object>) {
        let fresh = {
            let mut dirty = self.dirty.lock();
            dirty.insert(o.id, o.clone()).is_none()
        };
        if fresh && !self.ticking.swap(true, Ordering::SeqCst) {
            let ends = WriteBackEnds { cache: Arc::downgrade(self), done: false };
            let world = self.cx.world.clone();
            self.cx.world.spawn("client-write-back", async move {
                let mut ends = ends; // whole: it is dropped with this task
                loop {
                    world.sleep(TICK).await;
                    let Some(me) = ends.cache.upgrade() else { return };
                    if !me.write_back_old() {
                        ends.done = true;
                        return;
                    }
                }
            });
        }
    }

    /// False: nothing is dirty, and the task that calls this ends.
    fn write_back_old(&self) -> bool {
        let now = self.cx.world.now();
        for o in self.all_dirty() {
            let is_old = {
                let mut s = o.lock();
                let is_old = s.oldest.is_some_and(|t| now.since(t) >= AGE_MAX);
                if is_old {
                    s.oldest = Some(now);
                }
                is_old
            };
            if is_old {
                o.kick();
            }
            // Looked at with the list locked: who makes it dirty again puts it back afterwards.
            let mut dirty = self.dirty.lock();
            if o.lock().segs.unwritten_bytes() == 0 {
                dirty.remove(&o.id);
            }
        }
        let dirty = self.dirty.lock();
        if dirty.is_empty() {
            // With the list locked, as in `note_dirty`.
            self.ticking.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// Starts writing all that is dirty.
    pub(crate) fn flush_everything(&self) {
        self.all_dirty().iter().for_each(Object::kick);
    }

    /// Writes everything that is kept when this is called, and waits for it.
    pub(crate) async fn flush_now(&self) -> crate::R<()> {
        self.flush_everything();
        for o in self.all() {
            o.flush_range(0, u64::MAX).await?;
        }
        Ok(())
    }

    /// Writes everything of this mount and waits for it, as long as it gets on.
    pub(crate) async fn flush_all(&self) {
        let mut still = 0;
        let mut left = u64::MAX;
        loop {
            self.flush_everything();
            let now = self.unwritten.load(Ordering::Relaxed);
            if now == 0 {
                return;
            }
            still = if now < left { 0 } else { still + 1 };
            left = now;
            let cut_off = self.all().iter().any(|o| {
                let away = o.osc.target.import.state() != rpc::ImportState::Full;
                away && o.lock().segs.unwritten_bytes() > 0
            });
            if still >= if cut_off { GIVE_UP_TICKS_AWAY } else { GIVE_UP_TICKS } {
                tracing::error!("{now} bytes that were not written yet are lost: no server takes them");
                return;
            }
            self.cx.world.sleep(FLUSH_TICK).await;
        }
    }

    /// Looks how many bytes of requests the object servers have answered and may forget in a crash. They take
    /// memory beside what is cached: the same bytes may have been written anew since. Those that are cached
    /// too count twice, for a short time.
    pub(super) fn count_uncommitted(&self) {
        let sessions = self.sessions.lock();
        let bytes: u64 = sessions.iter().map(|t| t.import.uncommitted().1 as u64).sum();
        self.uncommitted.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that may be clean beside everything else that counts.
    fn clean_max(&self) -> u64 {
        let max = self.max_cached.load(Ordering::Relaxed);
        let again = self.uncommitted.load(Ordering::Relaxed).min(max / 2);
        let coming = self.reading_ahead.load(Ordering::Relaxed).min(max / 2);
        let small = self.small.load(Ordering::Relaxed);
        let others = self.unwritten.load(Ordering::Relaxed).saturating_add(small).saturating_add(coming);
        max.saturating_sub(others).saturating_sub(again)
    }

    fn is_over(&self, max: u64) -> bool {
        self.clean.load(Ordering::Relaxed) > max || self.segments.load(Ordering::Relaxed) > SEGMENTS_MAX
    }

    /// Keeps what was read within its bound: the least recently used objects' oldest bytes go.
    pub(crate) fn evict_clean(&self) {
        if !self.is_over(self.clean_max()) {
            return;
        }
        self.count_uncommitted();
        let max = self.clean_max();
        if !self.is_over(max) {
            return;
        }
        let target = max - max / 16;
        let mut all = self.all();
        all.sort_by_key(|o| o.used.load(Ordering::Relaxed));
        for o in all {
            let mut s = o.lock();
            while self.is_over(target) && s.segs.evict_oldest().is_some() {
                self.account(&o, &mut s);
            }
            drop(s);
            if !self.is_over(target) {
                return;
            }
        }
    }

    /// Whether so much more may be dirty; `osc`: for this OST.
    fn has_room(&self, osc: &super::Osc, bytes: u64) -> bool {
        let used = osc.unwritten.load(Ordering::Relaxed);
        let max = osc.max_dirty.load(Ordering::Relaxed);
        let all = self.unwritten.load(Ordering::Relaxed);
        let all_max = self.max_cached.load(Ordering::Relaxed) / 2;
        let crowded = self.segments.load(Ordering::Relaxed) > SEGMENTS_MAX;
        (used == 0 || used + bytes <= max) && (all == 0 || all + bytes <= all_max) && !(crowded && all > 0)
    }

    /// Waits until `bytes` more may be dirty for an OST. Interruptible; whoever waits holds nothing.
    pub(crate) async fn room(&self, osc: &super::Osc, bytes: u64) {
        loop {
            let (mut a, mut b) = (Box::pin(osc.drained.notified()), Box::pin(self.drained.notified()));
            a.as_mut().enable();
            b.as_mut().enable();
            if self.has_room(osc, bytes) {
                return;
            }
            self.flush_everything();
            world::select(a, world::select(b, self.cx.world.sleep(super::grant::ASK_AGAIN))).await;
        }
    }
}

/// The task that looks after what is dirty ends.
struct WriteBackEnds {
    cache: Weak<ObjectCache>,
    /// Because nothing is dirty any more.
    done: bool,
}

impl Drop for WriteBackEnds {
    /// A task that is dropped died with its runtime, as every task of this mount: nobody writes what is
    /// dirty. Its objects hold the cache that lists them, and would be kept for ever.
    fn drop(&mut self) {
        if self.done {
            return;
        }
        if let Some(cache) = self.cache.upgrade() {
            let given_up = std::mem::take(&mut *cache.dirty.lock());
            drop(given_up);
        }
    }
}

fn add(total: &AtomicU64, was: u64, is: u64) {
    let change = is.wrapping_sub(was);
    let now = total.fetch_add(change, Ordering::Relaxed).wrapping_add(change);
    assert!(now <= i64::MAX as u64, "no more bytes go than were counted");
}
