//! connect: the first message on a connection. Carried in frames of kind Connect and ConnectReply.

use serde::{Deserialize, Serialize};

/// Compat: knows nonces and [`super::notify::Notice::Proof`].
pub const FEATURE_PROOF: u64 = 1;
/// Compat: knows [`super::notify::Notice::ClientEvicted`].
pub const FEATURE_EVICTIONS: u64 = 2;
/// Compat: knows [`crate::frame::STATUS_LATER`].
pub const FEATURE_LATER: u64 = 4;
/// Compat: counts to directories with a quota ([`super::quotadir`]).
pub const FEATURE_DIRECTORIES: u64 = 8;
/// Compat: knows limits by pool ([`model::quota::LimitOrder::Pool`]).
pub const FEATURE_POOL_LIMITS: u64 = 16;
/// Feature bits this version knows.
pub const FEATURES_COMPAT: u64 =
    FEATURE_PROOF | FEATURE_EVICTIONS | FEATURE_LATER | FEATURE_DIRECTORIES | FEATURE_POOL_LIMITS;
/// Words for [`FEATURES_COMPAT`], as `import` of a session shows them.
pub const FEATURE_NAMES: [(u64, &str); 5] = [
    (FEATURE_PROOF, "proof"),
    (FEATURE_EVICTIONS, "evictions"),
    (FEATURE_LATER, "later"),
    (FEATURE_DIRECTORIES, "directories"),
    (FEATURE_POOL_LIMITS, "pool_limits"),
];
pub const FEATURES_INCOMPAT: u64 = 0;
/// What whoever connects, and whom this version connects to, must know. Builds that do not know it, v0.1.0
/// among them, ask for the size of an object without saying by which layout of its file (decision 0098).
pub const FEATURES_NEEDED: u64 = FEATURE_DIRECTORIES;
/// Slot of the session's own requests (reclaim, disconnect): callers use the others, so that a session can
/// always be recovered however many requests hang.
pub const SLOT_CONTROL: u16 = 0;
/// Slot number of requests that need none (ping).
pub const SLOT_NONE: u16 = crate::frame::NO_SLOT;
/// [`ConnectReply::extra`]: the highest xid in the client's slots, u64 little-endian. A client that just
/// started must number its requests above it (its clock may have gone backward).
pub const EXTRA_LAST_XID: u16 = 1;
/// [`ConnectReply::extra`]: most bytes of data that the target wants in one request, u64 little-endian. What
/// changes later comes as [`super::notify::Notify::BulkLimit`].
pub const EXTRA_BULK_BYTES: u16 = 2;
/// [`Connect::extra`]: the session number of the last ConnectReply that the client received, u64
/// little-endian. Shows the server whether the client heard that it had been evicted.
pub const EXTRA_LAST_SESSION: u16 = 2;
/// [`Connect::extra`]: u64 little-endian, not 0: this client keeps neither locks nor requests over a restart
/// of the target (a server that is a client of another): it is not waited for.
pub const EXTRA_KEEPS_NOTHING: u16 = 3;

/// [`ConnectReply::extra`]: most ranges that the target takes in one [`super::writelist`], u64 little-endian.
/// Without it the target does not know that message.
pub const EXTRA_WRITE_RANGES: u16 = 4;

/// [`ConnectReply::extra`], to clients with [`FEATURE_PROOF`]: 32 random bytes of this connection, over which
/// proofs are made ([`crate::proof::Challenge`]).
pub const EXTRA_NONCE: u16 = 5;
/// [`Connect::extra`]: 32 bytes that only this client knows ([`crate::proof::token`]). Whoever connects under
/// a `client_uuid` must show what its first connect showed.
pub const EXTRA_TOKEN: u16 = 5;

/// The 32 bytes that stand in `extra` under `tag`.
pub fn extra_key(extra: &[(u16, Vec<u8>)], tag: u16) -> Option<crate::proof::Key> {
    extra.iter().find(|(t, _)| *t == tag).and_then(|(_, v)| v.as_slice().try_into().ok())
}

/// [`ConnectReply::extra`]: the file system that the target lies on, u64 little-endian: targets that say the
/// same share one. Without it, or 0: not known.
pub const EXTRA_DISK: u16 = 6;

/// The value of a number that stands in `extra` under `tag`; 0 if there is none.
pub fn extra_number(extra: &[(u16, Vec<u8>)], tag: u16) -> u64 {
    let tlv = extra.iter().find(|(t, _)| *t == tag);
    tlv.and_then(|(_, v)| v.as_slice().try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Feature bits, after ext4's rules.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectFeatures {
    /// The peer need not know these.
    pub compat: u64,
    /// The peer must know these.
    pub incompat: u64,
}

impl ConnectFeatures {
    /// Those of this version.
    pub const OURS: ConnectFeatures =
        ConnectFeatures { compat: FEATURES_COMPAT, incompat: FEATURES_INCOMPAT };

    /// Words for what this version needs ([`FEATURES_NEEDED`]) and the peer that says this does not know.
    pub fn lacking(&self) -> Option<String> {
        let lacks = FEATURES_NEEDED & !self.compat;
        let words = FEATURE_NAMES.iter().filter(|(f, _)| lacks & f != 0).map(|(_, n)| *n);
        (lacks != 0).then(|| words.collect::<Vec<_>>().join(", "))
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Connect {
    /// Random, one per mount or per server process: under it the server keeps opens, locks and reply slots.
    pub client_uuid: [u8; 16],
    /// `nacre-client 0.1.0 on host`, for messages.
    pub client_name: String,
    pub fsname: String,
    pub version: u16,
    pub features: ConnectFeatures,
    /// This client was connected before: 0 for a first connect, otherwise the epoch it last saw.
    pub last_epoch: u32,
    /// Slots the client wants to use.
    pub slots: u16,
    /// 0: requests; 1: bulk (reserved).
    pub lane: u8,
    pub extra: Vec<(u16, Vec<u8>)>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectReply {
    /// Names this connection in every frame that follows.
    pub session: u64,
    pub epoch: u32,
    pub features: ConnectFeatures,
    pub slots: u16,
    /// The server does not know this client (any more): it was evicted, or it is new.
    pub new_client: bool,
    /// The server restarted since `last_epoch` and waits for [`super::reclaim`].
    pub recovering: bool,
    /// Ping when idle for so long; a client silent for six times this is evicted.
    pub ping_interval_ms: u32,
    pub server_name: String,
    pub extra: Vec<(u16, Vec<u8>)>,
}

/// Body of a ConnectReply frame whose status is not 0: why not, for a person.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectRefused {
    pub message: String,
}
