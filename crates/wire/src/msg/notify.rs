//! notify: what servers tell their clients unasked, and what clients answer to it. One way; losing one is
//! repaired at reconnect, or by saying it again.

use super::reclaim::OpenRecord;
use model::{Fid, ObjectId, Timestamp};
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
    /// An extent lock is wanted by somebody else: write what is kept under it, then [`Notice::Released`].
    /// Said again until it is answered.
    BlockExtent { object: ObjectId, id: u64 },
    /// A waiting extent lock can be had: ask again.
    ExtentGranted { object: ObjectId, id: u64 },
    /// Somebody wants to know the object's size and times: answer with [`Notice::Kept`]. Said again until
    /// then.
    GlimpseExtent { object: ObjectId, id: u64, cookie: u64 },
    /// Most bytes of data that the target wants in one request from now on.
    BulkLimit { bytes: u64 },
    /// To servers of the file system only: a client of that UUID was evicted here, and may be gone
    /// altogether.
    ClientEvicted { client: [u8; 16] },
}

/// A client to its server, outside the slots, so that it goes through however many requests wait.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Notice {
    /// Leases that this client uses no more, asked for back or not.
    Cancelled { items: Vec<LeaseItem> },
    /// Extent locks that this client uses no more, asked for back or not: object and id of each.
    Released { locks: Vec<(ObjectId, u64)> },
    /// What an object will be like once everything was written that this client keeps; `None`: it keeps
    /// nothing.
    Kept { cookie: u64, kept: Option<KeptAttr> },
    /// Files that this client has open, of which the server did not know as long as the client had leases on
    /// them. Comes before [`Notice::Cancelled`] of these leases. Saying it again does no harm.
    Opened { opens: Vec<OpenRecord> },
    /// What this connection proves to be, for all requests behind it. Only to servers that sent a nonce
    /// ([`super::connect::EXTRA_NONCE`]); at most [`crate::proof::CLAIMS_MAX`].
    Proof { claims: Vec<crate::proof::Claim> },
    /// From servers of the file system only: as [`Notify::ClientEvicted`]. Only to servers with
    /// [`super::connect::FEATURE_EVICTIONS`]: others would end the connection.
    ClientEvicted { client: [u8; 16] },
}

/// Size and times of an object as one client's writes make them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptAttr {
    /// Object size, as far as this client wrote.
    pub size: u64,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

/// Parts of one file's lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaseItem {
    pub fid: Fid,
    /// [`super::lookup::bits`].
    pub bits: u8,
    /// What was granted up to here; a later grant, perhaps still under way, is not meant.
    pub seq: u64,
    /// Asked for: the other one only looks, so that giving an exclusive lease down to a shared one is enough.
    /// Answered: that was done, the bits are shared from now on.
    pub look: bool,
}

/// Items of one message, at most.
pub const LEASE_ITEMS_MAX: usize = 4096;
/// Extent locks in one [`Notice::Released`], at most.
pub const RELEASED_MAX: usize = 4096;
