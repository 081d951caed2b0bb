//! config: the targets and parameters of a file system.

use model::{Nid, TargetId};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Config {
    pub fsname: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetEntry {
    pub target: TargetId,
    pub target_uuid: [u8; 16],
    pub nids: Vec<Nid>,
    pub epoch: u32,
    /// `lctl deactivate` and `del_ost` clear it.
    pub active: bool,
    /// Failure domains, outermost first; empty until placed.
    pub domains: Vec<String>,
}

/// [`ConfigReply::extra`], only in the answer to a target that proved its key: the 32 bytes by which servers
/// of the file system know each other ([`crate::proof::Claimant::Server`]).
pub const EXTRA_SERVER_KEY: u16 = 1;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConfigReply {
    /// Grows with each change.
    pub version: u64,
    pub fsname: String,
    pub fs_uuid: [u8; 16],
    pub targets: Vec<TargetEntry>,
    /// Permanent parameters (`set_param -P`).
    pub params: Vec<(String, String)>,
    pub extra: Vec<(u16, Vec<u8>)>,
}
message!(Config, Config, ConfigReply);
