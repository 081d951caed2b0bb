//! trashtake: files get out of the trash: back to a directory, or for good.

use model::Fid;
use serde::{Deserialize, Serialize};

/// Files in one message.
pub const FILES_MAX: usize = 128;

/// Where a file goes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Takeout {
    /// To its old name in its old directory.
    Back,
    /// To this name in this directory.
    To(Fid, Vec<u8>),
    /// It is removed for good.
    Gone,
}

/// `E2BIG` for more than [`FILES_MAX`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trashtake {
    pub files: Vec<(Fid, Takeout)>,
}

/// Of each file 0, or why it stays: `ENOENT` it is not in the trash, `EPERM` it is somebody else's, `ESTALE`
/// its directory is not there, `EEXIST` the name is taken, `EACCES` the caller may not write the directory,
/// `EDQUOT`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TrashtakeReply {
    pub results: Vec<u16>,
}
message!(Trashtake, Trashtake, TrashtakeReply);
