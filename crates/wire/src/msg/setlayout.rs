//! setlayout: `lfs setstripe` on a file without objects or on a directory (its default for new files).

use super::lookup::Entry;
use model::{Fid, LayoutSpec};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setlayout {
    pub fid: Fid,
    /// `None`: the directory's default is removed.
    pub spec: Option<LayoutSpec>,
}
message!(Setlayout, Setlayout, Entry);
