//! unlink: removes a name that is no directory.

use super::lookup::Entry;
use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unlink {
    pub parent: Fid,
    pub name: Vec<u8>,
}

/// The files that an operation on names changed, as they are now; also of rmdir and rename.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Changed {
    pub entries: Vec<Entry>,
    /// Those that are no more.
    pub gone: Vec<Fid>,
}
message!(Unlink, Unlink, Changed);
