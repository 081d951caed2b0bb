//! own: the exclusive lease on a directory, and the names in it.
//!
//! Who has it, and knows all names, executes changes in the directory without asking and tells the server
//! later, in batches ([`super::batch`]): nobody else can look at the directory, or at an inode that is held
//! in the same way, without asking for the lease back first.

use super::lookup::{Entry, Grant};
use super::readdir::Dirent;
use crate::trailing::Trailing;
use model::{Fid, Layout};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Own {
    pub dir: Fid,
    /// Names with a larger cookie are returned; 0 starts.
    pub cookie: u64,
    /// Bound on the names' and entries' bytes together; 0: no names are wanted.
    pub max_bytes: u32,
    /// With the inodes, and exclusive leases on them.
    pub children: bool,
    /// The client does as [`OwnReply::limited`] says.
    pub knows_limits: Trailing<bool>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OwnReply {
    /// The directory. Its grant is exclusive, or the lease cannot be had now and the rest is empty.
    pub dir: Entry,
    pub entries: Vec<Dirent>,
    /// There are no names behind these.
    pub end: bool,
    /// What a new file gets that asks for nothing special, in this directory or in new ones below it: if its
    /// data lies with the inode. `None`: it gets objects, which the server chooses.
    pub file_layout: Option<Layout>,
    /// A lease on [`Fid::DEFAULTS`]: for as long as the client has it, no setting of the file system changes
    /// `file_layout`. (Settings of the directory are covered by the lease on it.)
    pub defaults: Option<Grant>,
    /// Some owners may have so many inodes only: nobody but root makes a file in this directory, or in new
    /// ones below it, without asking, that would be counted to a user, group or project to whom the directory
    /// is not. Holds as long as the lease on the directory does.
    pub limited: Trailing<bool>,
}
message!(Own, Own, OwnReply);
