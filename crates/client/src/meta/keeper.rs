//! Who keeps copies of what this mount knows, beyond a call's answer: a kernel.

use crate::Fs;
use crate::ops::data_layout;
use model::{Attr, Fid};
use std::sync::Arc;
use std::time::Duration;
use world::sync::oneshot;

/// Parts of a file that must not be used any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lapsed {
    pub fid: Fid,
    /// A directory's names.
    pub names: bool,
    /// Attributes and access lists.
    pub inode: bool,
}

/// The word that something is not used any more: given when it is dropped.
pub struct Leave(Option<Box<dyn FnOnce() + Send>>);

impl Leave {
    pub(crate) fn new(f: impl FnOnce() + Send + 'static) -> Leave {
        Leave(Some(Box::new(f)))
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

/// Told what it must not use any more.
pub trait Keeper: Send + Sync {
    /// Forgets these, then drops `leave`; does not wait for that.
    fn lapsed(&self, what: Vec<Lapsed>, leave: Leave);
    /// Forgets everything before it returns.
    fn forget_all(&self);
    /// Gives up what it has in pages of these parts of a file (ends are exclusive) and writes what was stored into
    /// them, then drops `over`; does not wait for that. It may have to wait for fills and page writes of the file.
    fn forget_pages(&self, fid: Fid, ranges: Vec<(u64, u64)>, over: Leave);
    /// This mount changed an inode itself in a way that the keeper may not know of.
    fn changed(&self, fid: Fid);
}

/// Has the keeper give up pages; returns when it has.
pub(crate) async fn pages_given_up(keeper: &dyn Keeper, fid: Fid, ranges: Vec<(u64, u64)>) {
    let (tx, given_up) = oneshot::channel();
    let over = Leave::new(move || {
        let _ = tx.send(());
    });
    keeper.forget_pages(fid, ranges, over);
    let _ = given_up.await;
}

impl Fs {
    /// At most one, before the first call.
    pub fn set_keeper(&self, k: Arc<dyn Keeper>) {
        let set = self.meta.keeper.set(k);
        assert!(set.is_ok(), "a mount has one keeper");
    }

    /// How long attributes that a call gave may be kept unasked: `None` if they are not under a lease, or no more
    /// what it says. Sizes and times of files with objects never are.
    pub fn inode_kept(&self, a: &Attr) -> Option<Duration> {
        let left = self.lease_left(a.fid)?;
        let e = self.meta.lock().entry(a.fid, self.world.now())?;
        (e.attr.version == a.version && data_layout(&e).is_none()).then_some(left)
    }

    /// How long it may be kept that a name leads to this file, or (`None`) that it is not there.
    pub fn name_kept(&self, dir: Fid, name: &[u8], leads: Option<Fid>) -> Option<Duration> {
        if name.is_empty() || name == b"." || name == b".." {
            return None;
        }
        let left = self.lease_left(dir)?;
        (self.meta.lock().name(dir, name, self.world.now())? == leads).then_some(left)
    }

    fn lease_left(&self, fid: Fid) -> Option<Duration> {
        let left = self.meta_target(fid)?.import.leases_until().since(self.world.now());
        (!left.is_zero()).then_some(left)
    }
}
