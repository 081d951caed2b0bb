//! lookup: a name in a directory.

use model::{Attr, Fid, Layout};
use serde::{Deserialize, Serialize};

/// A file as the metadata server knows it: what lookup, getattr, create and their kin return.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub attr: Attr,
    /// Of regular files with objects.
    pub layout: Option<Layout>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lookup {
    pub parent: Fid,
    /// `..` names the parent of a directory; an empty name the directory itself.
    pub name: Vec<u8>,
}
message!(Lookup, Lookup, Entry, modifies = false);
