//! seek: the next data or hole in an object.

use model::ObjectId;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Whence {
    Data,
    Hole,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seek {
    pub object: ObjectId,
    pub offset: u64,
    pub whence: Whence,
    /// Extent lock under which the sender works; 0: the OST keeps others off meanwhile.
    pub lock: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SeekReply {
    /// `None`: no data (hole) from there on within the object; for holes the object's end counts as one.
    pub offset: Option<u64>,
    pub object_size: u64,
}
message!(Seek, Seek, SeekReply);
