//! write: bytes into an object, from the request's bulk.

use super::lookup::Entry;
use model::{Fid, ObjectAttr, ObjectId};

use crate::checksum::ChecksumType;
use crate::trailing::Trailing;
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
    /// Checksums of the pieces that block boundaries (4 KiB of the object; for appends, of the data) make of
    /// the data. Empty with [`ChecksumType::None`]. `EBADMSG`: they differ from what arrived; nothing was
    /// done.
    pub block_crcs: Vec<u32>,
    /// How they were made.
    pub checksum: ChecksumType,
    /// Extent lock under which the sender writes; 0: the OST keeps others off meanwhile.
    pub lock: u64,
    /// The space was promised to the sender ([`super::grant`]).
    pub granted: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WriteReply {
    /// Object offset that was written.
    pub offset: u64,
    pub attr: ObjectAttr,
    /// Of data that lies with its inode: the file as it is now, with a lease perhaps.
    pub entry: Option<Box<Entry>>,
    /// From object targets, if somebody is limited there: so many bytes for this owner a client may keep at a
    /// time, of all that it has not written to the target.
    pub may_keep: Trailing<u64>,
}
message!(Write, Write, WriteReply);
