//! mkdir: a directory.

use super::lookup::Entry;
use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mkdir {
    pub parent: Fid,
    pub name: Vec<u8>,
    pub fid: Fid,
    pub mode: u32,
    pub umask: u32,
}
message!(Mkdir, Mkdir, Entry);
