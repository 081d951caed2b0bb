//! Maintenance as a mount holds it: changes are refused, or operations wait for the end (decision 0079).

use model::maintenance::{Maintenance, Mode};
use model::mutex::Mutex;
use model::planted::{self, Bug};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use wire::context::{HELD_CLOSED, HELD_READ_ONLY, MaintenanceStanding};
use world::sync::Notify;

const READ_ONLY: u8 = HELD_READ_ONLY;
const CLOSED: u8 = HELD_CLOSED;

#[derive(Default)]
struct Ordered {
    /// The configuration's, or what was set on this mount alone.
    what: Maintenance,
    /// The addresses of this host.
    own: Vec<IpAddr>,
}

/// What a mount refuses or has wait.
#[derive(Default)]
pub(crate) struct Hold {
    /// There is a maintenance, though this mount may be left alone: its requests say that it knows.
    on: AtomicBool,
    /// What this mount does about it: 0 for nothing.
    held: AtomicU8,
    /// What was stored into pages before is on the servers: what comes now was stored since.
    settled: AtomicBool,
    /// This mount has heard of one, or met a target that has one: requests say by which configuration there
    /// is none, for a target that is behind.
    tells: AtomicBool,
    /// Of the configuration that is applied.
    version: AtomicU64,
    /// Grows with each order.
    orders: AtomicU64,
    ordered: Mutex<Ordered>,
    changed: Notify,
    /// How many changes have begun and are not over, by the order that was the last when they began. Orders
    /// come into force under its lock: a change is held by one, or counted before it.
    begun: Mutex<BTreeMap<u64, usize>>,
    /// Some of them are over, or there is another order.
    over: Notify,
    /// Nothing that began before this was held goes on, and nothing is kept here: this mount changes nothing.
    quiet: AtomicBool,
    /// Of the last order.
    progress: Mutex<Progress>,
    /// What the MGS was told last.
    said: Mutex<MaintenanceStanding>,
}

/// How far a mount is with what it kept when changes ended.
#[derive(Clone, Default)]
struct Progress {
    order: u64,
    /// What keeps the mount from being quiet, for people.
    waits: String,
    /// So much of what was answered could not be written back, and is lost.
    lost: u64,
}

/// A change that has begun; over when dropped.
pub(crate) struct Begun<'a> {
    hold: &'a Hold,
    order: u64,
}

impl Hold {
    pub(crate) fn maintenance(&self) -> Maintenance {
        self.ordered.lock().what.clone()
    }

