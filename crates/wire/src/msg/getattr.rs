//! getattr: a file by FID.

use super::lookup::Entry;
use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Getattr {
    pub fid: Fid,
}
message!(Getattr, Getattr, Entry);
