//! getxattr: one extended attribute, ACLs included.

use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Getxattr {
    pub fid: Fid,
    pub name: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GetxattrReply {
    pub value: Vec<u8>,
}
message!(Getxattr, Getxattr, GetxattrReply, modifies = false);
