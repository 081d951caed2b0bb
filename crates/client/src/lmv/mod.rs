//! The targets of a mount, and which of them serves a file: a question about a file goes to the MDC that its
//! FID says; what concerns all of them goes to each.
//!
//! `targets` keeps a session with each target of the target map up to date with what the MGS says (`mgc`,
//! `config`).

mod config;
mod mgc;
mod shares;
mod targets;

#[cfg(test)]
mod tests;

pub(crate) use targets::ConfigOwner;

use crate::R;
use crate::base::Context;
use crate::base::shares::ShareSource;
use crate::lov::content_share;
use crate::mdc::{self, Mdc};
use crate::osc::ObjectCache;
use mgc::Mgc;
use model::{Errno, Fid, Nid, Set, TargetId};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use targets::Targets;
use wire::RequestContext;
use wire::msg::lookup::Entry;
use world::sync;

/// How long `lru_size=clear` waits for operations that are not sent.
const CLEAR_PATIENCE: Duration = Duration::from_secs(5);
/// How long an unmount waits for the metadata servers to take what was executed here.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(30);

/// The sessions of a mount.
pub(crate) struct Lmv {
    cx: Arc<Context>,
    /// What all MDCs share.
    meta: Arc<mdc::Shared>,
    /// What all OSCs share.
    objects: Arc<ObjectCache>,
    mgc: OnceLock<Arc<Mgc>>,
    targets: Targets,
    config_changed: Arc<sync::Notify>,
    owner: Weak<dyn ConfigOwner>,
}

impl Lmv {
    /// Without a target yet. `owner` takes permanent parameters over.
    pub(crate) fn new(
        cx: &Arc<Context>,
        meta: &Arc<mdc::Shared>,
        objects: &Arc<ObjectCache>,
        owner: Weak<dyn ConfigOwner>,
    ) -> Arc<Lmv> {
        let lmv = Arc::new(Lmv {
            cx: cx.clone(),
            meta: meta.clone(),
            objects: objects.clone(),
            mgc: OnceLock::new(),
            targets: Targets::default(),
            config_changed: Arc::new(sync::Notify::new()),
            owner,
        });
        let source: Arc<dyn ShareSource> = lmv.clone();
        cx.shares.set(Arc::downgrade(&source));
        lmv
    }

    fn new_mdt_session(&self, id: TargetId, nids: Vec<Nid>) -> Arc<Mdc> {
        let content_max = content_share(self.objects.max_cached.load(Relaxed));
        Mdc::new(&self.cx, &self.meta, content_max, id, nids)
    }

    pub(crate) fn mdcs(&self) -> Vec<Arc<Mdc>> {
        self.targets.mdcs()
    }

    /// The MDC of a file, if its target is in the target map.
    pub(crate) fn mdc_at(&self, fid: Fid) -> Option<Arc<Mdc>> {
        self.targets.mdc(self.meta.locate.mdt_of(fid))
    }

    /// The same; asks the MGS again if it is not.
    pub(crate) async fn mdc_of(&self, fid: Fid) -> R<Arc<Mdc>> {
        self.mdc(self.meta.locate.mdt_of(fid)).await
    }

    /// The metadata server's part of a file's attributes, from the cache if it is known.
    pub(crate) async fn getattr_entry(&self, ctx: RequestContext, fid: Fid) -> R<Arc<Entry>> {
        self.mdc_of(fid).await?.getattr_entry(ctx, fid).await
    }

    /// See [`mdc::MetaCache::known_entry`].
    pub(crate) fn known_entry(&self, fid: Fid) -> Option<Arc<Entry>> {
        self.mdc_at(fid)?.meta.known_entry(fid)
    }

    /// See [`mdc::MetaCache::inode_at_hand`].
    pub(crate) fn inode_at_hand(&self, fid: Fid) -> Option<Arc<Entry>> {
        self.mdc_at(fid)?.meta.inode_at_hand(fid)
    }

    /// Whether leases on this file are good at this moment.
    pub(crate) fn leases_good(&self, fid: Fid) -> bool {
        self.mdc_at(fid).is_some_and(|m| m.meta.leases_good())
    }

    /// No pages of a small file are left that were filled under a lease, unless they are filled anew.
    pub(crate) async fn sweep_small(&self, fid: Fid) {
        if let Some(mdc) = self.mdc_at(fid) {
            mdc.meta.mapped.sweep_all_of(fid).await;
        }
    }

