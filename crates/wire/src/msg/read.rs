//! read: bytes of an object. The reply's bulk holds them; fewer than asked for means the object's end.

use model::ObjectId;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Read {
    pub object: ObjectId,
    pub offset: u64,
    pub len: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReadReply {
    /// Bytes in the bulk.
    pub len: u32,
    /// Object size at the time of the read.
    pub object_size: u64,
    /// crc32c of each 4 KiB block; empty until checksums are stored at rest.
    pub block_crcs: Vec<u32>,
}
message!(Read, Read, ReadReply, modifies = false);
