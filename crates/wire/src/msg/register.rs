//! register: a target makes itself known to the MGS, at each start.

use model::{Nid, TargetId};
use serde::{Deserialize, Serialize};

/// In the request's context: the target's key, 32 bytes, for an MGS that does not know it yet and said so
/// (`ENOKEY`).
pub const EXTRA_TARGET_KEY: u16 = 1;
/// In the request's context: the failure domain that the target was placed in ([`model::domain::text`]),
/// empty if nobody placed it. Who says nothing is older and knows no domains: what is known stays.
pub const EXTRA_DOMAIN: u16 = 2;

/// In the request's context, without a value: the target has no index yet
/// ([`model::target::INDEX_UNASSIGNED`]) and takes the next free one of its kind, or the one that it was
/// given before and did not hear of. The answer's configuration has it. An older MGS refuses the index.
pub const EXTRA_NEXT_INDEX: u16 = 3;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Register {
    pub fsname: String,
    pub target: TargetId,
    /// UUID of the file system as the target's label has it; zero before the first registration.
    pub fs_uuid: [u8; 16],
    pub target_uuid: [u8; 16],
    /// NIDs on which this target answers now.
    pub nids: Vec<Nid>,
    /// Grows with each start.
    pub epoch: u32,
    pub first_time: bool,
    /// Takes the index of a lost target.
    pub replace: bool,
    pub params: Vec<(String, String)>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RegisterReply {
    pub fs_uuid: [u8; 16],
    pub config: super::config::ConfigReply,
}
message!(Register, Register, RegisterReply);
