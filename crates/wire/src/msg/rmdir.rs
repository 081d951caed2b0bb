//! rmdir: removes an empty directory.

use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rmdir {
    pub parent: Fid,
    pub name: Vec<u8>,
}
message!(Rmdir, Rmdir, super::unlink::Changed);
