//! Locks between this mount and the metadata servers: asking, waiting, giving back, and what a restarted
//! server is told about. What is held is known to [`ldlm::LockClient`].
//!
//! A waiting lock is answered `granted: false`; a notify follows. A notify can be lost with its connection,
//! so a waiter asks again (same id, harmless) when the session is back, and now and then.
//!
//! What is given back is forgotten before the server is told: a reclaim in between must not take it again.

use crate::R;
use crate::base::under_way::UnderWay;
use crate::base::{Context, Detached};
use crate::lmv::Lmv;
use crate::mdc::{self, Mdc};
use ldlm::Waiter;
use model::mutex::Mutex;
use model::{Errno, Fid};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::msg::cancel::CancelWhat;
use wire::msg::enqueue::{Enqueue, LockKind, LockMode, LockSpec};
use world::{Either, select};

/// A waiter asks again after so long without news.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// A range of a file that no other mount touches meanwhile. Given back when dropped.
pub(crate) struct ExtentLock {
    locks: Arc<FileLocks>,
    fid: Fid,
    id: u64,
}

impl Drop for ExtentLock {
    fn drop(&mut self) {
        self.locks.meta.locks.cancelled(self.id);
        let (locks, fid, id) = (self.locks.clone(), self.fid, self.id);
        self.locks
            .cx
            .world
            .spawn("client-lock-cancel", async move { locks.cancel(fid, CancelWhat::Id(id)).await });
    }
}

/// What owners of POSIX ranges had where they ask for a range now, by the id of what they ask for. An unlock
/// takes its owner's away: what it gave back must not come again.
#[derive(Default)]
pub(crate) struct Rollbacks(Mutex<BTreeMap<u64, Vec<LockSpec>>>);

impl Rollbacks {
    fn note(&self, id: u64, before: Vec<LockSpec>) {
        if !before.is_empty() {
            self.0.lock().insert(id, before);
        }
    }

    fn get(&self, id: u64) -> Vec<LockSpec> {
        self.0.lock().get(&id).cloned().unwrap_or_default()
    }

    /// False if it was not there (any more).
    fn remove(&self, id: u64) -> bool {
        self.0.lock().remove(&id).is_some()
    }

    /// An owner gives ranges back.
    pub(crate) fn unlocked(&self, fid: Fid, owner: u64) {
        let mut all = self.0.lock();
        all.retain(|_, v| v.first().is_some_and(|l| (l.fid, l.owner) != (fid, owner)));
    }
}

/// A lock asked for whose caller may go away: then it is taken back.
struct Asked {
    locks: Arc<FileLocks>,
    spec: LockSpec,
    /// A message is under way: whoever drops it cleans up behind it.
    sending: AtomicBool,
    settled: bool,
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.settled && !self.sending.load(Ordering::Relaxed) {
            let (locks, spec) = (self.locks.clone(), self.spec.clone());
            let piece = self.locks.unsettled.begin(spec.fid);
            self.locks.cx.world.spawn("client-lock-give-up", async move {
                locks.give_up(spec).await;
                drop(piece);
            });
        }
    }
}

/// The file locks of a mount, as its operations ask for them.
pub(crate) struct FileLocks {
    cx: Arc<Context>,
    lmv: Arc<Lmv>,
    meta: Arc<mdc::Shared>,
    pub rollbacks: Rollbacks,
    /// Messages of who may go away, and what is given up of those who did.
    pub unsettled: Arc<UnderWay>,
}

impl FileLocks {
    pub(crate) fn new(cx: &Arc<Context>, lmv: &Arc<Lmv>, meta: &Arc<mdc::Shared>) -> Arc<FileLocks> {
        let (cx, lmv, meta) = (cx.clone(), lmv.clone(), meta.clone());
        let (rollbacks, unsettled) = (Rollbacks::default(), Arc::default());
        Arc::new(FileLocks { cx, lmv, meta, rollbacks, unsettled })
    }

    /// Asks for a lock; with `wait` until it is had or the future is dropped.
    pub(crate) async fn lock(self: &Arc<Self>, spec: LockSpec, wait: bool) -> R<()> {
        if wait {
            self.rollbacks.note(spec.id, self.overlapped(&spec));
        }
        let mut waiter = self.meta.locks.begin(spec.clone());
        let mut asked = Asked {
            locks: self.clone(),
            spec: spec.clone(),
            sending: AtomicBool::new(false),
            settled: false,
        };
        let r = self.lock_settled(&asked, wait, &mut waiter).await;
        asked.settled = true;
        self.rollbacks.remove(spec.id);
        if r.is_err() {
            self.meta.locks.cancelled(spec.id);
        }
        r
    }

