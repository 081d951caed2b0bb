//! getlock: which lock would conflict (F_GETLK).

use super::enqueue::LockSpec;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Getlock {
    pub lock: LockSpec,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GetlockReply {
    pub conflict: Option<LockSpec>,
}
message!(Getlock, Getlock, GetlockReply);
