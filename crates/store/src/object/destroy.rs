//! destroy: removes objects and leaves tombstones.

use super::change::{After, Done};
use super::load::load;
use super::location::{self, Location};
use super::redo::Redo;
use super::unfinished::leftover_key;
use super::{FinishTxn, Objects};
use crate::{Lsn, StoreError, Txn};
use model::planted::{self, Bug};
use model::usage::UsageChange;
use model::{Errno, ObjectAttr, ObjectId};
use std::sync::Arc;

impl Objects {
    /// Removes objects, leaving tombstones: later writes to them give ESTALE. Space is free again after
    /// the commit.
    pub fn destroy(
        self: &Arc<Self>,
        mut ids: Vec<ObjectId>,
        finish: FinishTxn,
    ) -> world::BoxFuture<Result<Lsn, StoreError>> {
        let me = self.clone();
        Box::pin(async move {
            // In order, so that two calls cannot wait for each other.
            ids.sort_unstable();
            ids.dedup();
            let mut guards = Vec::with_capacity(ids.len());
            for id in &ids {
                guards.push(me.locks.write(*id).await);
                me.files.drained(me.db.core(), *id).await?;
                me.files.settled(me.db.core(), *id, 0, u64::MAX).await?;
            }
            let (_, lsn) = me.run(guards, true, move |o| o.destroy_locked(&ids, finish)).await?;
            Ok(lsn)
        })
    }

    fn destroy_locked(&self, ids: &[ObjectId], finish: FinishTxn) -> Result<Done<()>, StoreError> {
        assert!(ids.is_sorted_by(|a, b| a < b), "objects are locked in one order, each once");
        let mut txn = Txn::new();
        let (mut after, mut delta) = (After::default(), UsageChange::default());
        let tombstone = location::encode_tombstone(self.age.now(&self.world));
        for id in ids {
            let rec = match load(&self.db, *id) {
                Ok((rec, _)) => rec,
                Err(StoreError::Errno(Errno::ESTALE)) => continue,
                Err(e) => return Err(e),
            };
            if !planted::on(Bug::GoneBesideLocks) {
                txn.put(location::tombstone_key(*id), tombstone.clone());
            }
            let Some(rec) = rec else { continue };
            txn.delete(location::object_key(*id));
            if !planted::on(Bug::DestroyUncounted) {
                delta.changed(Some(rec.usage()), None);
            }
            match rec.location {
                Location::Inline(_) => {}
                Location::Packed(p) => after.free.push(p),
                Location::Own => {
                    txn.redo.push(Redo::Unlink { object: *id });
                    after.unlink.push(*id);
                    if self.sums.drop_groups(*id, 0, u64::MAX, &mut txn)?.is_some() {
                        txn.put(leftover_key(*id), Vec::new());
                        after.leftovers.push(*id);
                    }
                }
            }
        }
        finish(&mut txn, 0, &ObjectAttr::default());
        let lsn = self.usage.submit(&self.db, txn, &delta)?;
        Ok(((), lsn, after))
    }
}
