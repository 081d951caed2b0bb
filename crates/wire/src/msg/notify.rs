//! notify: what servers tell their clients unasked, and what clients answer to it. One way; losing one is
//! repaired at reconnect, or by saying it again.

use model::Fid;
use serde::{Deserialize, Serialize};

/// A server to its client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Notify {
    /// A waiting lock was granted, or failed with an errno (EDEADLK).
    LockGranted { id: u64, errno: u16 },
    /// The file system's configuration has this version now.
    ConfigChanged { version: u64 },
    /// The server stops in an orderly way; reconnect when it is back.
    Stopping,
    /// Leases that others need: what they cover must not be used any more, then [`Notice::Cancelled`].
    /// Said again until it is answered.
    Revoke { items: Vec<LeaseItem> },
}

/// A client to its server, outside the slots, so that it goes through however many requests wait.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Notice {
    /// Leases that this client uses no more, asked for back or not.
    Cancelled { items: Vec<LeaseItem> },
}

/// Parts of one file's lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaseItem {
    pub fid: Fid,
    /// [`super::lookup::bits`].
    pub bits: u8,
    /// What was granted up to here; a later grant, perhaps still under way, is not meant.
    pub seq: u64,
}

/// Items of one message, at most.
pub const LEASE_ITEMS_MAX: usize = 4096;
