//! listxattr: the names of a file's extended attributes.

use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listxattr {
    pub fid: Fid,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListxattrReply {
    pub names: Vec<Vec<u8>>,
}
message!(Listxattr, Listxattr, ListxattrReply);
