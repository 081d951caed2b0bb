//! grow: a file whose data lies with its inode gets objects, and its data moves there.

use super::lookup::Entry;
use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grow {
    /// Answered with the file as it is if it has objects already.
    pub fid: Fid,
}
message!(Grow, Grow, Entry);
