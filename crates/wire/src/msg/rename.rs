//! rename: moves a name, with NOREPLACE and EXCHANGE.

use model::Fid;
use serde::{Deserialize, Serialize};

pub const RENAME_NOREPLACE: u32 = 1;
pub const RENAME_EXCHANGE: u32 = 2;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rename {
    pub parent: Fid,
    pub name: Vec<u8>,
    pub new_parent: Fid,
    pub new_name: Vec<u8>,
    /// `RENAME_*` bits of renameat2(2).
    pub flags: u32,
}
message!(Rename, Rename, super::unlink::Changed);
