//! removexattr: drops one extended attribute.

use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Removexattr {
    pub fid: Fid,
    pub name: Vec<u8>,
}
message!(Removexattr, Removexattr, ());
