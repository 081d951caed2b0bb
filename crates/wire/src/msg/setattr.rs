//! setattr: modes, owners, times, and the metadata side of a truncate.

use super::lookup::Entry;
use model::{Fid, SetAttr};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setattr {
    pub fid: Fid,
    pub set: SetAttr,
}
message!(Setattr, Setattr, Entry);
