//! migrate: a file's data moves to new objects, while the file is in use.

use super::lookup::Entry;
use model::{Fid, LayoutSpec};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Migrate {
    pub fid: Fid,
    /// What the new objects are to be like; what it does not say is as with a new file of the file system.
    pub spec: LayoutSpec,
    /// The client's number of this movement, by which it withdraws it ([`super::withdraw`]).
    pub ticket: u64,
    pub pace: Pace,
}
message!(Migrate, Migrate, Entry);

/// How a movement gives way to others.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Pace {
    /// It ends with `EBUSY` where users of the file would wait for a copy.
    pub non_block: bool,
    /// Bytes that it copies in a second, at most, while nobody waits for it; 0: no bound of its own.
    pub bandwidth_bytes: u64,
}
