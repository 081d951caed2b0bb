//! Names of targets.

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum TargetKind {
    Mgt,
    Mdt,
    Ost,
}

/// One target of a file system; prints as `MGT0000`, `MDT0000`, `OST001a`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TargetId {
    pub kind: TargetKind,
    pub index: u16,
}

/// Index of a target that has none yet: the MGS gives it the next free one when it registers first.
pub const INDEX_UNASSIGNED: u16 = 0xffff;

impl TargetId {
    pub const MGT: TargetId = TargetId { kind: TargetKind::Mgt, index: 0 };

    pub const fn mdt(index: u16) -> TargetId {
        TargetId { kind: TargetKind::Mdt, index }
    }

    pub const fn ost(index: u16) -> TargetId {
        TargetId { kind: TargetKind::Ost, index }
    }

    pub fn is_assigned(self) -> bool {
        self.index != INDEX_UNASSIGNED
    }

    /// As one number in the message header: kind in the high half.
    pub fn to_u32(self) -> u32 {
        let k = match self.kind {
            TargetKind::Mgt => 1u32,
            TargetKind::Mdt => 2,
            TargetKind::Ost => 3,
        };
        k << 16 | u32::from(self.index)
    }

    pub fn from_u32(n: u32) -> Option<TargetId> {
        let kind = match n >> 16 {
            1 => TargetKind::Mgt,
            2 => TargetKind::Mdt,
            3 => TargetKind::Ost,
            _ => return None,
        };
        Some(TargetId { kind, index: (n & 0xffff) as u16 })
    }

    /// The label with the file system's name: `fsname-OST0000`; the MGT's is `MGS`.
    pub fn label(self, fsname: &str) -> String {
        match self.kind {
            TargetKind::Mgt => "MGS".to_string(),
            _ => format!("{fsname}-{self}"),
        }
    }
}

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let k = match self.kind {
            TargetKind::Mgt => "MGT",
            TargetKind::Mdt => "MDT",
            TargetKind::Ost => "OST",
        };
        write!(f, "{k}{:04x}", self.index)
    }
}

/// Whether `name` may name a file system: 1–8 of `[A-Za-z0-9_-]`.
pub fn fsname_is_valid(name: &str) -> bool {
    (1..=crate::limits::FSNAME_MAX_BYTES).contains(&name.len())
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'-')
}
