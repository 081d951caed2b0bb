//! How many requests a session may have under way: its slots. Whoever wants more waits on his own side.
//!
//! A client asks for slots when it connects, and each answer says anew how many it may use
//! ([`wire::ReplyContext`]), so what an administrator sets holds from the next answer on. A request beyond
//! them is put off, unless it unblocks others.

use model::limits::SLOTS_PER_SESSION;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A mount has up to 32 requests that wait for locks, and needs slots for what gives back its own.
pub const SLOTS_MIN: u16 = 40;
/// No session had a request yet.
const NEVER: u64 = u64::MAX;

/// Who is at the other end of a session. An administrator has none: he asks the daemon on its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Client,
    /// Another target's server.
    Server,
}

/// Of the sessions of one role.
struct OfRole {
    slots_max: AtomicU64,
    /// The fewest that a session had free.
    slots_low: AtomicU64,
}

impl Default for OfRole {
    fn default() -> OfRole {
        OfRole { slots_max: AtomicU64::new(SLOTS_PER_SESSION.into()), slots_low: AtomicU64::new(NEVER) }
    }
}

/// Of one target, or of several that share them.
#[derive(Default)]
pub struct Credits {
    client: OfRole,
    server: OfRole,
}

impl Credits {
    fn of(&self, role: Role) -> &OfRole {
        match role {
            Role::Client => &self.client,
            Role::Server => &self.server,
        }
    }

    /// What a session may use that asked for so many.
    pub(crate) fn granted(&self, role: Role, asked: u16) -> u16 {
        let max = u16::try_from(self.of(role).slots_max.load(Relaxed)).unwrap_or(SLOTS_PER_SESSION);
        assert!((SLOTS_MIN..=SLOTS_PER_SESSION).contains(&max), "it was set within its bounds");
        asked.min(max)
    }

    /// A session has so many free.
    pub(crate) fn saw_free(&self, role: Role, free: u16) {
        let low = &self.of(role).slots_low;
        // Nearly always it had fewer before, and nobody writes.
        if u64::from(free) < low.load(Relaxed) {
            low.fetch_min(free.into(), Relaxed);
        }
    }

    pub fn set_slots_max(&self, role: Role, n: u64) {
        assert!((u64::from(SLOTS_MIN)..=u64::from(SLOTS_PER_SESSION)).contains(&n), "within its bounds");
        self.of(role).slots_max.store(n, Relaxed);
    }

    pub fn slots_max(&self, role: Role) -> u64 {
        self.of(role).slots_max.load(Relaxed)
    }

    /// The fewest that a session of this role had free; all of them if there was no request yet.
    pub fn slots_low(&self, role: Role) -> u64 {
        let of = self.of(role);
        of.slots_low.load(Relaxed).min(of.slots_max.load(Relaxed).saturating_sub(1))
    }

    pub fn clear_low(&self, role: Role) {
        self.of(role).slots_low.store(NEVER, Relaxed);
    }
}
