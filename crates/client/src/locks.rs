//! Locks that this client has or waits for: asking, waiting, giving back, and what a restarted metadata server is
//! told about.
//!
//! A waiting lock is answered `granted: false`; a notify follows. A notify can be lost with its connection, so a
//! waiter asks again (same id, harmless) when the session is back, and now and then.

use crate::detach::Detached;
use crate::targets::Target;
use crate::{Fs, R};
use model::limits::LOCKS_PER_CLIENT_MAX;
use model::{Errno, Fid, TargetId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::msg::cancel::{Cancel, CancelWhat};
use wire::msg::enqueue::{Enqueue, LockKind, LockMode, LockSpec};
use wire::msg::reclaim::{Reclaim, ReclaimReply};
use world::sync::oneshot;
use world::{Either, select};

/// A waiter asks again after so long without news.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Opens or locks in one reclaim message.
const RECLAIM_BATCH: usize = 5000;

struct Waiting {
    spec: LockSpec,
    answer: oneshot::Sender<R<()>>,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<u64, Waiting>,
    held: BTreeMap<Fid, Vec<LockSpec>>,
    /// Entries of `held`.
    count: usize,
}

impl State {
    /// Makes a granted lock part of what is held: a POSIX range replaces what its owner had there, a flock what its
    /// owner had, an extent stands beside others.
    fn grant(&mut self, l: LockSpec, ids: &AtomicU64) {
        match l.kind {
            LockKind::Posix | LockKind::Flock => self.cut(l.fid, l.kind, l.owner, l.start, l.end, ids),
            LockKind::Extent => {}
        }
        self.held.entry(l.fid).or_default().push(l);
        self.count += 1;
    }

    /// Takes `start..=end` out of the owner's locks of this kind; a range in two pieces gets a second id.
    fn cut(&mut self, fid: Fid, kind: LockKind, owner: u64, start: u64, end: u64, ids: &AtomicU64) {
        let Some(list) = self.held.get_mut(&fid) else { return };
        let before = list.len();
        let mut kept = Vec::with_capacity(before + 1);
        for l in list.drain(..) {
            if l.kind != kind || l.owner != owner || l.end < start || l.start > end {
                kept.push(l);
                continue;
            }
            let left = (l.start < start).then(|| LockSpec { end: start - 1, ..l.clone() });
            let right = (l.end > end).then(|| LockSpec { start: end + 1, ..l.clone() });
            match (left, right) {
                (Some(a), Some(b)) => {
                    kept.push(a);
                    kept.push(LockSpec { id: ids.fetch_add(1, Ordering::Relaxed), ..b });
                }
                (a, b) => kept.extend(a.or(b)),
            }
        }
        self.count = self.count + kept.len() - before;
        if kept.is_empty() {
            self.held.remove(&fid);
        } else {
            *list = kept;
        }
    }

    fn remove(&mut self, fid: Fid, id: u64) -> bool {
        let Some(list) = self.held.get_mut(&fid) else { return false };
        let before = list.len();
        list.retain(|l| l.id != id);
        let gone = list.len() < before;
        self.count -= usize::from(gone);
        if list.is_empty() {
            self.held.remove(&fid);
        }
        gone
    }
}

/// All locks of a mount.
pub(crate) struct Locks {
    ids: AtomicU64,
    state: Mutex<State>,
}

impl Locks {
    /// Lock ids count up from `first`.
    pub(crate) fn new(first: u64) -> Locks {
        Locks { ids: AtomicU64::new(first), state: Mutex::default() }
    }

    pub(crate) fn new_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    fn begin(&self, spec: LockSpec) -> R<oneshot::Receiver<R<()>>> {
        let mut s = self.state.lock().expect("no panic while locked");
        if s.count + s.waiting.len() >= LOCKS_PER_CLIENT_MAX {
            return Err(Errno::ENOLCK);
        }
        let (answer, rx) = oneshot::channel();
        s.waiting.insert(spec.id, Waiting { spec, answer });
        Ok(rx)
    }

    /// The server decided about a lock. News of a lock that nobody waits for any more are ignored: its cancel is
    /// on the way.
    pub(crate) fn answered(&self, id: u64, r: R<()>) {
        let mut s = self.state.lock().expect("no panic while locked");
        let Some(w) = s.waiting.remove(&id) else { return };
        if r.is_ok() {
            s.grant(w.spec, &self.ids);
        }
        let _ = w.answer.send(r);
    }

    /// Forgets a lock, waiting or held.
    fn forget(&self, fid: Fid, id: u64) {
        let mut s = self.state.lock().expect("no panic while locked");
        if s.waiting.remove(&id).is_none() {
            s.remove(fid, id);
        }
    }

    /// Forgets a range of an owner's locks.
    pub(crate) fn forget_range(&self, fid: Fid, kind: LockKind, owner: u64, start: u64, end: u64) {
        let mut s = self.state.lock().expect("no panic while locked");
        s.cut(fid, kind, owner, start, end, &self.ids);
    }

    pub(crate) fn has(&self, fid: Fid, kind: LockKind, owner: u64) -> bool {
        let s = self.state.lock().expect("no panic while locked");
        let is = |l: &LockSpec| l.fid == fid && l.kind == kind && l.owner == owner;
        s.held.get(&fid).is_some_and(|l| l.iter().any(is)) || s.waiting.values().any(|w| is(&w.spec))
    }

    /// What the owner of `l` holds within its range.
    fn overlapped(&self, l: &LockSpec) -> Vec<LockSpec> {
        let s = self.state.lock().expect("no panic while locked");
        let hit = |h: &&LockSpec| h.kind == l.kind && h.owner == l.owner && h.start <= l.end && h.end >= l.start;
        s.held.get(&l.fid).map_or(Vec::new(), |v| v.iter().filter(hit).cloned().collect())
    }

    /// Held and waiting ones, oldest first.
    fn all(&self) -> Vec<LockSpec> {
        let s = self.state.lock().expect("no panic while locked");
        let mut v: Vec<LockSpec> = s.held.values().flatten().cloned().collect();
        v.extend(s.waiting.values().map(|w| w.spec.clone()));
        v.sort_by_key(|l| l.id);
        v
    }
}

/// A range of a file that no other mount touches meanwhile. Given back when dropped.
pub(crate) struct ExtentLock {
    fs: Arc<Fs>,
    fid: Fid,
    id: u64,
}

impl Drop for ExtentLock {
    fn drop(&mut self) {
        self.fs.locks.forget(self.fid, self.id);
        let (fs, fid, id) = (self.fs.clone(), self.fid, self.id);
        self.fs.world.spawn("client-lock-cancel", async move { fs.cancel(fid, CancelWhat::Id(id)).await });
    }
}

/// A lock asked for whose caller may go away: then it is taken back.
struct Asked {
    fs: Arc<Fs>,
    spec: LockSpec,
    settled: bool,
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.settled {
            let (fs, spec) = (self.fs.clone(), self.spec.clone());
            self.fs.world.spawn("client-lock-give-up", async move { fs.give_up(spec).await });
        }
    }
}

