//! fallocate: reserves, zeroes or punches a range of an object.

use model::{Fid, ObjectAttr, ObjectId, Timestamp};
use serde::{Deserialize, Serialize};

pub const FALLOC_KEEP_SIZE: u32 = 0x01;
pub const FALLOC_PUNCH_HOLE: u32 = 0x02;
pub const FALLOC_ZERO_RANGE: u32 = 0x10;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fallocate {
    pub object: ObjectId,
    /// `FALLOC_*` bits of fallocate(2).
    pub mode: u32,
    pub offset: u64,
    pub len: u64,
    pub file: Fid,
    pub inode_ctime: Timestamp,
    /// Extent lock under which the sender works; 0: the OST keeps others off meanwhile.
    pub lock: u64,
}
message!(Fallocate, Fallocate, ObjectAttr);
