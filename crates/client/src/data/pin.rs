//! Locks for one operation: found among those held, or asked for; kept from going until the operation ends.

use super::file::{File, Lock, Obj, Outcome, Pending};
use crate::{Fs, R};
use bytes::Bytes;
use model::{Errno, ObjectAttr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::msg::extent::{Extent, ExtentAnswer, ExtentMode, ExtentSpec};
use wire::msg::notify::Notice;
use world::{select, sync};

/// A waiter asks again after so long without news.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// An operation that holds locks and waits for another so long lets them go and starts anew: a dead OST must not keep
/// locks of the others.
const HOLD_MAX: Duration = Duration::from_secs(3);
/// For so long an object that the server called contended is not asked for.
const CONTENDED: Duration = Duration::from_secs(1);
/// How often a lease is looked at while it is over.
const LEASE_AGAIN: Duration = Duration::from_millis(100);

/// Bytes `start..=end` of the object of a stripe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub stripe: usize,
    pub write: bool,
    pub start: u64,
    pub end: u64,
    /// A lock shared with a group, and no other.
    pub group: Option<Group>,
    /// Also a lock on its way back whose pages the kernel is giving up: it may not be able to before this is done.
    pub late: bool,
}

/// Which group, and whether to wait for its lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub gid: u64,
    pub wait: bool,
}

impl Want {
    pub fn new(stripe: usize, write: bool, start: u64, end: u64) -> Want {
        Want { stripe, write, start, end, group: None, late: false }
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

    /// Whether the answer to this question answers for it, too. Who waits is not served by a question that is given up when it
    /// would have to wait.
    fn is_asked_by(&self, p: &Pending) -> bool {
        self.suits(p.mode) && p.covers(self.write, self.start, self.end) && p.at_once == self.at_once()
    }
}

/// Locks that an operation relies on.
pub(crate) struct Pins {
    file: Arc<File>,
    /// Stripe and lock.
    held: Vec<(usize, u64)>,
}

impl Pins {
    /// Locks of which the caller counted the pins.
    pub(super) fn counted(file: &Arc<File>, held: Vec<(usize, u64)>) -> Pins {
        Pins { file: file.clone(), held }
    }

    /// Fills may rely on these locks until the result goes, though they are going.
    pub(super) fn clearing(&self) -> Clearing<'_> {
        Clearing::count(self, 1);
        Clearing(self)
    }

    pub(super) fn stripes(&self) -> impl Iterator<Item = usize> {
        self.held.iter().map(|h| h.0)
    }

    /// The lock on the object of a stripe.
    pub fn of(&self, stripe: usize) -> u64 {
        self.held.iter().find(|h| h.0 == stripe).map_or(0, |h| h.1)
    }

    /// Whether all of them are still held: an eviction takes them whoever relies on them.
    pub fn valid(&self, objs: &[super::file::Obj]) -> bool {
        self.held.iter().all(|(s, id)| objs[*s].locks.iter().any(|l| l.id == *id))
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let mut told = false;
        {
            let mut objs = self.file.lock();
            for (stripe, id) in &self.held {
                if let Some(l) = objs[*stripe].lock_mut(*id) {
                    l.pins -= 1;
                    told |= l.pins == 0 && l.wanted;
                }
            }
        }
        if told {
            self.file.changed.notify_waiters();
        }
    }
}

/// See [`Pins::clearing`].
pub(super) struct Clearing<'a>(&'a Pins);

impl Clearing<'_> {
    fn count(pins: &Pins, n: isize) {
        let mut objs = pins.file.lock();
        for (stripe, id) in &pins.held {
            if let Some(l) = objs[*stripe].lock_mut(*id) {
                l.clearing = l.clearing.wrapping_add_signed(n);
            }
        }
    }
}

impl Drop for Clearing<'_> {
    fn drop(&mut self) {
        Clearing::count(self.0, -1);
    }
}

