//! Locks for one operation on a file: on each object that it concerns, kept from going until the operation
//! ends.

use super::file::{File, Locked};
use crate::R;
use crate::osc::{LockEnqueue, LockRequest, Look, Outcome};
use model::Errno;
use std::sync::Arc;
use std::time::Duration;
use world::{World, select};

/// An operation that holds locks and waits for another so long lets them go and starts anew: a dead OST must
/// not keep locks of the others.
pub(super) const HOLD_MAX: Duration = Duration::from_secs(3);
/// How often a lease is looked at while it is over.
pub(crate) const LEASE_AGAIN: Duration = Duration::from_millis(100);

/// A cut that waits so long for a lock while the kernel cannot give up pages is given up: the kernel writes
/// no page of a file that is being cut.
const CUT_MAX: Duration = Duration::from_secs(2);

/// A lock on the object of a stripe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectRequest {
    pub number: usize,
    pub lock: LockRequest,
}

impl ObjectRequest {
    pub fn new(number: usize, write: bool, start: u64, end: u64) -> ObjectRequest {
        assert!(start <= end, "a lock is asked for at least a byte");
        ObjectRequest { number, lock: LockRequest::new(write, start, end) }
    }
}

/// Locks that an operation relies on.
pub(crate) struct Pins {
    file: Arc<File>,
    /// Stripe and lock.
    held: Vec<(usize, u64)>,
}

impl Pins {
    fn none(file: &Arc<File>, room: usize) -> Pins {
        Pins { file: file.clone(), held: Vec::with_capacity(room) }
    }

    /// Locks of which the caller counted the pins.
    pub(crate) fn counted(file: &Arc<File>, held: Vec<(usize, u64)>) -> Pins {
        let known = held.iter().all(|(number, id)| *number < file.objects.len() && *id != 0);
        assert!(known, "a pin is of a lock of one of the file's objects");
        Pins { file: file.clone(), held }
    }

    /// Fills may rely on these locks until the result goes, though they are going.
    pub(crate) fn clearing(&self) -> Clearing<'_> {
        Clearing::count(self, 1);
        Clearing(self)
    }

    pub(crate) fn stripes(&self) -> impl Iterator<Item = usize> {
        self.held.iter().map(|h| h.0)
    }

    /// The lock on the object of a stripe.
    pub fn of(&self, number: usize) -> u64 {
        self.held.iter().find(|h| h.0 == number).map_or(0, |h| h.1)
    }

    /// The operation relies no more on the lock on this object.
    pub(super) fn let_go(&mut self, number: usize) {
        let file = self.file.clone();
        let (gone, held) = std::mem::take(&mut self.held).into_iter().partition(|h| h.0 == number);
        self.held = held;
        drop(Pins { file, held: gone });
    }

    /// Whether all of them are still held: an eviction takes them whoever relies on them.
    pub fn valid(&self, objs: &Locked) -> bool {
        self.held.iter().all(|(s, id)| objs[*s].locks.iter().any(|l| l.id == *id))
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let mut told = false;
        for (number, id) in &self.held {
            told |= self.file.objects[*number].lock().unpin(*id);
        }
        if told {
            self.file.changed.notify_waiters();
        }
    }
}

/// See [`Pins::clearing`].
pub(crate) struct Clearing<'a>(&'a Pins);

