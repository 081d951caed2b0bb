//! readdir: a page of a directory, in the order of its cookies.

use super::lookup::{Entry, Grant};
use model::{Fid, FileType};
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
}
message!(Readdir, Readdir, ReaddirReply);
