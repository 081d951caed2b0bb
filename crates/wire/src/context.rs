//! What every request and every reply says besides its verb.

use model::nodemap::Owner;
use model::{Cred, Timestamp};
use serde::{Deserialize, Serialize};

/// First part of each request's body. Fields that nothing uses yet have their room from the first
/// version on; `extra` holds tagged values of later versions, skipped and preserved when unknown.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RequestContext {
    pub cred: Cred,
    pub projid: u32,
    pub jobid: String,
    /// NID of the client as it knows itself; the server trusts only the connection's.
    pub client_nid: String,
    pub auth_flavour: u16,
    pub auth_token: Vec<u8>,
    pub nodemap: u32,
    /// The caller gives up after so many milliseconds; 0: never.
    pub deadline_ms: u32,
    /// Of data requests: generation of the layout that the client mapped the file with.
    pub layout_generation: u32,
    pub capability: Vec<u8>,
    pub trace_id: u64,
    /// When the application made the call, by the client's clock.
    pub client_time: Timestamp,
    pub extra: Vec<(u16, Vec<u8>)>,
}

/// Tag of [`RequestContext::extra`]: a [`FileOwner`]. Object targets that do not know it count what a request
/// makes to whoever asks.
pub const EXTRA_FILE_OWNER: u16 = 1;

/// Tag of [`RequestContext::extra`]: a [`Timestamp`]. When data of the file was written last, as its object
/// targets stamped it: a change that says so comes later, whatever the clocks of servers show. A metadata
/// target that does not know it goes by the clocks.
pub const EXTRA_WRITTEN: u16 = 2;

/// Tag of [`RequestContext::extra`]: a [`LimitsKnown`]. Who does not say it is told `EDQUOT` where a target's
/// share of a limit is used up.
pub const EXTRA_LIMITS: u16 = 4;

/// What a sender knows of limits on space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LimitsKnown {
    /// Where a share is used up, that is told as `ESHARE`: it asks the metadata target for more.
    Acquires,
    /// Root writes, whom limits do not hold.
    Exempt,
}

/// Whose file a request for data concerns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct FileOwner {
    pub owner: Owner,
    /// The inode's ctime when that was the owner, the latest that the sender knows.
    pub as_of: Timestamp,
}

impl RequestContext {
    /// As it is, for data of this owner's file.
    pub fn naming(mut self, of: &FileOwner) -> RequestContext {
        self.extra.push((EXTRA_FILE_OWNER, crate::encode_message(of)));
        self
    }

    /// As it is, for a change that comes after what was written at this time.
    pub fn behind_write(mut self, at: Timestamp) -> RequestContext {
        self.extra.push((EXTRA_WRITTEN, crate::encode_message(&at)));
        self
    }

    /// As it is, from a sender that knows of limits.
    pub fn with_limits(mut self, known: LimitsKnown) -> RequestContext {
        self.extra.push((EXTRA_LIMITS, crate::encode_message(&known)));
        self
    }

    /// What the sender knows of limits, if it says.
    pub fn limits_known(&self) -> Option<LimitsKnown> {
        let (_, v) = self.extra.iter().find(|(tag, _)| *tag == EXTRA_LIMITS)?;
        crate::decode_message(v).ok()
    }

    /// When the file was written last, if the sender says.
    pub fn written(&self) -> Option<Timestamp> {
        let (_, v) = self.extra.iter().find(|(tag, _)| *tag == EXTRA_WRITTEN)?;
        crate::decode_message(v).ok()
    }

    /// Whose file it is, if the sender says.
    pub fn file_owner(&self) -> Option<FileOwner> {
        let (_, v) = self.extra.iter().find(|(tag, _)| *tag == EXTRA_FILE_OWNER)?;
        crate::decode_message(v).ok()
    }
}

/// First part of each reply's body.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReplyContext {
    /// Every operation of this target with a transno up to this one is durable.
    pub last_committed: u64,
    /// Requests the client may have in flight from now on.
    pub credits: u16,
    pub extra: Vec<(u16, Vec<u8>)>,
}
