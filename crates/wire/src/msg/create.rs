//! create: a regular file, usually opened at once; with an empty name an unnamed file (O_TMPFILE).

use super::lookup::Entry;
use model::{Fid, LayoutSpec};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Create {
    pub parent: Fid,
    /// Empty: O_TMPFILE, the file is an orphan until it is linked or closed.
    pub name: Vec<u8>,
    /// Chosen by the client from its sequence, so that a create can be repeated.
    pub fid: Fid,
    /// Permission bits before the umask.
    pub mode: u32,
    pub umask: u32,
    /// O_EXCL: EEXIST if the name is there. Without it an existing file is opened.
    pub exclusive: bool,
    /// Keep the file open under this client-chosen handle.
    pub open: Option<OpenSpec>,
    /// `lfs setstripe`: overrides the inherited layout.
    pub layout: Option<LayoutSpec>,
    /// Do not instantiate objects (O_LOV_DELAY_CREATE).
    pub no_objects: bool,
}

/// How a file is to be opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenSpec {
    /// Unique among this client's open files, never reused.
    pub handle: u64,
    /// O_* flags of open(2).
    pub flags: u32,
    /// The client can have it open under its lease on the inode: if the answer grants one on a file with a
    /// name, the server does not note the open. The client says it before it gives the lease back
    /// ([`super::notify::Notice::Opened`]).
    pub lease: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CreateReply {
    /// False: the name was there and its file was opened.
    pub created: bool,
    pub entry: Entry,
}
message!(Create, Create, CreateReply);
