//! setowner: files have other owners, to whom their objects are counted from now on. Metadata targets send it
//! from their outbox after a chown, chgrp or change of project.

use model::nodemap::Owner;
use model::{Fid, ObjectId, Timestamp};
use serde::{Deserialize, Serialize};

/// The owner of a file, and some of its objects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OwnerOf {
    pub file: Fid,
    pub owner: Owner,
    /// The inode's ctime, which grows with each change of the owner: what was said of an earlier moment does
    /// not count.
    pub as_of: Timestamp,
    pub objects: Vec<ObjectId>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setowner {
    pub files: Vec<OwnerOf>,
}
message!(Setowner, Setowner, ());
