//! objectlist: what an object target has, a page at a time, for a metadata target that compares it with its
//! layouts (`lctl lfsck_start`, decision 0080). Nothing is changed, and no client's lock is asked for.

use crate::trailing::Trailing;
use model::nodemap::Owner;
use model::{Fid, ObjectId};
use serde::{Deserialize, Serialize};

/// Objects of one answer.
pub const OBJECTS_MAX: u32 = 1024;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Objectlist {
    /// The last object of the page before; `None`: from the beginning.
    pub after: Option<ObjectId>,
    /// At most so many, and at most [`OBJECTS_MAX`].
    pub limit: u32,
    /// These and no others, if there are any: `after` says nothing then.
    pub only: Vec<ObjectId>,
    /// Their labels are asked for as well.
    pub labels: Trailing<bool>,
}

/// An object, by its label.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedObject {
    pub id: ObjectId,
    /// Whose it is; NONE if the label does not say it.
    pub file: Fid,
    pub owner: Owner,
    /// The directory with a quota that it is counted to; 0: none.
    pub directory: u32,
    pub size: u64,
    /// The layout by which it was reached last.
    pub generation: u32,
    /// It was destroyed, and all that is left is the note of that.
    pub destroyed: bool,
}

impl ListedObject {
    /// To whom it is counted.
    pub fn counted_to(&self) -> Owner {
        Owner { directory: self.directory, ..self.owner }
    }
}

/// In the order of their ids.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ObjectlistReply {
    pub objects: Vec<ListedObject>,
    /// Where the next page goes on; `None`: there are no more.
    pub next: Option<ObjectId>,
    /// Of those that have one, if that was asked for: the place in `objects`, and what the object knows of
    /// its component ([`model::layout::ObjectLabel`], encoded).
    pub labels: Trailing<Vec<(u32, Vec<u8>)>>,
}
message!(Objectlist, Objectlist, ObjectlistReply);
