//! setowner: files have other owners, to whom their objects are counted from now on. Metadata targets send it
//! from their outbox after a chown, chgrp, change of project or rename into
//! another directory with a quota.

use crate::trailing::Trailing;
use model::nodemap::Owner;
use model::{Fid, ObjectId, Timestamp};
use serde::{Deserialize, Serialize};

/// The owner of a file, and some of its objects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OwnerOf {
    pub file: Fid,
    owner: Owner,
    /// The inode's ctime, which grows with each change of the owner: what was said of an earlier moment does
    /// not count.
    pub as_of: Timestamp,
    pub objects: Vec<ObjectId>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setowner {
    files: Vec<OwnerOf>,
    /// Of each file the directory with a quota that it is counted to; where it is left out: none.
    directories: Trailing<Vec<u32>>,
}

impl OwnerOf {
    pub fn new(file: Fid, owner: Owner, as_of: Timestamp, objects: Vec<ObjectId>) -> OwnerOf {
        OwnerOf { file, owner, as_of, objects }
    }

    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// As it was decoded, with what its owner does not say of itself.
    pub fn in_directory(mut self, directory: u32) -> OwnerOf {
        self.owner.directory = directory;
        self
    }
}

impl Setowner {
    pub fn new(files: Vec<OwnerOf>) -> Setowner {
        let directories: Vec<u32> = files.iter().map(|f| f.owner.directory).collect();
        let any = directories.iter().any(|d| *d != 0);
        Setowner { files, directories: Trailing(any.then_some(directories)) }
    }

    /// The files with their owners.
    pub fn into_files(self) -> Vec<OwnerOf> {
        let mut directories = self.directories.0.unwrap_or_default();
        directories.resize(self.files.len(), 0);
        assert_eq!(directories.len(), self.files.len(), "each file has its directory");
        self.files.into_iter().zip(directories).map(|(f, d)| f.in_directory(d)).collect()
    }
}
message!(Setowner, Setowner, ());
