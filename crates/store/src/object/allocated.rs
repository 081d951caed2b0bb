//! Blocks that the host has allocated for objects in files of their own. It does that later than the record
//! of a change is written, so records are set right behind the changes: owners use what the records say.

use super::load::load;
use super::location::{self, Location, ObjectRecord};
use super::{Objects, open};
use crate::{StoreError, Txn};
use model::planted::{self, Bug};
use model::usage::UsageChange;
use model::{Errno, ObjectId};
use std::sync::{Arc, Weak};
use std::time::Duration;
use world::World;
use world::sync::Notify;

/// How long after a change its object is looked at: several changes are set right at once.
const SETTLE_AFTER: Duration = Duration::from_secs(1);
/// How long changes that were answered may take to get to their files when the target stops.
const FINISH_MAX: Duration = Duration::from_secs(5);
/// Pause after each step of a pass over all objects ([`open::STEP`]).
const PASS_PAUSE: Duration = Duration::from_millis(500);

impl Objects {
    /// Of an object that is shown: the blocks that its file has. Where the record has others, that is set
    /// right soon.
    pub(super) fn look_at_blocks(&self, id: ObjectId, rec: &mut ObjectRecord) {
        let written = rec.attr.blocks;
        self.files.refresh_blocks(id, rec);
        if rec.attr.blocks != written {
            self.files.unsettle(id);
        }
    }

    /// Sets the record of an object right when its file has all that was written so far.
    pub async fn settle_written(self: &Arc<Self>, id: ObjectId) -> Result<(), StoreError> {
        {
            let _alone = self.locks.write(id).await;
            self.files.drained(self.db.core(), id).await?;
        }
        settle(self, id).await
    }

    /// Sets right what was changed so far.
    async fn settle_changed(self: &Arc<Self>) -> Result<(), StoreError> {
        let _one = self.files.settling.lock().await;
        let (ids, all) = {
            let mut u = self.files.unsettled.lock();
            u.again = false;
            (std::mem::take(&mut u.ids), u.all)
        };
        for id in ids {
            settle(self, id).await?;
        }
        if all {
            self.settle_all().await?;
            let mut u = self.files.unsettled.lock();
            u.all = u.again;
        }
        Ok(())
    }

    /// Looks at every object with a file of its own.
    async fn settle_all(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut from = vec![location::TAG_OBJECT];
        loop {
            let page = self.db.scan(&from, &[location::TAG_OBJECT + 1], open::STEP)?;
            for (k, v) in &page {
                if let Some(id) = location::id_of_key(k)
                    && ObjectRecord::decode(id, v)?.location == Location::Own
                {
                    settle(self, id).await?;
                }
            }
            match page.last() {
                Some((k, _)) if page.len() == open::STEP => {
                    from.clone_from(k);
                    from.push(0);
                }
                _ => return Ok(()),
            }
            self.world.sleep(PASS_PAUSE).await;
        }
    }

    /// No more changes come: sets right what there is, and notes that nothing is left, so that the next start
    /// need not look at all objects.
    pub async fn settle_for_good(self: &Arc<Self>) -> Result<(), StoreError> {
        let finished = self.world.timeout(FINISH_MAX, self.files.finished()).await;
        if finished.is_none() || self.files.unsettled.lock().all {
            return Ok(());
        }
        self.settle_changed().await?;
        let left = !self.files.unsettled.lock().is_nothing();
        if left { Ok(()) } else { self.usage.note_settled(&self.db) }
    }
}

/// Sets the record of an object right, if its file has other blocks.
async fn settle(o: &Objects, id: ObjectId) -> Result<(), StoreError> {
    let _alone = o.locks.write(id).await;
    let old = match load(&o.db, id) {
        Ok((Some(rec), _)) if rec.location == Location::Own => rec,
        Ok(_) | Err(StoreError::Errno(Errno::ESTALE)) => return Ok(()),
        Err(e) => return Err(e),
    };
    let mut new = old.clone();
    o.files.refresh_blocks(id, &mut new);
    if new.attr.blocks == old.attr.blocks || planted::on(Bug::BlocksUnsettled) {
        return Ok(());
    }
    let (mut txn, mut delta) = (Txn::new(), UsageChange::default());
    txn.put(location::object_key(id), new.encode());
    delta.changed(Some(old.usage()), Some(new.usage()));
    o.usage.submit(&o.db, txn, &delta).map(drop)
}

/// Sets records right until the target stops. `all`: it did not stop in order last time, so nobody knows
/// which.
pub(super) async fn keep_settled(world: World, objects: Weak<Objects>, all: bool) {
    let Some(files) = objects.upgrade().map(|o| o.files.clone()) else { return };
    if all {
        files.unsettle_all();
    }
    let wake: Arc<Notify> = files.unsettled_now.clone();
    drop(files);
    loop {
        {
            let Some(o) = objects.upgrade() else { return };
            match o.settle_changed().await {
                Ok(()) => {}
                Err(StoreError::Stopped(_)) => return,
                Err(e) => {
                    tracing::warn!("'{}': usage is not set right: {e}", o.dir);
                    o.files.unsettle_all();
                }
            }
        }
        wake.notified().await;
        world.sleep(SETTLE_AFTER).await;
    }
}
