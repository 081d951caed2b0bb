//! close: the end of an open. Unknown handles are no error (an interrupted open may never have been).

use super::lookup::Entry;
use model::{Fid, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Close {
    pub fid: Fid,
    pub handle: u64,
    /// relatime: the last read through this handle, if it is to be stored; also with a handle that the server
    /// never knew, because it was open under a lease.
    pub atime: Option<Timestamp>,
}

/// The file as it is after an access time was stored, if its close did not end it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CloseReply {
    pub entry: Option<Box<Entry>>,
}
message!(Close, Close, CloseReply);
