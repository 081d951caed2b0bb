//! unlink: removes a name that is no directory.

use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unlink {
    pub parent: Fid,
    pub name: Vec<u8>,
}
message!(Unlink, Unlink, (), modifies = true);
