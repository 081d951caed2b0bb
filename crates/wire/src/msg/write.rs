//! write: bytes into an object, from the request's bulk.

use model::{Fid, ObjectAttr, ObjectId};

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Write {
    pub object: ObjectId,
    /// Object offset; ignored with `append`.
    pub offset: u64,
    /// At the object's end, whatever it is by then (files of one stripe).
    pub append: bool,
    /// The file, for back-pointers from objects to files.
    pub file: Fid,
    /// Owner to charge.
    pub uid: u32,
    pub gid: u32,
    pub projid: u32,
    /// ctime of the inode as the client knows it: the write's must be later.
    pub inode_ctime: model::Timestamp,
    /// crc32c of each 4 KiB block; empty until checksums are stored at rest.
    pub block_crcs: Vec<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WriteReply {
    /// Object offset that was written.
    pub offset: u64,
    pub attr: ObjectAttr,
}
message!(Write, Write, WriteReply, modifies = true);