    /// What this mount does about it.
    pub(crate) fn held(&self) -> Mode {
        match self.held.load(Relaxed) {
            READ_ONLY => Mode::ReadOnly,
            CLOSED => Mode::Closed,
            _ => Mode::Off,
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// The configuration of this version is applied.
    pub(crate) fn applied(&self, version: u64) {
        self.version.fetch_max(version, Relaxed);
    }

    /// A target refuses changes though this mount knows of no reason. Whether its requests say from now on
    /// what they did not say before.
    pub(crate) fn tell(&self) -> bool {
        !self.is_on() && !self.tells.swap(true, Relaxed)
    }

    /// What requests say: the version of the configuration by which this mount holds none.
    pub(crate) fn told_version(&self) -> Option<u64> {
        self.tells.load(Relaxed).then(|| self.version.load(Relaxed))
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.held.load(Relaxed) == READ_ONLY
    }

    /// What was stored into a mapping may still be written.
    pub(crate) fn takes_pages(&self) -> bool {
        !self.is_read_only() || !self.settled.load(Relaxed)
    }

    /// Takes over what is ordered. The number of the order if this mount does something else than before:
    /// what it keeps is then to be written, and [`Hold::settle`] told.
    pub(crate) fn set(&self, what: Maintenance) -> Option<u64> {
        let mut ordered = self.ordered.lock();
        ordered.what = what;
        self.decide(&ordered)
    }

    /// As [`Hold::set`]: what addresses this host has.
    pub(crate) fn set_own(&self, own: Vec<IpAddr>) -> Option<u64> {
        let mut ordered = self.ordered.lock();
        ordered.own = own;
        self.decide(&ordered)
    }

    fn decide(&self, o: &Ordered) -> Option<u64> {
        let held = match o.what.mode {
            _ if o.what.leaves_alone(&o.own) => 0,
            Mode::Off => 0,
            Mode::ReadOnly => READ_ONLY,
            Mode::Closed => CLOSED,
        };
        let on = o.what.mode != Mode::Off;
        assert!(on || held == 0, "what nobody ordered is not held");
        self.tells.fetch_or(on, Relaxed);
        self.on.store(on, Relaxed);
        if self.held.load(Relaxed) == held {
            return None;
        }
        let order = {
            let _begun = self.begun.lock();
            self.settled.store(false, Relaxed);
            self.quiet.store(false, Relaxed);
            self.held.store(held, Relaxed);
            let order = self.orders.fetch_add(1, Relaxed) + 1;
            let waits = if held == 0 { String::new() } else { "what began before is not over".into() };
            *self.progress.lock() = Progress { order, waits, lost: 0 };
            order
        };
        self.over.notify_waiters();
        if !planted::on(Bug::MaintenanceEndUntold) {
            self.changed.notify_waiters();
        }
        Some(order)
    }

    /// What was kept when this order came is on the servers.
    pub(crate) fn settle(&self, order: u64) {
        let _ordered = self.ordered.lock();
        assert!(order <= self.orders.load(Relaxed), "what was never ordered cannot be done");
        if self.orders.load(Relaxed) == order {
            self.settled.store(true, Relaxed);
        }
    }

    /// Waits until all changes that began before this order are over. False: another one came.
    pub(crate) async fn changes_over(&self, order: u64) -> bool {
        loop {
            let mut over = Box::pin(self.over.notified());
            over.as_mut().enable();
            if self.orders.load(Relaxed) != order {
                return false;
            }
            if self.begun.lock().range(..order).next().is_none() {
                return true;
            }
            over.await;
        }
    }

    /// Whether no other order came since.
    pub(crate) fn is_last(&self, order: u64) -> bool {
        self.orders.load(Relaxed) == order
    }

    /// Writing back what was kept when this order came failed, `lost` times in all: why, for people. It is
    /// tried again.
    pub(crate) fn fails(&self, order: u64, why: String, lost: u64) {
        let mut p = self.progress.lock();
        if p.order == order {
            (p.waits, p.lost) = (why, lost);
        }
    }

    /// What began before this order is over, and on the servers, but for what is lost.
    pub(crate) fn be_quiet(&self, order: u64) {
        let _begun = self.begun.lock();
        if self.orders.load(Relaxed) == order {
            self.progress.lock().waits.clear();
            self.quiet.store(self.held() != Mode::Off, Relaxed);
        }
    }

    /// What keeps this mount from being quiet, for people; empty: nothing.
    pub(crate) fn waits(&self) -> String {
        self.progress.lock().waits.clone()
    }

    /// So much of what was answered before the last order could not be written back.
    pub(crate) fn lost(&self) -> u64 {
        self.progress.lock().lost
    }

    /// What the MGS is told; `None`: this mount never heard of one.
    pub(crate) fn standing(&self) -> Option<MaintenanceStanding> {
        if !self.tells.load(Relaxed) {
            return None;
        }
        // First of all: what follows is of this configuration, or of a later one.
        let version = if self.is_on() { self.version.load(Relaxed) } else { 0 };
        let _begun = self.begun.lock();
        let p = self.progress.lock().clone();
        let (held, quiet) = (self.held.load(Relaxed), self.is_quiet());
        Some(MaintenanceStanding { version, held, quiet, lost: p.lost, waits: p.waits })
    }

    /// The MGS was told that.
    pub(crate) fn said(&self, standing: MaintenanceStanding) {
        *self.said.lock() = standing;
    }

    /// Whether the MGS was told something else, or nothing.
    pub(crate) fn is_unsaid(&self) -> bool {
        self.standing().is_some_and(|s| s != *self.said.lock())
    }

    /// Whether this mount holds a maintenance, and changes nothing any more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Relaxed)
    }

    /// A change begins, which is to ask then whether it may. `waits`: `None` while the file system is closed.
    pub(crate) fn begin(&self, waits: bool) -> Option<Begun<'_>> {
        let mut begun = self.begun.lock();
        if waits && self.held() == Mode::Closed {
            return None;
        }
        let order = self.orders.load(Relaxed);
        *begun.entry(order).or_default() += 1;
        Some(Begun { hold: self, order })
    }

