//! getpath: the names of a file, from its back-pointers (`lfs fid2path`).

use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Getpath {
    pub fid: Fid,
    /// Paths below this directory; files outside it give ENOENT.
    pub root: Fid,
    pub max_paths: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GetpathReply {
    /// Relative to `root`, without a leading slash; `/` for the root itself.
    pub paths: Vec<Vec<u8>>,
    /// (parent, name) of each link.
    pub links: Vec<(Fid, Vec<u8>)>,
}
message!(Getpath, Getpath, GetpathReply);
