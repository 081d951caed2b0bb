//! How much may be kept here for owners whose space is limited: as an OST says with each write. Close to a
//! limit it is nothing, and writes go through to the server, which refuses what is too much at once.

use super::{Osc, WriteMeta};
use model::nodemap::Owner;
use model::planted::{self, Bug};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use world::Instant;

/// For no longer than this what was said of an owner is gone by.
const OWNER_KNOWN_MAX: Duration = Duration::from_secs(1);
/// Others use up his share meanwhile, so fast at most.
const OTHERS_BYTES_PER_MS: u64 = 1 << 20;
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

/// How long it is gone by that so many bytes may be kept: as much again is left in the share, so long as
/// others cannot have used that up.
fn known_for(may_keep: u64) -> Duration {
    if planted::on(Bug::KeepsByOldAnswer) {
        return OWNER_KNOWN_MAX;
    }
    Duration::from_millis(may_keep / OTHERS_BYTES_PER_MS).min(OWNER_KNOWN_MAX)
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

    /// Whether so many bytes more may be kept. Of an owner of whom nothing is known something is written
    /// first. Whoever waits for the server in any case (O_DIRECT) may as well have its answer.
    pub(crate) fn may_keep(self: &Arc<Self>, meta: &WriteMeta, bytes: u64) -> bool {
        if meta.exempt {
            return true;
        }
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
        if meta.direct && !planted::on(Bug::KeepsByOldAnswer) {
            return false;
        }
        let known = b.owners.get(&meta.owner).filter(|(most, t)| now.since(*t) < known_for(*most));
        let unwritten = self.unwritten.load(Ordering::Relaxed);
        known.is_some_and(|(most, _)| unwritten.saturating_add(bytes) <= *most)
    }

    /// Whether what is kept for an owner is to be sent at once.
    pub(crate) fn is_near_limit(&self, owner: Owner) -> bool {
        let b = self.keeps.lock();
        b.limits && b.owners.get(&owner).is_some_and(|(most, _)| *most < AT_ONCE_BYTES)
    }
}