impl Clearing<'_> {
    fn count(pins: &Pins, n: isize) {
        for (number, id) in &pins.held {
            if let Some(l) = pins.file.objects[*number].lock().lock_mut(*id) {
                l.clearing = l.clearing.checked_add_signed(n).expect("as many ends as beginnings");
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
    /// An object is contended: go through the server.
    Contended,
}

/// What became of one of the locks.
enum Got {
    Yes,
    Contended,
    /// The locks that are held were let go meanwhile: all are looked for again.
    Anew,
}

impl File {
    /// Locks for all of these, taken in the order given, which is that of stripes. `force`: also on contended
    /// objects.
    pub(crate) async fn pin(
        self: &Arc<Self>,
        world: &World,
        wants: &[ObjectRequest],
        force: bool,
    ) -> R<Pinned> {
        'anew: loop {
            let mut pins = Pins::none(self, wants.len());
            for w in wants {
                match self.pin_one(world, w, force, &mut pins).await? {
                    Got::Yes => {}
                    Got::Contended => return Ok(Pinned::Contended),
                    Got::Anew => continue 'anew,
                }
            }
            return Ok(Pinned::Held(pins));
        }
    }

    /// As [`File::pin`] with force.
    pub(crate) async fn pin_all(self: &Arc<Self>, world: &World, wants: &[ObjectRequest]) -> R<Pins> {
        match self.pin(world, wants, true).await? {
            Pinned::Held(p) => Ok(p),
            Pinned::Contended => unreachable!("asked for with force"),
        }
    }

    /// As `pin_all`, for a cut: in a kernel that cuts a file no page of it is written, so that a sweep of it
    /// may wait for the cut. `EINTR` if they wait for each other by way of another mount.
    pub(crate) async fn pin_cut(self: &Arc<Self>, wants: &[ObjectRequest]) -> R<Pins> {
        let late =
            |w: &ObjectRequest| ObjectRequest { lock: LockRequest { during_revoke: true, ..w.lock }, ..*w };
        let wants: Vec<ObjectRequest> = wants.iter().map(late).collect();
        let stuck = async {
            let mut since = self.cx.world.now();
            loop {
                self.cx.world.sleep(CUT_MAX / 8).await;
                let sweeping = self.lock().iter().any(|o| o.locks.iter().any(|l| l.sweeping));
                let now = self.cx.world.now();
                if !sweeping {
                    since = now;
                } else if now.since(since) >= CUT_MAX {
                    return;
                }
            }
        };
        match select(Box::pin(self.pin_all(&self.cx.world, &wants)), Box::pin(stuck)).await {
            world::Either::Left(r) => r,
            world::Either::Right(()) => {
                tracing::warn!("{}: a truncate and pages that are mapped wait for each other", self.fid);
                Err(Errno::EINTR)
            }
        }
    }

    async fn pin_one(
        self: &Arc<Self>,
        world: &World,
        w: &ObjectRequest,
        force: bool,
        pins: &mut Pins,
    ) -> R<Got> {
        let o = &self.objects[w.number];
        let mut asked: Option<Arc<LockEnqueue>> = None;
        loop {
            let mut changed = Box::pin(self.changed.notified());
            changed.as_mut().enable();
            match asked.as_ref().and_then(|p| p.outcome()) {
                Some(Outcome::Failed(e)) => return Err(e),
                Some(Outcome::Contended) if !force => return Ok(Got::Contended),
                _ => {}
            }
            match o.look(&w.lock, force) {
                Look::Pinned(id) => {
                    pins.held.push((w.number, id));
                    return Ok(Got::Yes);
                }
                Look::Contended => return Ok(Got::Contended),
                Look::Inactive => return Err(Errno::EIO),
                Look::NoLease => {
                    drop(changed);
                    *pins = Pins::none(self, 0);
                    if o.osc.target.import.connected().await == Err(Errno::ESHUTDOWN) {
                        return Err(Errno::ESHUTDOWN);
                    }
                    world.sleep(LEASE_AGAIN).await;
                    return Ok(Got::Anew);
                }
                Look::Wait(p) => asked = Some(p),
            }
            if pins.held.is_empty() {
                changed.await;
            } else if let world::Either::Right(()) = select(changed, world.sleep(HOLD_MAX)).await {
                *pins = Pins::none(self, 0);
                self.settled(asked).await;
                return Ok(Got::Anew);
            }
        }
    }

    /// Waits until a question is answered, holding nothing.
    async fn settled(&self, asked: Option<Arc<LockEnqueue>>) {
        let Some(p) = asked else { return };
        loop {
            let mut changed = Box::pin(self.changed.notified());
            changed.as_mut().enable();
            if p.outcome().is_some() {
                return;
            }
            changed.await;
        }
    }
}
