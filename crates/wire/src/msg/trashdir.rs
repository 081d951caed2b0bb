//! trashdir: what loses its last name in a directory goes into the trash from now on, or does not any more.

use model::Fid;
use serde::{Deserialize, Serialize};

/// `ENOTDIR`; `EPERM` for whoever is neither the directory's owner nor root.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trashdir {
    pub fid: Fid,
    pub on: bool,
}
message!(Trashdir, Trashdir, ());
