//! open: keeps a file alive for a client until its close.

use super::create::OpenSpec;
use super::lookup::Entry;
use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Open {
    pub fid: Fid,
    pub open: OpenSpec,
    /// Its data is to come along if it lies with its inode and is no more than so many bytes.
    pub data: u32,
}
message!(Open, Open, Entry);
