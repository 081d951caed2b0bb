//! Extent locks of an object: found among those held, or asked for; kept from going while an operation relies
//! on them.

use super::object::{Lock, LockEnqueue, Object, ObjectState, Outcome};
use model::mutex::Mutex;
use model::{Errno, ObjectAttr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::RequestContext;
use wire::msg::extent::{Extent, ExtentAnswer, ExtentMode, ExtentSpec};
use wire::msg::notify::Notice;
use world::{select, sync};

/// A waiter asks again after so long without news.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// So often a server is asked again what an object is like that is being changed by this mount.
const ASK_COMPLETE: u32 = 3;
/// For so long an object that the server called contended is not asked for.
const CONTENDED: Duration = Duration::from_secs(1);

/// A lock on bytes `start..=end` of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockRequest {
    pub write: bool,
    pub start: u64,
    pub end: u64,
    /// A lock shared with a group, and no other.
    pub group: Option<Group>,
    /// Also a lock on its way back whose pages the kernel is giving up: it may not be able to before this is
    /// done.
    pub during_revoke: bool,
}

/// Which group, and whether to wait for its lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub gid: u64,
    pub wait: bool,
}

impl LockRequest {
    pub fn new(write: bool, start: u64, end: u64) -> LockRequest {
        LockRequest { write, start, end, group: None, during_revoke: false }
    }

    fn mode(&self) -> ExtentMode {
        match self.group {
            Some(g) => ExtentMode::Group(g.gid),
            None if self.write => ExtentMode::Write,
            None => ExtentMode::Read,
        }
    }

    fn suits(&self, mode: ExtentMode) -> bool {
        self.group.is_none() || mode == self.mode()
    }

    /// If it cannot be had at once it is not wanted.
    fn at_once(&self) -> bool {
        self.group.is_some_and(|g| !g.wait)
    }

    /// Whether the answer to this question answers for it, too. Who waits is not served by a question that is
    /// given up when it would have to wait.
    fn is_asked_by(&self, p: &LockEnqueue) -> bool {
        self.suits(p.mode) && p.covers(self.write, self.start, self.end) && p.at_once == self.at_once()
    }
}

/// What a look at the locks of an object gave.
pub(crate) enum Look {
    /// This lock is pinned for the caller, who unpins it.
    Pinned(u64),
    Contended,
    /// The target is deactivated.
    Inactive,
    /// The server was not heard from for too long.
    NoLease,
    Wait(Arc<LockEnqueue>),
}

impl ObjectState {
    /// Ends one operation's reliance on a lock. True if somebody waits for that.
    pub(crate) fn unpin(&mut self, id: u64) -> bool {
        let Some(l) = self.lock_mut(id) else { return false };
        assert!(l.pins > 0, "a lock is unpinned as often as it was pinned");
        l.pins -= 1;
        l.pins == 0 && l.wanted
    }

    /// Locks that nobody relies on, and that are not on their way back.
    pub(super) fn idle_locks(&self) -> Vec<u64> {
        self.locks.iter().filter(|l| l.pins == 0 && !l.wanted).map(|l| l.id).collect()
    }
}

impl Object {
    /// Pins a lock that is held, or asks for one. `force`: also if the object is contended.
    pub(crate) fn look(self: &Arc<Self>, w: &LockRequest, force: bool) -> Look {
        let mut s = self.lock();
        if !self.osc.target.is_active() {
            return Look::Inactive;
        }
        let usable = |l: &Lock| !l.going || (w.during_revoke && l.sweeping);
        if let Some(l) =
            s.locks.iter_mut().find(|l| usable(l) && w.suits(l.mode) && l.covers(w.write, w.start, w.end))
        {
            if !self.osc.target.is_leased() {
                return Look::NoLease;
            }
            l.pin();
            return Look::Pinned(l.id);
        }
        if !force && self.osc.cx.world.now() < s.contended_until {
            let asked = s.enqueued.iter().find(|p| w.is_asked_by(p));
            return asked.map_or(Look::Contended, |p| Look::Wait(p.clone()));
        }
        Look::Wait(self.enqueue(&mut s, w, force))
    }

