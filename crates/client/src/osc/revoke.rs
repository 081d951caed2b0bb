//! Locks on their way back: asked for by others, given up, lost to an eviction; and what the server is told.

use super::Osc;
use super::object::{Object, ObjectState};
use model::debug::DLMTRACE;
use model::planted::{self, Bug};
use model::{Errno, ObjectId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::msg::extent::ExtentSpec;
use wire::msg::notify::{Notice, Notify};
use world::select;

/// A lock that was just granted may be used once by whoever asked for it, if it comes within this time.
const FIRST_USE: Duration = Duration::from_millis(50);

/// What is to be done next before a lock is given back.
enum Step {
    /// It is not held any more.
    Gone,
    /// Nothing: it is released.
    Released,
    /// Pages were filled since.
    Sweep,
    /// These bytes are written first.
    Flush(u64, u64),
    /// An operation relies on it, or a write under it is in flight.
    Wait,
}

impl Osc {
    /// The objects of this OST.
    pub(super) fn objects(&self) -> Vec<Arc<Object>> {
        self.cache.of_target(self.target.id)
    }

    /// A word of the OST about locks.
    pub(super) fn extent_notice(&self, n: &Notify) {
        tracing::debug!(target: DLMTRACE, "{} says {n:?}", self.target.id);
        match *n {
            Notify::BlockExtent { object, id } => match self.cache.get(object) {
                Some(o) => o.block_extent(id),
                None => self.released(object, id),
            },
            Notify::ExtentGranted { object, id } => {
                if let Some(o) = self.cache.get(object)
                    && let Some(p) = o.lock().enqueued.iter().find(|p| p.id == id)
                {
                    p.again.notify_one();
                }
            }
            Notify::GlimpseExtent { object, cookie, .. } => {
                let kept = self.cache.get(object).and_then(|o| o.kept());
                self.target.import.notice(&Notice::Kept { cookie, kept });
            }
            _ => {}
        }
    }

    fn released(&self, object: ObjectId, id: u64) {
        self.target.import.notice(&Notice::Released { locks: vec![(object, id)] });
    }

    /// What the server knew of locks and grant it knows no more: answers that are under way count no more.
    fn forgotten_by_server(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.forget_grant();
    }

    /// The OST evicted this client: its locks are others' by now. What was not written is lost, and never
    /// will be.
    pub(super) fn lost_all_locks(&self) {
        self.forgotten_by_server();
        for o in self.objects() {
            let mut pages = Vec::new();
            {
                let mut s = o.lock();
                for l in &mut s.locks {
                    pages.extend(l.take_pages());
                }
                for range in s.forget_all() {
                    o.write_lost(range, Errno::EIO);
                }
                o.account(&mut s);
            }
            o.pages_void(pages);
            o.changed.notify_waiters();
        }
    }

    /// What the restarted OST is told: the locks that are held.
    pub(super) fn held_locks(&self) -> Vec<ExtentSpec> {
        self.forgotten_by_server();
        let mut out = Vec::new();
        for o in self.objects() {
            let spec = |l: &super::Lock| ExtentSpec {
                object: o.id,
                id: l.id,
                mode: l.mode,
                start: l.start,
                end: l.end,
            };
            out.extend(o.lock().locks.iter().map(spec));
        }
        out
    }

    /// Locks that the OST did not give back after its restart.
    pub(super) fn locks_lost(&self, ids: &[u64]) {
        if ids.is_empty() {
            return;
        }
        for o in self.objects() {
            let lost: Vec<u64> = o.lock().locks.iter().map(|l| l.id).filter(|id| ids.contains(id)).collect();
            lost.iter().for_each(|id| o.lock_lost(*id));
        }
    }
}

impl Object {
    /// Somebody else wants a lock.
    pub(super) fn block_extent(self: &Arc<Self>, id: u64) {
        {
            let mut s = self.lock();
            if let Some(p) = s.enqueued.iter().find(|p| p.id == id) {
                p.blocked.store(true, Ordering::SeqCst);
                return;
            }
            match s.lock_mut(id) {
                // Its users unlock when they are done. The server says it again, should they be gone already.
                Some(l) if self.holder().is_some_and(|h| h.is_grouped(l.mode)) => return,
                Some(l) if l.wanted => return,
                Some(l) => l.wanted = true,
                None => {
                    drop(s);
                    return self.osc.released(self.id, id);
                }
            }
        }
        self.give_back_later(id);
    }

    /// A lock that is marked as wanted goes back in the background.
    pub(crate) fn give_back_later(self: &Arc<Self>, id: u64) {
        let me = self.clone();
        self.osc.cx.world.spawn("client-revoke", async move { me.give_lock_back(id).await });
    }

    /// Gives up all locks that nobody uses.
    pub(crate) async fn give_up_locks(self: &Arc<Self>) {
        let idle = {
            let mut s = self.lock();
            let idle = s.idle_locks();
            for id in &idle {
                if let Some(l) = s.lock_mut(*id) {
                    l.wanted = true;
                    l.uses = l.uses.max(1);
                }
            }
            idle
        };
        for id in idle {
            self.give_lock_back(id).await;
        }
    }

    /// Has the kernel give up its pages, lets running operations end, writes what is kept under the lock,
    /// forgets what was read, releases it.
    async fn give_lock_back(self: &Arc<Self>, id: u64) {
        self.first_use(id).await;
        if planted::on(Bug::CancelBeforeFlush) {
            self.osc.released(self.id, id);
        }
        loop {
            self.sweep(id).await;
            let mut changed = Box::pin(self.changed.notified());
            changed.as_mut().enable();
            let step = self.next_step(&mut self.lock(), id);
            match step {
                Step::Gone => return,
                Step::Released => {
                    self.changed.notify_waiters();
                    return self.osc.released(self.id, id);
                }
                Step::Sweep => {}
                Step::Flush(a, b) => {
                    if self.flush_range(a, b).await.is_err() {
                        return; // the mount ends
                    }
                }
                Step::Wait => changed.await,
            }
        }
    }

    /// If nothing is left to do the lock is not held any more afterwards.
    fn next_step(&self, s: &mut ObjectState, id: u64) -> Step {
        let Some(l) = s.lock_mut(id) else { return Step::Gone };
        l.going = true;
        if !l.pages.is_empty() {
            return Step::Sweep; // filled since, because a write waited for it
        }
        if l.pins > 0 {
            return Step::Wait;
        }
        let written = if l.writes() { s.alone(id, true) } else { Vec::new() };
        if let Some((a, b)) = written.into_iter().find(|(a, b)| !s.segs.is_written(*a, *b, u64::MAX)) {
            return Step::Flush(a, b);
        }
        if s.busy.iter().any(|b| b.lock == id) {
            return Step::Wait;
        }
        for (a, b) in s.alone(id, false) {
            s.taint(a, b);
            if !planted::on(Bug::CacheKeptWithoutLock) {
                s.segs.cut(a, b);
            }
        }
        let held = s.locks.len();
        s.locks.retain(|l| l.id != id);
        assert!(s.locks.len() + 1 == held, "a lock is held once, and given back once");
        self.account(s);
        Step::Released
    }

    async fn first_use(&self, id: u64) {
        let mut patience = self.osc.cx.world.sleep(FIRST_USE);
        loop {
            let mut changed = Box::pin(self.changed.notified());
            changed.as_mut().enable();
            if self.lock().lock_mut(id).is_none_or(|l| l.uses > 0) {
                return;
            }
            // Uses are not told: look again now and then.
            let again = select(changed, self.osc.cx.world.sleep(FIRST_USE / 10));
            if let world::Either::Right(()) = select(again, &mut patience).await {
                return;
            }
        }
    }

    /// The pages of a lock that goes are given up. No fill relies on it afterwards.
    async fn sweep(&self, id: u64) {
        loop {
            let ranges = {
                let mut s = self.lock();
                let Some(l) = s.lock_mut(id) else { return };
                l.going = true;
                if planted::on(Bug::PagesKeptWithoutLock) {
                    l.pages.take();
                }
                if l.pages.is_empty() {
                    if std::mem::replace(&mut l.sweeping, false) {
                        drop(s);
                        self.changed.notify_waiters();
                    }
                    return;
                }
                l.sweeping = true;
                l.pages.take()
            };
            // A fill that waits for another lock may now be what the kernel waits for.
            self.changed.notify_waiters();
            if let Some(h) = self.holder() {
                h.pages_given_up(self, ranges).await;
            }
        }
    }

    /// Locks were lost: what was filled under them is given up, and what was stored into it is lost.
    fn pages_void(&self, ranges: Vec<(u64, u64)>) {
        if let (false, Some(h)) = (ranges.is_empty(), self.holder()) {
            h.pages_void(self, ranges);
        }
    }

    /// The server does not know a lock any more: what was kept under it is void.
    pub(super) fn lock_lost(&self, id: u64) {
        let pages = {
            let mut s = self.lock();
            let Some((writes, pages)) = s.lock_mut(id).map(|l| (l.writes(), l.take_pages())) else { return };
            // What was written has no lock any more that would let it out, even if another lets it be read.
            for (a, b) in s.alone(id, writes) {
                let mut at = a;
                while let Some((from, to)) = s.segs.next_unwritten(at).filter(|u| u.0 < b) {
                    self.write_lost((from, to.min(b)), Errno::EIO);
                    at = to;
                }
                s.taint(a, b);
                s.segs.cut(a, b);
            }
            s.locks.retain(|l| l.id != id);
            s.size_unsure();
            self.account(&mut s);
            pages
        };
        self.pages_void(pages);
        self.changed.notify_waiters();
        tracing::error!("{}: lock {id:#x} on {} is lost", self.file, self.id);
    }
}
