//! glimpselist: as glimpse, of many objects of many files, each answered by itself; nobody is asked who may
//! keep changes of one (`lfs find`, `nacre report`).

use model::{Errno, ObjectAttr, ObjectId};
use serde::{Deserialize, Serialize};

/// Objects of one request.
pub const GLIMPSES_MAX: usize = 2048;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Glimpselist {
    /// Each with the generation of the layout by which it is asked for; that of the context says nothing.
    pub objects: Vec<(ObjectId, u32)>,
    /// Whether blocks must be as a glimpse tells them. If not, those of an object in a file of its own may be
    /// as they were when it was changed last, before its disk gave it all of its space.
    pub space: bool,
}

/// What is said of one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Glimpsed {
    /// No other client keeps changes of it.
    Attr(ObjectAttr),
    /// Another client may keep changes of it: a glimpse asks that one.
    Locked,
    /// As a glimpse of this object alone would fail: `ESTALE` if it was destroyed, `ERELAYOUT`, `ELOST`.
    Failed(Errno),
}

/// In the order of the request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GlimpselistReply {
    pub objects: Vec<Glimpsed>,
}
message!(Glimpselist, Glimpselist, GlimpselistReply);
