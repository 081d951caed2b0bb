//! Who keeps copies of what this mount knows, beyond a call's answer: a kernel.

use model::Fid;
use std::sync::{Arc, OnceLock};
use world::sync::oneshot;

/// Parts of a file that must not be used any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Revoked {
    pub fid: Fid,
    /// A directory's names.
    pub names: bool,
    /// Attributes and access lists.
    pub inode: bool,
}

/// The word that something is not used any more: given when it is dropped.
pub struct CancelOnDrop(Option<Box<dyn FnOnce() + Send>>);

impl CancelOnDrop {
    pub fn new(f: impl FnOnce() + Send + 'static) -> CancelOnDrop {
        CancelOnDrop(Some(Box::new(f)))
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

/// Told what it must not use any more.
pub trait CacheHolder: Send + Sync {
    /// Forgets these, then drops `leave`; does not wait for that.
    fn lapsed(&self, what: Vec<Revoked>, leave: CancelOnDrop);
    /// Forgets everything before it returns.
    fn forget_all(&self);
    /// Gives up what it has in pages of these parts of a file (ends are exclusive) and writes what was stored
    /// into them, then drops `over`; does not wait for that. It may have to wait for fills and page writes of
    /// the file.
    fn forget_pages(&self, fid: Fid, ranges: Vec<(u64, u64)>, over: CancelOnDrop);
    /// This mount changed an inode itself in a way that the cache holder may not know of.
    fn changed(&self, fid: Fid);
}

/// The cache holder of a mount, if it has one.
#[derive(Default)]
pub(crate) struct CacheHolderSlot(OnceLock<Arc<dyn CacheHolder>>);

impl CacheHolderSlot {
    /// At most once, before the first call.
    pub(crate) fn set(&self, k: Arc<dyn CacheHolder>) {
        let set = self.0.set(k);
        assert!(set.is_ok(), "a mount has one cache_holder");
    }

    pub(crate) fn get(&self) -> Option<&Arc<dyn CacheHolder>> {
        self.0.get()
    }

    /// As [`CacheHolder::forget_pages`].
    pub(crate) fn forget_pages(&self, fid: Fid, ranges: Vec<(u64, u64)>, over: CancelOnDrop) {
        if let Some(k) = self.get() {
            k.forget_pages(fid, ranges, over);
        }
    }

    /// Has the cache holder give up pages; returns when it has.
    pub(crate) async fn pages_given_up(&self, fid: Fid, ranges: Vec<(u64, u64)>) {
        if let Some(k) = self.get() {
            pages_given_up(&**k, fid, ranges).await;
        }
    }

    /// This mount changed an inode in a way that the cache holder may not know of.
    pub(crate) fn changed(&self, fid: Fid) {
        if let Some(k) = self.get() {
            k.changed(fid);
        }
    }
}

/// Has the cache holder give up pages; returns when it has.
pub(crate) async fn pages_given_up(cache_holder: &dyn CacheHolder, fid: Fid, ranges: Vec<(u64, u64)>) {
    let (tx, given_up) = oneshot::channel();
    let over = CancelOnDrop::new(move || {
        let _ = tx.send(());
    });
    cache_holder.forget_pages(fid, ranges, over);
    let _ = given_up.await;
}
