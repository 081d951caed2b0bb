//! changelogclear: a consumer needs records up to one no more (`lfs changelog_clear`).

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Changelogclear {
    /// Its label.
    pub consumer: String,
    /// The last record that it needs no more; 0: all up to now.
    pub end: u64,
}
message!(Changelogclear, Changelogclear, ());
