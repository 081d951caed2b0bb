//! Moments of targets' tables that are kept for who copies them (`nacre backup`), for as long as he asks.

use super::target::Target;
use admin::views::{TableAnswer, TableOrder, VIEW_LIFE, VIEWS_MAX, page};
use client::control::Packed;
use model::Errno;
use model::mutex::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{FrozenView, Lsn, StoreError};
use world::{Instant, World};

/// Of one target.
#[derive(Default)]
pub struct Views(Mutex<BTreeMap<u64, View>>);

struct View {
    still: Arc<FrozenView>,
    /// The last transaction that is in it for certain.
    lsn: Lsn,
    used: Instant,
}

impl Views {
    /// Lets go of those that nobody asked for lately.
    fn expire(&self, now: Instant) {
        let mut all = self.0.lock();
        all.retain(|_, v| now.since(v.used) < VIEW_LIFE);
        assert!(all.len() <= VIEWS_MAX, "no more moments are kept than that");
    }

    /// `EBUSY`: others came first.
    fn add(&self, id: u64, view: View) -> Result<(), Errno> {
        let mut all = self.0.lock();
        if all.len() >= VIEWS_MAX {
            return Err(Errno::EBUSY);
        }
        all.insert(id, view);
        Ok(())
    }

    fn get(&self, id: u64, now: Instant) -> Result<(Arc<FrozenView>, Lsn), (Errno, String)> {
        let mut all = self.0.lock();
        let gone = || (Errno::ENOENT, format!("moment {id} is not kept any more"));
        let v = all.get_mut(&id).ok_or_else(gone)?;
        v.used = now;
        Ok((v.still.clone(), v.lsn))
    }
}

fn failed(e: StoreError) -> (Errno, String) {
    (e.errno(), e.to_string())
}

impl Target {
    /// Keeps a moment, tells of it, or lets it go. The error is for the administrator.
    pub fn table(
        self: &Arc<Self>,
        world: &World,
        order: &TableOrder,
    ) -> Result<TableAnswer, (Errno, String)> {
        let now = world.now();
        self.views.expire(now);
        match order {
            TableOrder::Open => self.keep_view(world),
            TableOrder::Look { view } => {
                let (_, lsn) = self.views.get(*view, now)?;
                Ok(TableAnswer::Opened { view: *view, epoch: self.db.epoch(), lsn })
            }
            TableOrder::Page { view, after } => {
                let (still, _) = self.views.get(*view, now)?;
                let after = after.as_ref().map(Packed::open).transpose();
                let after = after.map_err(|e| (e, "the key is none".to_string()))?;
                let page = page(&still, after).map_err(failed)?;
                Ok(TableAnswer::Page(Packed::of(&page)))
            }
            TableOrder::Close { view } => {
                self.views.0.lock().remove(view);
                Ok(TableAnswer::Closed)
            }
        }
    }

    fn keep_view(self: &Arc<Self>, world: &World) -> Result<TableAnswer, (Errno, String)> {
        let full = || format!("{VIEWS_MAX} moments of {} are being copied already", self.label());
        if self.views.0.lock().len() >= VIEWS_MAX {
            return Err((Errno::EBUSY, full()));
        }
        // What comes between these is in it as well, if it is not frozen: then more counts as changed since.
        let lsn = self.db.last_submitted();
        let still = Arc::new(self.db.still().map_err(failed)?);
        // What a crash could take back is in no copy.
        world::block_on(self.db.durable(self.db.last_submitted())).map_err(failed)?;
        let view = world.random_u64() >> 1;
        let epoch = self.db.epoch();
        self.views.add(view, View { still, lsn, used: world.now() }).map_err(|e| (e, full()))?;
        let (me, w) = (Arc::downgrade(self), world.clone());
        world.spawn("views", async move {
            // The table's pages of that moment are not used again while it is kept.
            loop {
                w.sleep(VIEW_LIFE).await;
                let Some(t) = me.upgrade() else { return };
                t.views.expire(w.now());
                if !t.views.0.lock().contains_key(&view) {
                    return;
                }
            }
        });
        Ok(TableAnswer::Opened { view, epoch, lsn })
    }
}
