//! The cache of names and attributes of one target.

use super::cache::{Cache, Token};
use super::content::Contents;
use super::log::Queued;
use super::{mapped, small};
use crate::base::Context;
use crate::base::cache_holder::CancelOnDrop;
use model::Fid;
use model::mutex::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use wire::msg::notify::LeaseItem;

/// The cache, what is being fetched for it, and what a kernel has of it.
pub(crate) struct MetaCache {
    cache: Mutex<Cache>,
    cx: Arc<Context>,
    pub(super) fetching: small::Fetches,
    pub mapped: Arc<mapped::Mapped>,
}

impl MetaCache {
    /// `content_max`: bytes of small files that may be kept.
    pub(crate) fn new(
        cx: Arc<Context>,
        lru_files: usize,
        content_max: u64,
        content_bytes: Arc<AtomicU64>,
    ) -> MetaCache {
        let contents = Contents::new(content_max as usize, content_bytes);
        MetaCache {
            cache: Mutex::new(Cache::new(lru_files, contents)),
            cx,
            fetching: small::Fetches::default(),
            mapped: Arc::default(),
        }
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
        self.lock().len()
    }
}
