//! Records of objects are read from the table.

use super::location::{self, ObjectRecord};
use crate::{Db, Lsn, StoreError};
use model::{Errno, ObjectId};
use std::sync::Arc;

/// The object's record and what it depends on. ESTALE if it was destroyed.
pub(super) fn load(db: &Arc<Db>, id: ObjectId) -> Result<(Option<ObjectRecord>, Lsn), StoreError> {
    let mut view = db.view();
    if let Some(v) = view.get(&location::object_key(id))? {
        return Ok((Some(ObjectRecord::decode(id, &v)?), view.seen()));
    }
    if view.get(&location::tombstone_key(id))?.is_some() {
        return Err(StoreError::Errno(Errno::ESTALE));
    }
    Ok((None, view.seen()))
}
