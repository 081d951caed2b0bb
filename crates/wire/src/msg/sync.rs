//! sync: everything acknowledged so far becomes durable (of one object, or of the target).

use model::ObjectId;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sync {
    pub object: Option<ObjectId>,
}
message!(Sync, Sync, ());
