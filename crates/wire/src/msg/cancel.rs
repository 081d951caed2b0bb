//! cancel: gives locks back, or stops waiting for one.

use super::enqueue::LockKind;
use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cancel {
    pub fid: Fid,
    pub what: CancelWhat,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CancelWhat {
    /// The lock with this id, waiting or granted.
    Id(u64),
    /// A range of an owner's POSIX locks or its flock: may split what it has.
    Range { kind: LockKind, owner: u64, start: u64, end: u64 },
}
message!(Cancel, Cancel, ());