impl Fs {
    /// Asks for a lock; with `wait` until it is had or the future is dropped.
    pub(crate) async fn lock(self: &Arc<Self>, spec: LockSpec, wait: bool) -> R<()> {
        let mut answer = self.locks.begin(spec.clone())?;
        let mut asked = Asked { fs: self.clone(), spec: spec.clone(), settled: false };
        let r = self.lock_settled(&spec, wait, &mut answer).await;
        asked.settled = true;
        if r.is_err() {
            self.locks.forget(spec.fid, spec.id);
        }
        r
    }

    async fn lock_settled(
        self: &Arc<Self>,
        spec: &LockSpec,
        wait: bool,
        answer: &mut oneshot::Receiver<R<()>>,
    ) -> R<()> {
        let gone = Err(Errno::ENOLCK);
        let mdt = self.mdt_of(spec.fid).await?;
        loop {
            let up = mdt.up.notified();
            if self.enqueue(&mdt, spec, wait).await? {
                self.locks.answered(spec.id, Ok(()));
                return answer.await.unwrap_or(gone);
            }
            if !wait {
                return Err(Errno::EAGAIN);
            }
            match select(&mut *answer, select(up, self.world.sleep(ASK_AGAIN))).await {
                Either::Left(r) => return r.unwrap_or(gone),
                Either::Right(_) => {}
            }
        }
    }

