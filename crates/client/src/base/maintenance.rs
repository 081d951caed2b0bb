//! Maintenance as a mount holds it: changes are refused, or operations wait for the end (decision 0079).

use model::maintenance::{Maintenance, Mode};
use model::mutex::Mutex;
use model::planted::{self, Bug};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use world::sync::Notify;

const READ_ONLY: u8 = 1;
const CLOSED: u8 = 2;

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
        self.settled.store(false, Relaxed);
        let order = self.orders.fetch_add(1, Relaxed) + 1;
        self.held.store(held, Relaxed);
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
