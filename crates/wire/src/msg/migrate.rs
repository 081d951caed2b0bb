//! migrate: a file's data moves to new objects, while the file is in use.

use super::lookup::Entry;
use model::{Fid, LayoutSpec};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Migrate {
    pub fid: Fid,
    /// What the new objects are to be like; what it does not say is as with a new file of the file system.
    pub spec: LayoutSpec,
}
message!(Migrate, Migrate, Entry);
