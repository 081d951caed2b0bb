//! owner: an object is counted to somebody else from now on.

use super::change::Change;
use super::{FinishTxn, ObjectMeta, Objects};
use crate::{Lsn, StoreError};
use model::{ObjectAttr, ObjectId};
use std::sync::Arc;

impl Objects {
    /// The file's owner is that of `meta`, which says as of when: what was said of an earlier moment does not
    /// count, neither before nor after. The object is made if it was never written: what a client says who
    /// does not know of the new owner yet must find it. `ESTALE`: it was destroyed.
    pub fn set_owner(
        self: &Arc<Self>,
        id: ObjectId,
        meta: ObjectMeta,
        finish: FinishTxn,
    ) -> world::BoxFuture<Result<(ObjectAttr, Lsn), StoreError>> {
        assert!(meta.time.is_none() && meta.data_version.is_some(), "an owner changes no byte");
        assert!(meta.owner_as_of.is_some(), "the metadata target knows the owner");
        let me = self.clone();
        Box::pin(async move {
            let (guard, old) = me.begin(id).await?;
            let location = old.location.clone();
            let change = Change { named_by_mdt: true, ..Change::new(id, old) };
            let size = change.size();
            me.run(vec![guard], true, move |o| o.submit(change, location, size, &meta, 0, finish)).await
        })
    }
}
