//! getxattr: one extended attribute, ACLs included.

use model::Fid;
use serde::{Deserialize, Serialize};

/// Not an extended attribute but asked for like one: the default layout of a directory (of the root: the
/// file system's), or what a regular file is to get when it outgrows its inode; a postcard-encoded
/// [`model::LayoutSpec`]. `ENODATA` for a directory without one of its own, and for a file with objects.
pub const DEFAULT_LAYOUT: &[u8] = b"nacre.default_layout";

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Getxattr {
    pub fid: Fid,
    pub name: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GetxattrReply {
    pub value: Vec<u8>,
}
message!(Getxattr, Getxattr, GetxattrReply);
