//! reclaim: after a server's restart a client says what it had: open files and locks.
//! The last message of a client's reclaim ends its part of recovery.

use super::enqueue::LockSpec;
use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenRecord {
    pub fid: Fid,
    pub handle: u64,
    pub flags: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Reclaim {
    pub opens: Vec<OpenRecord>,
    /// Granted and waiting ones.
    pub locks: Vec<LockSpec>,
    pub last: bool,
    /// Extent locks that the client holds.
    pub extents: Vec<super::extent::ExtentSpec>,
    /// Exclusive leases under which it has executed operations that it has not sent: granted again before
    /// anybody is served.
    pub owned: Vec<super::notify::LeaseItem>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReclaimReply {
    /// Handles of files that are gone.
    pub lost_opens: Vec<u64>,
    /// Locks that others hold by now.
    pub lost_locks: Vec<u64>,
}
message!(Reclaim, Reclaim, ReclaimReply);