    /// One message. If the caller goes away while it is under way, the lock is cancelled after it: a cancel that
    /// overtook it would leave the lock behind.
    async fn enqueue(self: &Arc<Self>, mdt: &Arc<Target>, spec: &LockSpec, wait: bool) -> R<bool> {
        let (fs, mdt, ctx) = (self.clone(), mdt.clone(), self.own_ctx());
        let msg = Enqueue { lock: spec.clone(), wait };
        let (late, lost) = (self.clone(), spec.clone());
        Detached::new(
            &fs,
            "client-enqueue",
            async move { Ok(mdt.call(ctx, msg).await?.granted) },
            move |_: R<bool>| Box::pin(async move { late.give_up(lost).await }),
        )
        .await
    }

    /// Takes back a lock that was asked for and is not wanted any more. A POSIX range that was granted in the last
    /// moment has replaced what its owner had there: that is asked for again.
    async fn give_up(self: &Arc<Self>, spec: LockSpec) {
        self.locks.forget(spec.fid, spec.id);
        self.cancel(spec.fid, CancelWhat::Id(spec.id)).await;
        if spec.kind == LockKind::Extent {
            return;
        }
        for lock in self.locks.overlapped(&spec) {
            let Ok(mdt) = self.mdt_of(spec.fid).await else { return };
            if let Err(e) = mdt.call(self.own_ctx(), Enqueue { lock: lock.clone(), wait: false }).await {
                tracing::warn!("lock {:#x} on {} of owner {:#x} is lost: {e}", lock.id, lock.fid, lock.owner);
            }
        }
    }

    /// Tells the metadata server; failures are logged, for a lock that cannot be cancelled has no server any more.
    pub(crate) async fn cancel(self: &Arc<Self>, fid: Fid, what: CancelWhat) {
        let r = match self.mdt_of(fid).await {
            Ok(mdt) => mdt.call(self.own_ctx(), Cancel { fid, what }).await,
            Err(e) => Err(e),
        };
        if let Err(e) = r
            && !self.is_closed()
        {
            tracing::warn!("a lock on {fid} cannot be cancelled: {e}");
        }
    }

    /// Keeps other mounts off `start..=end` of a file for one operation.
    pub(crate) async fn extent_lock(self: &Arc<Self>, fid: Fid, mode: LockMode, start: u64, end: u64) -> R<ExtentLock> {
        let id = self.locks.new_id();
        let spec = LockSpec { id, fid, kind: LockKind::Extent, mode, owner: id, pid: 0, start, end };
        self.lock(spec, true).await?;
        Ok(ExtentLock { fs: self.clone(), fid, id })
    }

    /// What a restarted MDT is told.
    pub(crate) fn reclaim_of(&self, mdt: u16) -> Vec<Reclaim> {
        let of_mdt = |fid: Fid| self.locate.mdt_of(fid) == mdt;
        let opens: Vec<_> = self.opens.records().into_iter().filter(|o| of_mdt(o.fid)).collect();
        let locks: Vec<_> = self.locks.all().into_iter().filter(|l| of_mdt(l.fid)).collect();
        tracing::info!("MDT{mdt:04x} recovers: {} open files and {} locks are reclaimed", opens.len(), locks.len());
        let opens = opens.chunks(RECLAIM_BATCH).map(|c| Reclaim { opens: c.to_vec(), locks: Vec::new(), last: false });
        let locks = locks.chunks(RECLAIM_BATCH).map(|c| Reclaim { opens: Vec::new(), locks: c.to_vec(), last: false });
        let mut all: Vec<Reclaim> = opens.chain(locks).collect();
        match all.last_mut() {
            Some(r) => r.last = true,
            None => all.push(Reclaim { opens: Vec::new(), locks: Vec::new(), last: true }),
        }
        all
    }

