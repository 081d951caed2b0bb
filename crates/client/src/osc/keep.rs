//! How much may be kept here for owners whose space is limited: as an OST says with each write. Close to a
//! limit it is nothing, and writes go through to the server, which refuses what is too much at once.

use super::Osc;
use model::nodemap::Owner;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use world::Instant;

/// For so long what was said of an owner is gone by. Others use up his share meanwhile.
const OWNER_KNOWN_FOR: Duration = Duration::from_secs(1);
/// Where nobody was limited it is asked again after so long, with grant.
const LIMITS_KNOWN_FOR: Duration = Duration::from_secs(1);
/// Owners of whom something is known, at most.
const OWNERS_MAX: usize = 256;
/// What is kept for an owner who may keep less than this is sent at once.
const AT_ONCE_BYTES: u64 = 256 << 20;

/// What an OST said.
#[derive(Default)]
pub(super) struct KeepBook {
    /// Somebody is limited there, as it said last.
    limits: bool,
    heard: Option<Instant>,
    owners: BTreeMap<Owner, (u64, Instant)>,
}

impl Osc {
    /// The OST says whether somebody is limited there; it says so with grant.
    pub(super) fn limits_heard(&self, limits: bool) {
        let mut b = self.keeps.lock();
        (b.limits, b.heard) = (limits, Some(self.cx.world.now()));
        if !limits {
            b.owners.clear();
        }
    }

    /// What an OST said with a write: so many bytes may be kept for this owner, or nobody is limited there.
    pub(super) fn keep_heard(&self, owner: Owner, may_keep: Option<u64>) {
        let Some(bytes) = may_keep else { return self.limits_heard(false) };
        let now = self.cx.world.now();
        let mut b = self.keeps.lock();
        b.limits = true;
        if b.owners.len() >= OWNERS_MAX && !b.owners.contains_key(&owner) {
            b.owners.clear();
        }
        b.owners.insert(owner, (bytes, now));
    }

    /// The server restarted.
    pub(super) fn forget_keeps(&self) {
        self.keeps.lock().owners.clear();
    }

    /// Whether so many bytes more may be kept for an owner. Of whom nothing is known something is written
    /// first.
    pub(crate) fn may_keep(self: &Arc<Self>, owner: Owner, bytes: u64) -> bool {
        let now = self.cx.world.now();
        let b = self.keeps.lock();
        if !b.limits {
            let stale = b.heard.is_none_or(|t| now.since(t) > LIMITS_KNOWN_FOR);
            drop(b);
            if stale {
                self.ask_grant();
            }
            return true;
        }
        let known = b.owners.get(&owner).filter(|(_, t)| now.since(*t) < OWNER_KNOWN_FOR);
        let unwritten = self.unwritten.load(Ordering::Relaxed);
        known.is_some_and(|(most, _)| unwritten.saturating_add(bytes) <= *most)
    }

    /// Whether what is kept for an owner is to be sent at once.
    pub(crate) fn is_near_limit(&self, owner: Owner) -> bool {
        let b = self.keeps.lock();
        b.limits && b.owners.get(&owner).is_some_and(|(most, _)| *most < AT_ONCE_BYTES)
    }
}
