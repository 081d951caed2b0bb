//! fence: an object belongs to a newer layout from now on, and may get the times of another one.

use super::change::Change;
use super::{FinishTxn, ObjectMeta, Objects};
use crate::{Lsn, StoreError};
use model::{ObjectAttr, ObjectId, Timestamp};
use std::sync::Arc;

impl Objects {
    /// Requests by layouts older than `generation` are to be refused from now on, its times become `times`
    /// (mtime, ctime). It is made if it was never written: the fence of a stripe without bytes must be found,
    /// too. `ESTALE`: it was destroyed.
    pub fn fence(
        self: &Arc<Self>,
        id: ObjectId,
        meta: ObjectMeta,
        generation: u32,
        times: Option<(Timestamp, Timestamp)>,
        finish: FinishTxn,
    ) -> world::BoxFuture<Result<(ObjectAttr, Lsn), StoreError>> {
        assert!(meta.time.is_none(), "a fence changes no byte, so it is no change of the file");
        let me = self.clone();
        Box::pin(async move {
            let (guard, old) = me.begin(id).await?;
            let location = old.location.clone();
            let change = Change { fence: generation, times, ..Change::new(id, old) };
            let size = change.size();
            me.run(vec![guard], true, move |o| o.submit(change, location, size, &meta, 0, finish)).await
        })
    }
}
