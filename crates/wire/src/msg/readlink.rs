//! readlink: the target of a symbolic link.

use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Readlink {
    pub fid: Fid,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReadlinkReply {
    pub target: Vec<u8>,
}
message!(Readlink, Readlink, ReadlinkReply);
