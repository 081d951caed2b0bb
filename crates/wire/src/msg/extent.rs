//! extent: asks an OST for a lock on bytes of an object, under which the client caches them.
//!
//! A lock that must wait is answered [`ExtentAnswer::Waits`]; a notify
//! ([`super::notify::Notify::ExtentGranted`]) says when to ask again, with the same id, which is harmless at
//! any time.

use model::{ObjectAttr, ObjectId};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, PartialOrd, Ord, Hash)]
pub enum ExtentMode {
    /// Shared: what is read may be kept.
    Read,
    /// Exclusive: what is written may be kept, too.
    Write,
    /// Shared by those who name the same group, reading and writing: they see to coherence themselves.
    Group(u64),
}

/// One lock as a client asks for it, and as it reclaims it after a server's restart (then: as granted).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExtentSpec {
    pub object: ObjectId,
    /// Unique among this client's locks, never 0, never reused.
    pub id: u64,
    pub mode: ExtentMode,
    /// Bytes `start..=end`; `end` is `u64::MAX` for "to the end".
    pub start: u64,
    pub end: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Extent {
    pub lock: ExtentSpec,
    /// Take part in the queue even if the object is contended.
    pub force: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ExtentAnswer {
    /// Held: at least what was asked for, perhaps more, and what the object is like.
    Granted {
        start: u64,
        end: u64,
        attr: ObjectAttr,
    },
    Waits,
    /// Too many want it: go through the server without a lock for a while.
    Contended,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExtentReply {
    pub answer: ExtentAnswer,
}
message!(Extent, Extent, ExtentReply);