    /// The question for a lock, which is asked unless it is already. `s` is this object's state.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        s: &mut ObjectState,
        w: &LockRequest,
        force: bool,
    ) -> Arc<LockEnqueue> {
        assert!(w.start <= w.end, "a lock is on a byte at least");
        if let Some(p) = s.enqueued.iter().find(|p| w.is_asked_by(p)) {
            return p.clone();
        }
        let p = Arc::new(LockEnqueue {
            id: self.osc.cx.number(),
            mode: w.mode(),
            at_once: w.at_once(),
            start: w.start,
            end: w.end,
            again: sync::Notify::new(),
            blocked: AtomicBool::new(false),
            outcome: Mutex::new(None),
        });
        s.enqueued.push(p.clone());
        let (me, asked) = (self.clone(), p.clone());
        self.osc.cx.world.spawn("client-extent", async move { me.obtain(asked, force).await });
        p
    }

    /// Asks for a lock until there is an answer. Goes on without whoever wanted it: what is granted is kept.
    async fn obtain(self: Arc<Self>, p: Arc<LockEnqueue>, force: bool) {
        let outcome = self.obtain_answer(&p, force).await;
        {
            let mut s = self.lock();
            let asked = s.enqueued.len();
            s.enqueued.retain(|x| x.id != p.id);
            assert!(s.enqueued.len() + 1 == asked, "a question is answered once");
            if outcome == Outcome::Contended {
                s.contended_until = self.osc.cx.world.now().plus(CONTENDED);
            }
            *p.outcome.lock() = Some(outcome);
        }
        self.changed.notify_waiters();
        if outcome == Outcome::Granted && p.blocked.load(Ordering::SeqCst) {
            self.block_extent(p.id);
        }
    }

    async fn obtain_answer(&self, p: &LockEnqueue, force: bool) -> Outcome {
        let (object, target) = (self.id, &self.osc.target);
        let lock = ExtentSpec { object, id: p.id, mode: p.mode, start: p.start, end: p.end };
        let mut tries = 0;
        loop {
            let moment = self.lock().moment();
            let up = target.up.notified();
            let generation = self.osc.generation();
            let msg = Extent { lock: lock.clone(), force };
            let ctx = RequestContext { layout_generation: self.generation(), ..self.osc.cx.own() };
            // The server may have granted it meanwhile, and others may wait for it.
            match target.call_waited_for(ctx, msg).await {
                Ok(r) => match r.answer {
                    ExtentAnswer::Granted { start, end, attr } => {
                        if start > p.start || end < p.end {
                            tracing::error!("{}: a lock on {object} is narrower than asked for", target.id);
                            return Outcome::Failed(Errno::EPROTO);
                        }
                        tries += 1;
                        let last = tries >= ASK_COMPLETE;
                        if self.take_lock(p, (start, end), &attr, (generation, moment, last)) {
                            return Outcome::Granted;
                        }
                    }
                    ExtentAnswer::Contended => return Outcome::Contended,
                    ExtentAnswer::Waits if p.at_once => {
                        target.import.notice(&Notice::Released { locks: vec![(object, p.id)] });
                        return Outcome::Failed(Errno::EAGAIN);
                    }
                    ExtentAnswer::Waits => {
                        select(p.again.notified(), select(up, self.osc.cx.world.sleep(ASK_AGAIN))).await;
                    }
                },
                Err(e) => return Outcome::Failed(e),
            }
        }
    }

    /// Takes a lock that was asked for at that moment. False if the server is to be asked again, which
    /// answers as before, but with what the object is like by now: it may have forgotten the lock since, or
    /// have answered before it got what this mount wrote under another one that went back. `last`: what is
    /// not known then is asked for by whoever needs it.
    fn take_lock(
        &self,
        p: &LockEnqueue,
        range: (u64, u64),
        attr: &ObjectAttr,
        (generation, moment, last): (u64, Option<u64>, bool),
    ) -> bool {
        let mut s = self.lock();
        if self.osc.generation() != generation {
            return false;
        }
        let complete = s.unchanged_since(moment);
        if !complete && !last && s.wants_attr(range.1) {
            return false;
        }
        s.granted(p, range, attr, complete);
        self.account(&mut s);
        drop(s);
        self.osc.trim_locks();
        true
    }
}
