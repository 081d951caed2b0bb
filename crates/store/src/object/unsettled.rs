//! Which objects are to be looked at by `allocated`.

use model::ObjectId;
use std::collections::BTreeSet;

/// Objects that are remembered; of more, all are to be looked at.
const UNSETTLED_MAX: usize = 1 << 16;

/// Objects whose files may have other blocks than their records say.
#[derive(Default)]
pub(crate) struct Unsettled {
    pub ids: BTreeSet<ObjectId>,
    /// Too many to be remembered, or nobody knows which: until all were looked at.
    pub all: bool,
    /// So it is since that began, too.
    pub again: bool,
}

impl Unsettled {
    pub fn add(&mut self, id: ObjectId) {
        if self.ids.len() < UNSETTLED_MAX {
            self.ids.insert(id);
        } else {
            (self.all, self.again) = (true, true);
        }
    }

    pub fn is_nothing(&self) -> bool {
        self.ids.is_empty() && !self.all
    }
}
