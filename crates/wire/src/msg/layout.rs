//! layout: a file's layout after an object server refused the one that its client has. While the file's data
//! is being moved the answer waits for the end of that.

use super::lookup::Entry;
use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Layout {
    pub fid: Fid,
}
message!(Layout, Layout, Entry);
