//! instantiate: the components of a file that hold a byte of a range get their objects, as somebody is about
//! to write there.

use super::lookup::Entry;
use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Instantiate {
    pub fid: Fid,
    /// Bytes of the file, `start..end`.
    pub start: u64,
    pub end: u64,
}
message!(Instantiate, Instantiate, Entry);
