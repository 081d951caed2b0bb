//! setxattr: sets one extended attribute; setting an access ACL also sets the mode.

use model::Fid;
use serde::{Deserialize, Serialize};

pub const XATTR_CREATE: u32 = 1;
pub const XATTR_REPLACE: u32 = 2;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setxattr {
    pub fid: Fid,
    pub name: Vec<u8>,
    pub value: Vec<u8>,
    /// `XATTR_*`.
    pub flags: u32,
    /// An ACL is set by a caller that is not in the file's group: drop set-gid.
    pub kill_sgid: bool,
}
message!(Setxattr, Setxattr, ());
