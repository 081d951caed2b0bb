//! symlink: a symbolic link.

use super::lookup::Entry;
use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Symlink {
    pub parent: Fid,
    pub name: Vec<u8>,
    pub fid: Fid,
    pub target: Vec<u8>,
}
message!(Symlink, Symlink, Entry);
