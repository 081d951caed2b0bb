//! recreate: objects of a file that are lost with an OST become new, empty ones on others, as an
//! administrator says: what lay in them reads as a hole from then on.

use super::lookup::Entry;
use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recreate {
    pub fid: Fid,
    /// Index of the OST that is gone: deactivated, taken out of the configuration, or replaced by another.
    pub ost: u16,
}
message!(Recreate, Recreate, Entry);
