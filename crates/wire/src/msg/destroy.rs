//! destroy: removes objects of deleted files; leaves a tombstone until no session can resend an older
//! request.

use model::ObjectId;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Destroy {
    pub objects: Vec<ObjectId>,
}
message!(Destroy, Destroy, ());
