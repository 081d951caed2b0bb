//! link: one more name for a file, also for an open unnamed one.

use super::lookup::Entry;
use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Link {
    pub fid: Fid,
    pub parent: Fid,
    pub name: Vec<u8>,
}
message!(Link, Link, Entry);