    /// Has everything sent that was executed here until now, to all targets, and waits for the answers. What
    /// is lost on the way is the business of fsync.
    pub(crate) async fn tell_pending(&self) {
        for m in self.mdcs() {
            m.tell_pending().await;
        }
    }

    /// As [`Lmv::tell_pending`], for an fsync. The targets that have all of it on disk, and everything that
    /// they had executed before: see [`Mdc::tell_pending_durably`].
    pub(crate) async fn tell_pending_durably(&self) -> Set<TargetId> {
        let mut told = Set::default();
        for m in self.mdcs() {
            if m.tell_pending_durably().await {
                told.insert(m.target.id);
            }
        }
        told
    }

    /// The first lease of FIDs, so that the first create finds one.
    pub(crate) async fn lease_for_root(&self) -> R<()> {
        self.mdc_of(Fid::ROOT).await?.fids.more().await
    }

    /// Gives leases back that were not used for `lru_max_age`, until the mount ends.
    pub(crate) fn watch_lease_age(self: &Arc<Self>) {
        const LOOK_EVERY: Duration = Duration::from_secs(60);
        let (weak, world) = (Arc::downgrade(self), self.cx.world.clone());
        self.cx.world.spawn("client-lease-age", async move {
            loop {
                world.sleep(LOOK_EVERY).await;
                let Some(lmv) = weak.upgrade().filter(|l| !l.cx.is_closed()) else { return };
                lmv.mdcs().iter().for_each(|m| m.meta.give_back_aged());
            }
        });
    }

    /// At the end of a mount.
    pub(crate) async fn tell_pending_at_unmount(&self) {
        for m in self.mdcs() {
            if self.cx.world.timeout(UNMOUNT_PATIENCE, m.tell_pending()).await.is_none() {
                tracing::error!("{} does not take what was executed here: it is lost", m.target.id);
                m.all_pending_lost(Errno::EIO);
            }
        }
    }

    /// Access times that were to be stored later are, as far as the servers answer soon.
    pub(crate) async fn atimes_at_unmount(&self) {
        for m in self.mdcs() {
            m.atimes_at_unmount().await;
        }
    }

    /// `llite.*.md_writeback`. What was executed here before is sent.
    pub(crate) fn set_md_writeback(&self, on: bool) {
        self.meta.writeback_off.store(!on, Relaxed);
        self.mdcs().iter().for_each(|m| m.wake());
    }

    /// `lru_size`: how many files are kept of each target. 0: none but what is in use at the moment.
    pub(crate) fn set_lru_files(&self, files: usize) {
        self.meta.lru_files.store(files, Relaxed);
        self.mdcs().iter().for_each(|m| m.meta.set_lru_files(files));
    }

    /// Gives every lease back, those under which something was executed that is not sent as soon as it is.
    pub(crate) fn drop_leases(&self) {
        self.mdcs().iter().for_each(|m| m.drop_leases());
    }

    /// Waits until the leases are given back that [`Lmv::drop_leases`] left for operations that were not
    /// sent, and locks on data that were ordered back. `EAGAIN`: it takes longer than [`CLEAR_PATIENCE`];
    /// they go back when the servers have taken the operations.
    pub(crate) async fn leases_dropped(&self) -> R<()> {
        let dropped = async {
            for m in self.mdcs() {
                m.leases_dropped().await;
            }
            for o in self.oscs() {
                o.locks_cleared().await;
            }
        };
        self.cx.world.timeout(CLEAR_PATIENCE, dropped).await.ok_or(Errno::EAGAIN)
    }

    /// What small files may take in memory changed.
    pub(crate) fn content_resized(&self, max: u64) {
        self.mdcs().iter().for_each(|m| m.small.resized(max));
    }

    /// Operations and bytes that were executed here and not answered.
    pub(crate) fn pending_load(&self) -> (usize, usize) {
        let each = self.mdcs().into_iter().map(|m| m.pending_load());
        each.fold((0, 0), |(ops, bytes), (o, b)| (ops + o, bytes + b))
    }

    /// Operations executed here so far, of those answered, and of those known to be durable; for tests.
    pub(crate) fn pending_state(&self) -> (u64, u64, u64) {
        let each = self.mdcs().into_iter().map(|m| m.pending_state());
        each.fold((0, 0, 0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2))
    }
}

impl Drop for Lmv {
    fn drop(&mut self) {
        self.config_changed.notify_one(); // ends the task that watches the configuration
    }
}
