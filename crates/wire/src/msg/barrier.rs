//! barrier: what the administrator of the MGS's host wants of a metadata target's write barrier, asked by
//! the daemon there (decision 0088).

use model::barrier::{BarrierOrder, BarrierStanding};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Barrier {
    pub order: BarrierOrder,
}

/// How it stands then, or an errno and words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BarrierReply {
    pub said: Result<BarrierStanding, (i32, String)>,
}
message!(Barrier, Barrier, BarrierReply);
