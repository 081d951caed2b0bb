//! open: keeps a file alive for a client until its close.

use super::create::OpenSpec;
use super::lookup::Entry;
use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Open {
    pub fid: Fid,
    pub open: OpenSpec,
}
message!(Open, Open, Entry, modifies = true);
