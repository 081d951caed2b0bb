//! fetch: files by FID with their data, as far as that lies with their inodes. The reply's bulk holds it
//! ([`Entry::content`] says which bytes are whose).

use super::lookup::Entry;
use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fetch {
    /// At most [`model::limits::FETCH_FILES_MAX`].
    pub fids: Vec<Fid>,
    /// Data of a file that is larger than this does not come.
    pub data: u32,
    /// About so much data in all; that of the first file comes in any case.
    pub max_bytes: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FetchReply {
    /// In the order of the request, as many as there was room for, at least one; `None` for a file that is no
    /// more.
    pub entries: Vec<Option<Entry>>,
}
message!(Fetch, Fetch, FetchReply);