    /// What could not be had back. A lost handle makes its operations fail by itself; a waiting lock is asked for
    /// again by its waiter.
    pub(crate) fn reclaim_lost(&self, target: TargetId, lost: &ReclaimReply) {
        for handle in &lost.lost_opens {
            tracing::warn!("{target}: open file with handle {handle:#x} is gone");
        }
        let mut s = self.locks.state.lock().expect("no panic while locked");
        for &id in &lost.lost_locks {
            let fid = s.held.values().flatten().find(|l| l.id == id).map(|l| l.fid);
            if let Some(fid) = fid {
                tracing::error!("{target}: lock {id:#x} on {fid} was lost to another client");
                s.remove(fid, id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FID: Fid = Fid::new(5, 6, 0);

    fn spec(id: u64, kind: LockKind, mode: LockMode, owner: u64, start: u64, end: u64) -> LockSpec {
        LockSpec { id, fid: FID, kind, mode, owner, pid: 1, start, end }
    }

    proptest! {
        #[test]
        fn ranges_of_an_owner_behave_as_an_array(
            steps in prop::collection::vec((0u64..2, 0u64..20, 0u64..20, 0u8..3), 1..40)
        ) {
            let locks = Locks::new(1);
            let mut want = [[0u8; 24]; 2];
            for (owner, start, len, what) in steps {
                let end = start + len.min(3);
                want[owner as usize][start as usize..=end as usize].fill(what);
                if what == 0 {
                    locks.forget_range(FID, LockKind::Posix, owner, start, end);
                } else {
                    let mode = if what == 1 { LockMode::Read } else { LockMode::Write };
                    let id = locks.new_id();
                    let _rx = locks.begin(spec(id, LockKind::Posix, mode, owner, start, end)).unwrap();
                    locks.answered(id, Ok(()));
                }
                let all = locks.all();
                prop_assert_eq!(all.len(), locks.state.lock().unwrap().count);
                let mut ids: Vec<_> = all.iter().map(|l| l.id).collect();
                ids.dedup();
                prop_assert_eq!(ids.len(), all.len(), "ids are unique");
                let mut got = [[0u8; 24]; 2];
                for l in &all {
                    for i in l.start..=l.end {
                        prop_assert_eq!(got[l.owner as usize][i as usize], 0, "no byte is locked twice");
                        got[l.owner as usize][i as usize] = if l.mode == LockMode::Read { 1 } else { 2 };
                    }
                }
                prop_assert_eq!(got, want);
            }
        }
    }

    #[test]
    fn news_of_abandoned_locks_are_ignored() {
        let locks = Locks::new(1);
        let id = locks.new_id();
        let rx = locks.begin(spec(id, LockKind::Flock, LockMode::Write, 3, 0, u64::MAX)).unwrap();
        assert!(locks.has(FID, LockKind::Flock, 3));
        locks.forget(FID, id);
        locks.answered(id, Ok(()));
        assert!(!locks.has(FID, LockKind::Flock, 3));
        drop(rx);
    }

    #[test]
    fn a_flock_is_converted_in_place() {
        let locks = Locks::new(1);
        for mode in [LockMode::Read, LockMode::Write] {
            let id = locks.new_id();
            let _rx = locks.begin(spec(id, LockKind::Flock, mode, 3, 0, u64::MAX)).unwrap();
            locks.answered(id, Ok(()));
        }
        assert_eq!(locks.all().len(), 1);
        assert_eq!(locks.all()[0].mode, LockMode::Write);
    }
}
