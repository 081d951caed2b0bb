//! On whose behalf a request is made.

use serde::{Deserialize, Serialize};

/// Identity of the caller, taken from the kernel by the client and checked again by the server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Cred {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups; bounded by [`crate::limits::GROUPS_MAX`].
    pub groups: Vec<u32>,
}

impl Cred {
    pub fn root() -> Cred {
        Cred::default()
    }

    pub fn new(uid: u32, gid: u32) -> Cred {
        Cred { uid, gid, groups: Vec::new() }
    }

    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
