//! truncate: sets an object's size.

use model::{Fid, ObjectAttr, ObjectId, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Truncate {
    pub object: ObjectId,
    pub size: u64,
    pub file: Fid,
    pub inode_ctime: Timestamp,
    /// Do not stamp times (the metadata server's setattr did).
    pub keep_times: bool,
    /// Extent lock under which the sender works; 0: the OST keeps others off meanwhile.
    pub lock: u64,
}
message!(Truncate, Truncate, ObjectAttr);
