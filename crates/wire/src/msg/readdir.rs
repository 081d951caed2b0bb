//! readdir: a page of a directory, in the order of its cookies.

use super::lookup::{Entry, Grant};
use crate::trailing::Trailing;
use model::{Fid, FileType, LayoutSpec};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Readdir {
    pub fid: Fid,
    /// Entries with a larger cookie are returned; 0 starts. `.` and `..` are the client's business.
    pub cookie: u64,
    /// Bound on the names' and entries' bytes together.
    pub max_bytes: u32,
    /// With attributes.
    pub plus: bool,
    /// And with what files are to get that outgrow their inodes.
    pub grows_into: Trailing<bool>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Dirent {
    /// Positive, below 2^63, stable while the entry exists.
    pub cookie: u64,
    pub fid: Fid,
    pub kind: FileType,
    pub name: Vec<u8>,
    pub entry: Option<Entry>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReaddirReply {
    pub entries: Vec<Dirent>,
    pub parent: Fid,
    pub end: bool,
    /// A lease on the directory's entries.
    pub grant: Option<Grant>,
    /// `None` if it was not asked for, or the server does not know the question.
    pub grows_into: Trailing<GrowsInto>,
}

/// What files of a page are to get that outgrow their inodes. Most files of a directory get the same.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct GrowsInto {
    /// Each once.
    pub specs: Vec<LayoutSpec>,
    /// The place of an entry on the page, and that of its spec; of files that have one, in their order.
    pub of: Vec<(u32, u32)>,
}
message!(Readdir, Readdir, ReaddirReply);
