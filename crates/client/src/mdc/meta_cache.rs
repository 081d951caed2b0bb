//! The cache of names and attributes of one target.

use super::Shared;
use super::cache::{Cache, Token};
use super::content::Contents;
use super::log::Queued;
use super::mapped::Mapped;
use crate::base::Context;
use crate::base::cache_holder::CancelOnDrop;
use crate::session::Target;
use model::Fid;
use model::mutex::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::msg::notify::LeaseItem;

/// The cache of one target with the session under whose leases it is good, and what a kernel has of it.
pub(crate) struct MetaCache {
    cache: Mutex<Cache>,
    pub(super) cx: Arc<Context>,
    pub(super) shared: Arc<Shared>,
    pub(super) target: Arc<Target>,
    pub mapped: Arc<Mapped>,
}

impl MetaCache {
    /// `content_max`: bytes of small files that may be kept.
    pub(super) fn new(
        cx: &Arc<Context>,
        shared: &Arc<Shared>,
        target: &Arc<Target>,
        content_max: u64,
    ) -> Arc<MetaCache> {
        let contents = Contents::new(content_max as usize, shared.content_bytes.clone());
        Arc::new(MetaCache {
            cache: Mutex::new(Cache::new(shared.lru_files.load(Relaxed), contents)),
            cx: cx.clone(),
            shared: shared.clone(),
            target: target.clone(),
            mapped: Mapped::new(cx),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock()
    }

    /// When a request starts.
    pub(crate) fn token(&self) -> Token {
        self.lock().token()
    }

    /// The leases are gone because the server gave this client up, and with them what was executed under them
    /// and not sent: `report` is told what, before anybody can find that nothing waits any more.
    pub(crate) fn clear(&self, life: u64, report: impl FnOnce(&[Queued])) {
        {
            let mut c = self.lock();
            c.clear();
            report(&c.log.lose_all(life));
        }
        self.forget_all();
    }

    /// The leases are gone with the server that granted them, but for those that are returned.
    pub(crate) fn clear_for_reclaim(&self) -> Vec<LeaseItem> {
        let owned = self.lock().clear_for_reclaim();
        self.forget_all();
        owned
    }

    /// Whether the server may not know of this file yet.
    pub(crate) fn is_made_here(&self, fid: Fid) -> bool {
        self.lock().log.makes(fid)
    }

    fn forget_all(&self) {
        if let Some(k) = self.cx.cache_holder.get() {
            for fid in self.mapped.take() {
                k.forget_pages(fid, vec![(0, u64::MAX)], CancelOnDrop::new(|| {}));
            }
            k.forget_all();
        }
    }

    pub(crate) fn lease_count(&self) -> usize {
        self.lock().nodes.len()
    }
}
