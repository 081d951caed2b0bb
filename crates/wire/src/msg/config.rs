//! config: the targets and parameters of a file system.

use model::{Nid, Pool, TargetId};
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
/// [`ConfigReply::extra`], once for each OST pool: [`Pool::encode`].
pub const EXTRA_POOL: u16 = 2;
/// [`ConfigReply::extra`], once for each target that was taken out for good and whose index nobody has now:
/// its number, little-endian.
pub const EXTRA_RETIRED: u16 = 3;

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

impl ConfigReply {
    /// The file system's OST pools, by name. What is none is passed over.
    pub fn pools(&self) -> Vec<Pool> {
        let pools = self.extra.iter().filter(|(tag, _)| *tag == EXTRA_POOL);
        let mut all: Vec<Pool> = pools.filter_map(|(_, bytes)| Pool::decode(bytes)).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.dedup_by(|a, b| a.name == b.name);
        all
    }

    /// Whether a target was taken out of the file system for good. One that is merely missing may come back:
    /// an MGS that lost its memory learns of one after the other.
    pub fn is_retired(&self, target: TargetId) -> bool {
        let number = target.to_u32().to_le_bytes();
        self.extra.iter().any(|(tag, bytes)| *tag == EXTRA_RETIRED && **bytes == number)
            && !self.targets.iter().any(|t| t.target == target)
    }
}
message!(Config, Config, ConfigReply);
