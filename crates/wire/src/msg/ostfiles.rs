//! ostfiles: the files that have objects on an OST, with their names, from the reverse index (`lfs find
//! --ost`).

use model::{Fid, ObjectId};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ostfiles {
    pub ost: u16,
    /// Objects behind this one.
    pub after: Option<ObjectId>,
    /// Paths below this directory; files outside it are left out.
    pub root: Fid,
}

/// Some of the files, once for each run of neighbouring objects that they have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OstfilesReply {
    /// Paths relative to `root`, without a leading slash. A file of many names may have some of them only.
    pub files: Vec<(Fid, Vec<Vec<u8>>)>,
    /// Ask again with this; `None`: that was all.
    pub next: Option<ObjectId>,
}
message!(Ostfiles, Ostfiles, OstfilesReply);
