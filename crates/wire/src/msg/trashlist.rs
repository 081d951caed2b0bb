//! trashlist: what lies in the trash, the oldest first.

use model::{Attr, Fid, Layout, Timestamp};
use serde::{Deserialize, Serialize};

/// Root sees all of it, others what is theirs. `ENOTDIR` if `under` is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trashlist {
    /// What was removed below this directory.
    pub under: Fid,
    /// The place of the one before; `None`: from the beginning.
    pub after: Option<(Timestamp, Fid)>,
}

/// A file, symbolic link or directory in the trash.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trashed {
    /// As the metadata server knows it.
    pub attr: Attr,
    /// Of a regular file.
    pub layout: Option<Layout>,
    /// When it was removed, by the server's clock, and who did that.
    pub when: Timestamp,
    pub by: u32,
    /// Where it was.
    pub parent: Fid,
    pub name: Vec<u8>,
    /// The path of `parent` below the directory that was asked for, empty: itself. `None`: it is gone for
    /// good, or the caller could not find it by looking.
    pub way: Option<Vec<u8>>,
    /// Which of the directories on that way are in the trash themselves, the outermost first.
    pub removed: Vec<Fid>,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct TrashlistReply {
    pub files: Vec<Trashed>,
    /// Ask again with this; `None`: that was all.
    pub next: Option<(Timestamp, Fid)>,
}
message!(Trashlist, Trashlist, TrashlistReply);
