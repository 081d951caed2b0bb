//! swap: two files have each other's data from now on, and keep all else.

use super::lookup::Entry;
use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Swap {
    /// The file that the answer shows.
    pub fid: Fid,
    pub other: Fid,
    /// The files were not changed, only what they are called: mtime stays.
    pub keep_times: bool,
}
message!(Swap, Swap, Entry);
