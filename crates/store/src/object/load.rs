//! Records of objects are read from the table.

use super::location::{self, ObjectRecord};
use crate::{Db, Lsn, StoreError, View};
use model::{Errno, ObjectId};
use std::sync::Arc;

/// The object's record and what it depends on. ESTALE if it was destroyed.
pub(super) fn load(db: &Arc<Db>, id: ObjectId) -> Result<(Option<ObjectRecord>, Lsn), StoreError> {
    let mut view = db.view();
    let rec = load_by(&mut view, id)?;
    Ok((rec, view.seen()))
}

/// As [`load`]; `view` remembers what it depends on.
pub(super) fn load_by(view: &mut View, id: ObjectId) -> Result<Option<ObjectRecord>, StoreError> {
    if let Some(v) = view.get(&location::object_key(id))? {
        return ObjectRecord::decode(id, &v).map(Some);
    }
    if view.get(&location::tombstone_key(id))?.is_some() {
        return Err(StoreError::Errno(Errno::ESTALE));
    }
    Ok(None)
}