    /// Waits until operations may begin; whether that took waiting: what was asked before may be otherwise by
    /// now.
    pub(crate) async fn passed(&self) -> bool {
        let mut waited = false;
        while self.held.load(Relaxed) == CLOSED {
            let changed = self.changed.notified();
            if self.held.load(Relaxed) != CLOSED {
                break;
            }
            changed.await;
            waited = true;
        }
        waited
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut begun = self.hold.begun.lock();
        let Some(n) = begun.get_mut(&self.order) else { return };
        assert!(*n > 0, "a change is under way until it is over");
        *n -= 1;
        if *n == 0 {
            begun.remove(&self.order);
            self.hold.over.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_mount_is_quiet_when_what_began_before_is_over() {
        let (world, _runtime) = world::real::start(1).unwrap();
        let is_over = |h: &Hold, order| {
            world::block_on(world.timeout(Duration::from_millis(1), Box::pin(h.changes_over(order))))
        };
        let h = Hold::default();
        let order = |text: &str| h.set(Maintenance::parse(text).unwrap()).unwrap();
        let (one, two) = (h.begin(true).unwrap(), h.begin(true).unwrap());
        let held = order("read-only reason=x");
        let late = h.begin(true).unwrap();
        drop(one);
        assert_eq!(is_over(&h, held), None, "one is under way");
        drop(two);
        assert_eq!(is_over(&h, held), Some(true), "who came later was refused, and is not waited for");
        assert!(!h.is_quiet());
        h.fails(held, "the disk is full".into(), 2);
        assert_eq!((h.is_quiet(), h.waits().as_str(), h.lost()), (false, "the disk is full", 2));
        h.be_quiet(held);
        assert_eq!((h.is_quiet(), h.waits().as_str(), h.lost()), (true, "", 2), "what is lost stays so");
        let closed = order("closed reason=x");
        assert!(!h.is_quiet() && h.begin(true).is_none() && h.begin(false).is_some());
        assert_eq!(is_over(&h, held), Some(false), "another order came");
        drop(late);
        assert_eq!(is_over(&h, closed), Some(true));
        h.fails(held, "of another order".into(), 7);
        assert_eq!((h.waits().as_str(), h.lost()), ("what began before is not over", 0));
        let off = order("off");
        h.be_quiet(closed);
        h.be_quiet(off);
        assert!(!h.is_quiet(), "who holds nothing is not quiet");
        assert_eq!(h.waits(), "");
    }

    #[test]
    fn the_mgs_is_told_what_it_does_not_know() {
        let h = Hold::default();
        assert!(h.standing().is_none() && !h.is_unsaid(), "who never heard of one says nothing");
        let order = h.set(Maintenance::parse("closed reason=x").unwrap()).unwrap();
        h.applied(7);
        let first = h.standing().unwrap();
        assert_eq!((first.version, first.held, first.quiet), (7, HELD_CLOSED, false));
        assert!(h.is_unsaid());
        h.said(first);
        assert!(!h.is_unsaid());
        h.be_quiet(order);
        assert!(h.is_unsaid() && h.standing().unwrap().quiet);
        h.said(h.standing().unwrap());
        h.applied(8);
        assert!(h.is_unsaid(), "it is so with a later configuration, too");
        h.set(Maintenance::default()).unwrap();
        assert_eq!(h.standing(), Some(MaintenanceStanding::default()));
        h.said(h.standing().unwrap());
        h.applied(9);
        assert!(!h.is_unsaid(), "without one the configuration is of no concern");
    }
}
