//! statfs: space and inodes of one target.

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Statfs {
    /// Reserved.
    pub flags: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StatfsReply {
    /// Bytes.
    pub total: u64,
    pub free: u64,
    pub available: u64,
    pub files: u64,
    pub files_free: u64,
    /// Bit letters of `lfs df`: 1 degraded, 2 read-only, 4 no-create, 8 no space, 16 no inodes.
    pub state: u32,
}
message!(Statfs, Statfs, StatfsReply);
