//! glimpse: size, blocks and times of objects. Objects that were never written are empty. The generation in
//! the context is that of the layouts of all of them.

use model::{ObjectAttr, ObjectId};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Glimpse {
    pub objects: Vec<ObjectId>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GlimpseReply {
    pub attrs: Vec<ObjectAttr>,
}
message!(Glimpse, Glimpse, GlimpseReply);