    async fn lock_settled(self: &Arc<Self>, asked: &Asked, wait: bool, waiter: &mut Waiter) -> R<()> {
        let mdc = self.lmv.mdc_of(asked.spec.fid).await?;
        loop {
            let up = mdc.target.up.notified();
            asked.sending.store(true, Ordering::Relaxed);
            let r = self.enqueue(&mdc, &asked.spec, wait).await;
            asked.sending.store(false, Ordering::Relaxed);
            if r? {
                return waiter.wait().await;
            }
            if !wait {
                return Err(Errno::EAGAIN);
            }
            match select(waiter.wait(), select(up, self.cx.world.sleep(ASK_AGAIN))).await {
                Either::Left(r) => return r,
                Either::Right(_) => {}
            }
        }
    }

    /// One message. If the caller goes away while it is under way, the lock is cancelled after it: a cancel
    /// that overtook it would leave the lock behind.
    async fn enqueue(self: &Arc<Self>, mdc: &Arc<Mdc>, spec: &LockSpec, wait: bool) -> R<bool> {
        let (locks, mdc, ctx) = (self.clone(), mdc.clone(), self.cx.own());
        let msg = Enqueue { lock: spec.clone(), wait };
        let (late, spec) = (self.clone(), spec.clone());
        let work = async move {
            let id = msg.lock.id;
            let r = mdc.target.call(ctx, msg).await.map(|r| r.granted);
            // A stray grant is cancelled by who gave it up.
            let _ = locks.meta.locks.answered(id, r);
            r
        };
        let piece = self.unsettled.begin(spec.fid);
        let cleanup = move |_: R<bool>| -> world::BoxFuture<()> {
            Box::pin(async move {
                late.give_up(spec).await;
                drop(piece);
            })
        };
        Detached::new(&self.cx.world, "client-enqueue", work, cleanup).await
    }

    /// Takes back a lock that was asked for and is not wanted any more. A POSIX range that was granted in the
    /// last moment has replaced what its owner had there: that is asked for again.
    async fn give_up(self: &Arc<Self>, spec: LockSpec) {
        let _ = self.meta.locks.abandon(spec.id);
        self.meta.locks.cancelled(spec.id);
        self.cancel(spec.fid, CancelWhat::Id(spec.id)).await;
        let before = self.rollbacks.get(spec.id);
        if before.is_empty() {
            return;
        }
        for lock in &before {
            if let Err(e) = self.take_again(lock.clone()).await {
                tracing::warn!("lock {:#x} on {} of owner {:#x} is lost: {e}", lock.id, lock.fid, lock.owner);
            }
        }
        if !self.rollbacks.remove(spec.id) {
            // Its owner unlocked meanwhile, perhaps before these came back.
            for l in before {
                self.meta.locks.unlocked(l.fid, l.kind, l.owner, l.start, l.end);
                let what = CancelWhat::Range { kind: l.kind, owner: l.owner, start: l.start, end: l.end };
                self.cancel(l.fid, what).await;
            }
        }
    }

    async fn take_again(self: &Arc<Self>, lock: LockSpec) -> R<()> {
        let mdc = self.lmv.mdc_of(lock.fid).await?;
        let id = lock.id;
        let mut waiter = self.meta.locks.begin(lock.clone());
        let r = mdc.target.call(self.cx.own(), Enqueue { lock, wait: false }).await;
        let _ = self.meta.locks.answered(id, r.map(|r| r.granted));
        waiter.wait().await
    }

    /// What the owner of a POSIX range holds within it.
    fn overlapped(&self, l: &LockSpec) -> Vec<LockSpec> {
        if l.kind != LockKind::Posix || !self.meta.locks.holds_posix(l.fid, l.owner, l.start, l.end) {
            return Vec::new();
        }
        let hit = |h: &LockSpec| {
            h.kind == l.kind && h.fid == l.fid && h.owner == l.owner && h.start <= l.end && h.end >= l.start
        };
        self.meta.locks.reclaim().into_iter().filter(hit).collect()
    }

    /// Tells the metadata server.
    async fn cancel(self: &Arc<Self>, fid: Fid, what: CancelWhat) {
        match self.lmv.mdc_of(fid).await {
            Ok(mdc) => mdc.cancel(fid, what).await,
            Err(e) => tracing::warn!("a lock on {fid} cannot be cancelled: {e}"),
        }
    }

    /// Keeps other mounts off `start..=end` of a file for one operation.
    pub(crate) async fn extent_lock(
        self: &Arc<Self>,
        fid: Fid,
        mode: LockMode,
        start: u64,
        end: u64,
    ) -> R<ExtentLock> {
        let id = self.meta.locks.new_id();
        let spec = LockSpec { id, fid, kind: LockKind::Extent, mode, owner: id, pid: 0, start, end };
        if !model::planted::on(model::planted::Bug::NoExtentLock) {
            self.lock(spec, true).await?;
        }
        Ok(ExtentLock { locks: self.clone(), fid, id })
    }
}
