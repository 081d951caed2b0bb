//! statfs: space and inodes of one target.

use serde::{Deserialize, Serialize};

/// Bits of [`StatfsReply::state`], the letters of `lfs df`.
pub mod state {
    pub const DEGRADED: u32 = 1;
    /// It stopped after an error of its disk.
    pub const READ_ONLY: u32 = 2;
    pub const NO_CREATE: u32 = 4;
    pub const NO_SPACE: u32 = 8;
    pub const NO_INODES: u32 = 16;
}

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
    /// Bits of [`state`].
    pub state: u32,
}
message!(Statfs, Statfs, StatfsReply);
