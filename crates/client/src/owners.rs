//! Whose the sessions with metadata targets and the MGS are: what those say goes to the caches, locks and open files
//! that it concerns.

use crate::Fs;
use crate::session::{SessionOwner, Target};
use bytes::Bytes;
use model::planted::{self, Bug};
use model::{Errno, Nid, TargetId};
use std::sync::{Arc, Weak};
use wire::Op;
use wire::msg::notify::Notify;
use wire::msg::reclaim::{Reclaim, ReclaimReply};
use world::BoxFuture;

/// Of a metadata target.
pub(crate) struct MdtOwner {
    fs: Weak<Fs>,
    id: TargetId,
}

/// Of the MGS.
pub(crate) struct MgsOwner {
    fs: Weak<Fs>,
}

impl Fs {
    pub(crate) fn new_mdt_session(self: &Arc<Self>, id: TargetId, nids: Vec<Nid>) -> Arc<Target> {
        let owner = Arc::new(MdtOwner { fs: Arc::downgrade(self), id });
        let weak: Weak<MdtOwner> = Arc::downgrade(&owner);
        self.targets.keep_owner(owner);
        Target::new(&self.cx, id, nids, weak)
    }

    pub(crate) fn new_mgs_session(self: &Arc<Self>, id: TargetId, nids: Vec<Nid>) -> Arc<Target> {
        let owner = Arc::new(MgsOwner { fs: Arc::downgrade(self) });
        let weak: Weak<MgsOwner> = Arc::downgrade(&owner);
        self.targets.keep_owner(owner);
        Target::new(&self.cx, id, nids, weak)
    }
}

impl SessionOwner for MdtOwner {
    fn reclaim(&self) -> Vec<Reclaim> {
        let Some(fs) = self.fs.upgrade() else { return Vec::new() };
        // Leases of the target's former life.
        let mut owned = Vec::new();
        if !planted::on(Bug::CacheKeptOverRestart) {
            owned = fs.meta.clear_for_reclaim();
        }
        if planted::on(Bug::PendingNotReclaimed) {
            owned.clear();
        }
        fs.reclaim_of(self.id.index, &owned)
    }

    fn reclaimed(&self, lost: &ReclaimReply) {
        if let Some(fs) = self.fs.upgrade() {
            fs.reclaim_lost(self.id, lost);
        }
    }

    fn request_lost(&self, op: Op, body: &Bytes, reply: &Bytes) {
        if let Some(fs) = self.fs.upgrade() {
            fs.cx.request_lost(op, body, reply);
        }
    }

    fn notice(&self, n: Notify) {
        let Some(fs) = self.fs.upgrade() else { return };
        match n {
            Notify::LockGranted { id, errno } => fs.lock_granted(id, errno),
            Notify::ConfigChanged { .. } => fs.config_changed.notify_one(),
            Notify::Revoke { items } => fs.leases_revoked(self.id, &items),
            // Of OSTs, of the session, and between servers.
            Notify::BlockExtent { .. }
            | Notify::ExtentGranted { .. }
            | Notify::GlimpseExtent { .. }
            | Notify::BulkLimit { .. }
            | Notify::Stopping
            | Notify::ClientEvicted { .. } => {}
        }
    }

    fn evicted(&self) {
        let Some(fs) = self.fs.upgrade() else { return };
        tracing::error!("{} evicted this client: calls that were under way fail", self.id);
        // Before: nothing may be made here with a FID that is not this client's any more.
        fs.fids.forget(self.id.index);
        fs.all_pending_lost(Errno::EIO);
    }

    fn has_barrier(&self) -> bool {
        self.fs.upgrade().is_some_and(|fs| fs.has_pending())
    }

    fn pass_barrier(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move {
            if let Some(fs) = self.fs.upgrade() {
                fs.tell_pending().await;
            }
        })
    }
}

impl SessionOwner for MgsOwner {
    fn reclaim(&self) -> Vec<Reclaim> {
        Vec::new()
    }

    fn reclaimed(&self, _: &ReclaimReply) {}

    fn request_lost(&self, _: Op, _: &Bytes, _: &Bytes) {}

    fn notice(&self, n: Notify) {
        if let (Notify::ConfigChanged { .. }, Some(fs)) = (n, self.fs.upgrade()) {
            fs.config_changed.notify_one();
        }
    }

    /// What it said while the session was down is lost.
    fn is_up(&self) {
        if let Some(fs) = self.fs.upgrade() {
            fs.config_changed.notify_one();
        }
    }

    fn evicted(&self) {}
}
