//! mknod: a device node, FIFO, socket, or an unopened regular file.

use super::lookup::Entry;
use model::{Fid, FileType};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mknod {
    pub parent: Fid,
    pub name: Vec<u8>,
    pub fid: Fid,
    pub kind: FileType,
    pub mode: u32,
    pub umask: u32,
    pub rdev: u64,
}
message!(Mknod, Mknod, Entry);
