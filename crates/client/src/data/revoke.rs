//! Locks on their way back: asked for by others, given up, lost to an eviction; and what the servers are told.

use super::file::File;
use crate::{Fs, R};
use model::planted::{self, Bug};
use model::{Errno, ObjectId, TargetId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::msg::extent::ExtentSpec;
use wire::msg::notify::{Notice, Notify};
use world::select;

/// A lock that was just granted may be used once by whoever asked for it, if it comes within this time.
const FIRST_USE: Duration = Duration::from_millis(50);

impl Fs {
    /// A word of an OST about locks.
    pub(crate) fn extent_notice(self: &Arc<Self>, target: TargetId, n: &Notify) {
        match *n {
            Notify::BlockExtent { object, id } => match self.data.of_object(object) {
                Some((file, stripe)) => self.block_extent(&file, stripe, id),
                None => self.released(target, object, id),
            },
            Notify::ExtentGranted { object, id } => {
                if let Some((file, stripe)) = self.data.of_object(object)
                    && let Some(p) = file.lock()[stripe].pending.iter().find(|p| p.id == id)
                {
                    p.again.notify_one();
                }
            }
            Notify::GlimpseExtent { object, cookie, .. } => {
                let kept = self.kept_of(object);
                self.tell(target, &Notice::Kept { cookie, kept });
            }
            _ => {}
        }
    }

    fn tell(&self, target: TargetId, n: &Notice) {
        if let Some(t) = self.targets.get(target) {
            t.import.notice(n);
        }
    }

    fn released(&self, target: TargetId, object: ObjectId, id: u64) {
        self.tell(target, &Notice::Released { locks: vec![(object, id)] });
    }

    /// Somebody else wants a lock.
    pub(super) fn block_extent(self: &Arc<Self>, file: &Arc<File>, stripe: usize, id: u64) {
        {
            let mut objs = file.lock();
            let o = &mut objs[stripe];
            if let Some(p) = o.pending.iter().find(|p| p.id == id) {
                p.blocked.store(true, Ordering::SeqCst);
                return;
            }
            let (target, object) = (o.target.id, o.id);
            match o.lock_mut(id) {
                // Its users unlock when they are done. The server says it again, should they be gone already.
                Some(l) if file.is_grouped(l.mode) => return,
                Some(l) if l.wanted => return,
                Some(l) => l.wanted = true,
                None => {
                    drop(objs);
                    return self.released(target, object, id);
                }
            }
        }
        let (fs, file) = (self.clone(), file.clone());
        self.world.spawn("client-revoke", async move { fs.give_lock_back(file, stripe, id).await });
    }

    /// Gives up all locks of a file that nobody uses.
    pub(super) async fn give_up_locks(self: &Arc<Self>, file: &Arc<File>) {
        for stripe in 0..file.layout.stripe_count() {
            let idle = {
                let mut objs = file.lock();
                let idle = Fs::idle_locks(&objs[stripe].locks);
                for id in &idle {
                    if let Some(l) = objs[stripe].lock_mut(*id) {
                        l.wanted = true;
                        l.uses = l.uses.max(1);
                    }
                }
                idle
            };
            for id in idle {
                self.clone().give_lock_back(file.clone(), stripe, id).await;
            }
        }
    }

    /// Has the kernel give up its pages, lets running operations end, writes what is kept under the lock, forgets what
    /// was read, releases it.
    pub(super) async fn give_lock_back(self: Arc<Self>, file: Arc<File>, stripe: usize, id: u64) {
        self.first_use(&file, stripe, id).await;
        if planted::on(Bug::CancelBeforeFlush) {
            let (target, object) = {
                let objs = file.lock();
                (objs[stripe].target.id, objs[stripe].id)
            };
            self.released(target, object, id);
        }
        loop {
            self.sweep(&file, stripe, id).await;
            let mut changed = Box::pin(file.changed.notified());
            changed.as_mut().enable();
            let mut flush = None;
            {
                let mut objs = file.lock();
                let o = &mut objs[stripe];
                let Some(l) = o.lock_mut(id) else { return };
                l.going = true;
                if !l.pages.is_empty() {
                    continue; // filled since, because a write waited for it
                }
                let pinned = l.pins > 0;
                let ranges = if l.writes() { o.alone(id, true) } else { Vec::new() };
                if !pinned {
                    flush = ranges.into_iter().find(|(a, b)| !o.segs.is_written(*a, *b, u64::MAX));
                    if flush.is_none() && !o.busy.iter().any(|b| b.lock == id) {
                        for (a, b) in o.alone(id, false) {
                            o.taint(a, b);
                            if !planted::on(Bug::CacheKeptWithoutLock) {
                                o.segs.cut(a, b);
                            }
                        }
                        o.locks.retain(|l| l.id != id);
                        let (target, object) = (o.target.id, o.id);
                        self.data.account(o, self.world.now());
                        drop(objs);
                        file.changed.notify_waiters();
                        return self.released(target, object, id);
                    }
                }
            }
            match flush {
                Some((a, b)) => {
                    if self.flush_range(&file, stripe, a, b).await.is_err() {
                        return; // the mount ends
                    }
                }
                None => changed.await,
            }
        }
    }

    async fn first_use(&self, file: &Arc<File>, stripe: usize, id: u64) {
        let mut patience = self.world.sleep(FIRST_USE);
        loop {
            let mut changed = Box::pin(file.changed.notified());
            changed.as_mut().enable();
            if file.lock()[stripe].lock_mut(id).is_none_or(|l| l.uses > 0) {
                return;
            }
            // Uses are not told: look again now and then.
            let again = select(changed, self.world.sleep(FIRST_USE / 10));
            if let world::Either::Right(()) = select(again, &mut patience).await {
                return;
            }
        }
    }

    /// The server does not know a lock any more: what was kept under it is void.
    pub(super) fn lock_lost(&self, file: &Arc<File>, stripe: usize, id: u64) {
        let (object, pages) = {
            let mut objs = file.lock();
            let o = &mut objs[stripe];
            let Some((writes, pages)) = o.lock_mut(id).map(|l| (l.writes(), l.take_pages())) else { return };
            // What was written has no lock any more that would let it out, even if another lets it be read.
            for (a, b) in o.alone(id, writes) {
                let mut at = a;
                while let Some((s, e)) = o.segs.next_unwritten(at).filter(|u| u.0 < b) {
                    self.write_lost(file, o.id, (s, e.min(b)), Errno::EIO);
                    at = e;
                }
                o.taint(a, b);
                o.segs.cut(a, b);
            }
            o.locks.retain(|l| l.id != id);
            o.sure = false;
            self.data.account(o, self.world.now());
            (o.id, pages)
        };
        self.pages_void(file, vec![(stripe, pages)]);
        file.changed.notify_waiters();
        tracing::error!("{}: lock {id:#x} on {object} is lost", file.fid);
    }

    /// An OST evicted this client: its locks are others' by now. What was not written is lost, and never will be.
    pub(crate) fn data_evicted(&self, ost: u16) {
        let Some(target) = self.targets.get(TargetId::ost(ost)) else { return };
        target.data.generation.fetch_add(1, Ordering::SeqCst);
        target.data.forget_promise();
        for file in self.data.all_files() {
            let mut pages = Vec::new();
            {
                let mut objs = file.lock();
                for (i, o) in objs.iter_mut().enumerate().filter(|(_, o)| o.target.id == target.id) {
                    pages.extend(o.locks.iter_mut().map(|l| (i, l.take_pages())));
                    for range in o.forget_all() {
                        self.write_lost(&file, o.id, range, Errno::EIO);
                    }
                    self.data.account(o, self.world.now());
                }
            }
            self.pages_void(&file, pages);
            file.changed.notify_waiters();
        }
    }

    /// What a restarted OST is told: the locks that are held. Answers that are under way count no more.
    pub(crate) fn reclaim_extents(&self, ost: u16) -> Vec<ExtentSpec> {
        let Some(target) = self.targets.get(TargetId::ost(ost)) else { return Vec::new() };
        target.data.generation.fetch_add(1, Ordering::SeqCst);
        target.data.forget_promise();
        let mut out = Vec::new();
        for file in self.data.all_files() {
            let objs = file.lock();
            for o in objs.iter().filter(|o| o.target.id == target.id) {
                out.extend(o.locks.iter().map(|l| ExtentSpec {
                    object: o.id,
                    id: l.id,
                    mode: l.mode,
                    start: l.start,
                    end: l.end,
                }));
            }
        }
        out
    }

    /// Locks that an OST did not give back after its restart.
    pub(crate) fn extents_lost(&self, ost: u16, ids: &[u64]) {
        if ids.is_empty() {
            return;
        }
        for file in self.data.all_files() {
            let of = |ids: &[u64]| -> Vec<(usize, u64)> {
                let objs = file.lock();
                let here = objs.iter().enumerate().filter(|(_, o)| o.target.id == TargetId::ost(ost));
                let held = here.flat_map(|(i, o)| o.locks.iter().map(move |l| (i, l.id)));
                held.filter(|(_, id)| ids.contains(id)).collect()
            };
            for (stripe, id) in of(ids) {
                self.lock_lost(&file, stripe, id);
            }
        }
    }

    /// Writes what this mount keeps of a file. What fails is told by [`crate::errseq`].
    pub(crate) async fn flush_data(self: &Arc<Self>, fid: model::Fid) -> R<()> {
        if let Some(file) = self.data.known(fid) {
            self.flush_file(&file).await?;
        }
        Ok(())
    }

    /// The same; tells which OSTs have made it durable ([`Fs::flush_file_durably`]).
    pub(crate) async fn flush_data_durably(self: &Arc<Self>, fid: model::Fid) -> R<model::Set<u16>> {
        let Some(file) = self.data.known(fid) else { return Ok(model::Set::default()) };
        self.flush_file_durably(&file).await
    }
}
