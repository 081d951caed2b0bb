//! enqueue: asks for a lock on a file: flock, POSIX range, or an extent for one operation.
//! A lock that must wait is answered `granted: false`; a notify ([`super::notify::LockGranted`]) follows.

use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, PartialOrd, Ord, Hash)]
pub enum LockKind {
    /// Whole file, owned by an open file description.
    Flock,
    /// POSIX byte range, owned by a process.
    Posix,
    /// File byte range, held by a client for one operation.
    Extent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
}

/// One lock as a client asks for it, and as it reclaims it after a server's restart.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockSpec {
    /// Unique among this client's locks, never reused: repeating an enqueue is harmless.
    pub id: u64,
    pub fid: Fid,
    pub kind: LockKind,
    pub mode: LockMode,
    /// Within the client: who owns it (open file description or process).
    pub owner: u64,
    pub pid: u32,
    /// Bytes `start..=end`; `end` is `u64::MAX` for "to the end".
    pub start: u64,
    pub end: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Enqueue {
    pub lock: LockSpec,
    /// Wait for it; otherwise EAGAIN.
    pub wait: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EnqueueReply {
    pub granted: bool,
}
message!(Enqueue, Enqueue, EnqueueReply);