pub(crate) enum Pinned {
    Held(Pins),
    /// The object is contended: go through the server.
    Contended,
}

/// What a look at the locks of one object gave.
enum Look {
    Pinned,
    Contended,
    /// The target is deactivated.
    Inactive,
    /// The server was not heard from for too long.
    NoLease,
    Wait(Arc<Pending>),
}

impl Fs {
    /// Locks for all of these, taken in the order of stripes. `force`: also on contended objects.
    pub(crate) async fn pin(self: &Arc<Self>, file: &Arc<File>, wants: &[Want], force: bool) -> R<Pinned> {
        'anew: loop {
            let mut pins = Pins { file: file.clone(), held: Vec::with_capacity(wants.len()) };
            for w in wants {
                let mut asked: Option<Arc<Pending>> = None;
                loop {
                    let mut changed = Box::pin(file.changed.notified());
                    changed.as_mut().enable();
                    match asked.as_ref().and_then(|p| *p.outcome.lock().expect("no panic while locked")) {
                        Some(Outcome::Failed(e)) => return Err(e),
                        Some(Outcome::Contended) if !force => return Ok(Pinned::Contended),
                        _ => {}
                    }
                    match self.look(file, w, force, &mut pins) {
                        Look::Pinned => break,
                        Look::Contended => return Ok(Pinned::Contended),
                        Look::Inactive => return Err(Errno::EIO),
                        Look::NoLease => {
                            drop(changed);
                            pins = Pins { file: file.clone(), held: Vec::new() };
                            let target = file.lock()[w.stripe].target.clone();
                            if target.import.connected().await == Err(Errno::ESHUTDOWN) {
                                return Err(Errno::ESHUTDOWN);
                            }
                            self.world.sleep(LEASE_AGAIN).await;
                            drop(pins);
                            continue 'anew;
                        }
                        Look::Wait(p) => asked = Some(p),
                    }
                    if pins.held.is_empty() {
                        changed.await;
                    } else if let world::Either::Right(()) = select(changed, self.world.sleep(HOLD_MAX)).await
                    {
                        drop(std::mem::replace(&mut pins, Pins { file: file.clone(), held: Vec::new() }));
                        self.settled(file, asked).await;
                        continue 'anew;
                    }
                }
            }
            return Ok(Pinned::Held(pins));
        }
    }

    /// Waits until a question is answered, holding nothing.
    async fn settled(&self, file: &Arc<File>, asked: Option<Arc<Pending>>) {
        let Some(p) = asked else { return };
        loop {
            let mut changed = Box::pin(file.changed.notified());
            changed.as_mut().enable();
            if p.outcome.lock().expect("no panic while locked").is_some() {
                return;
            }
            changed.await;
        }
    }

    fn look(self: &Arc<Self>, file: &Arc<File>, w: &Want, force: bool, pins: &mut Pins) -> Look {
        let mut objs = file.lock();
        let o = &mut objs[w.stripe];
        if !o.target.is_active() {
            return Look::Inactive;
        }
        let usable = |l: &Lock| !l.going || (w.late && l.sweeping);
        if let Some(l) =
            o.locks.iter_mut().find(|l| usable(l) && w.suits(l.mode) && l.covers(w.write, w.start, w.end))
        {
            if !o.target.data.is_leased(&self.world, &o.target) {
                return Look::NoLease;
            }
            l.pin();
            pins.held.push((w.stripe, l.id));
            return Look::Pinned;
        }
        if !force && self.world.now() < o.contended_until {
            let asked = o.pending.iter().find(|p| w.is_asked_by(p));
            return asked.map_or(Look::Contended, |p| Look::Wait(p.clone()));
        }
        Look::Wait(self.ask(file, o, w, force))
    }

    /// The question for a lock, which is asked unless it is already. With the file locked.
    pub(super) fn ask(
        self: &Arc<Self>,
        file: &Arc<File>,
        o: &mut Obj,
        w: &Want,
        force: bool,
    ) -> Arc<Pending> {
        if let Some(p) = o.pending.iter().find(|p| w.is_asked_by(p)) {
            return p.clone();
        }
        let p = Arc::new(Pending {
            id: self.data.number(),
            mode: w.mode(),
            at_once: w.at_once(),
            start: w.start,
            end: w.end,
            again: sync::Notify::new(),
            blocked: AtomicBool::new(false),
            outcome: Mutex::new(None),
        });
        o.pending.push(p.clone());
        let (fs, file, asked, stripe) = (self.clone(), file.clone(), p.clone(), w.stripe);
        self.world.spawn("client-extent", async move { fs.obtain(file, stripe, asked, force).await });
        p
    }

    /// Asks for a lock until there is an answer. Goes on without whoever wanted it: what is granted is kept.
    async fn obtain(self: Arc<Self>, file: Arc<File>, stripe: usize, p: Arc<Pending>, force: bool) {
        let outcome = self.obtain_answer(&file, stripe, &p, force).await;
        {
            let mut objs = file.lock();
            let o = &mut objs[stripe];
            o.pending.retain(|x| x.id != p.id);
            if outcome == Outcome::Contended {
                o.contended_until = self.world.now().plus(CONTENDED);
            }
            *p.outcome.lock().expect("no panic while locked") = Some(outcome);
        }
        file.changed.notify_waiters();
        if outcome == Outcome::Granted && p.blocked.load(Ordering::SeqCst) {
            self.block_extent(&file, stripe, p.id);
        }
    }

    async fn obtain_answer(
        self: &Arc<Self>,
        file: &Arc<File>,
        stripe: usize,
        p: &Arc<Pending>,
        force: bool,
    ) -> Outcome {
        let (object, target) = {
            let objs = file.lock();
            (objs[stripe].id, objs[stripe].target.clone())
        };
        let lock = ExtentSpec { object, id: p.id, mode: p.mode, start: p.start, end: p.end };
        loop {
            let up = target.up.notified();
            let generation = target.data.generation.load(Ordering::SeqCst);
            let msg = Extent { lock: lock.clone(), force };
            match target.call_now(self.own_ctx(), msg, Bytes::new()).await {
                Ok(r) => match r.reply.answer {
                    ExtentAnswer::Granted { start, end, attr } => {
                        if start > p.start || end < p.end {
                            tracing::error!("{}: a lock on {object} is narrower than asked for", target.id);
                            return Outcome::Failed(Errno::EPROTO);
                        }
                        if self.take_grant(file, stripe, p, (start, end), &attr, generation) {
                            return Outcome::Granted;
                        }
                    }
                    ExtentAnswer::Contended => return Outcome::Contended,
                    ExtentAnswer::Waits if p.at_once => {
                        target.import.notice(&Notice::Released { locks: vec![(object, p.id)] });
                        return Outcome::Failed(Errno::EAGAIN);
                    }
                    ExtentAnswer::Waits => {
                        select(p.again.notified(), select(up, self.world.sleep(ASK_AGAIN))).await;
                    }
                },
                Err(e) => return Outcome::Failed(e),
            }
        }
    }

    /// False: the server may have forgotten the lock since.
    fn take_grant(
        &self,
        file: &Arc<File>,
        stripe: usize,
        p: &Pending,
        (start, end): (u64, u64),
        attr: &ObjectAttr,
        generation: u64,
    ) -> bool {
        let mut objs = file.lock();
        let o = &mut objs[stripe];
        if o.target.data.generation.load(Ordering::SeqCst) != generation {
            return false;
        }
        o.granted(p, start, end, attr);
        true
    }

    /// Whether a lock could be asked for with success: none is held that nobody uses.
    pub(super) fn idle_locks(locks: &[Lock]) -> Vec<u64> {
        locks.iter().filter(|l| l.pins == 0 && !l.wanted).map(|l| l.id).collect()
    }
}
