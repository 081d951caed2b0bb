//! read: bytes of an object. The reply's bulk holds them; fewer than asked for means the object's end.

use crate::checksum::ChecksumType;
use model::ObjectId;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Read {
    pub object: ObjectId,
    pub offset: u64,
    pub len: u32,
    /// Checksums that the reply shall have.
    pub checksum: ChecksumType,
    /// Extent lock under which the sender works; 0: the OST keeps others off meanwhile.
    pub lock: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReadReply {
    /// Bytes in the bulk.
    pub len: u32,
    /// Object size at the time of the read.
    pub object_size: u64,
    /// Checksums of the pieces that block boundaries (4 KiB of the object) make of the data. Of a piece that
    /// begins a block and reaches to its end, or to the object's, that of the whole block, zeros behind the
    /// object's end: with crc32c the one that was stored when it was written. Of other pieces that of their
    /// bytes.
    pub block_crcs: Vec<u32>,
}
message!(Read, Read, ReadReply);
