//! fence: no request by an older layout changes or reads an object any more. Answered when nobody else has a
//! lock on the object, everything that was kept under those is there, and the fence is durable.
//!
//! Metadata targets send it before they move a file's data (decision 0054), and to give the objects that the
//! data was copied to the times of those that it was copied from.

use model::{Fid, ObjectAttr, ObjectId, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fence {
    pub object: ObjectId,
    /// The file that it belongs to.
    pub file: Fid,
    /// Requests by layouts older than this are refused from now on (`ERELAYOUT`).
    pub generation: u32,
    /// The object gets exactly these, (mtime, ctime).
    pub times: Option<(Timestamp, Timestamp)>,
}
message!(Fence, Fence, ObjectAttr);
