//! The session with the MGS: it says when the configuration changed.

use crate::Fs;
use crate::session::{SessionOwner, Target};
use bytes::Bytes;
use model::{Nid, TargetId};
use std::sync::{Arc, Weak};
use wire::Op;
use wire::msg::notify::Notify;
use wire::msg::reclaim::{Reclaim, ReclaimReply};

pub(crate) struct Mgc {
    fs: Weak<Fs>,
}

impl Fs {
    pub(crate) fn new_mgs_session(self: &Arc<Self>, id: TargetId, nids: Vec<Nid>) -> Arc<Target> {
        let owner = Arc::new(Mgc { fs: Arc::downgrade(self) });
        let weak: Weak<Mgc> = Arc::downgrade(&owner);
        self.targets.keep_owner(owner);
        Target::new(&self.cx, id, nids, weak)
    }
}

impl SessionOwner for Mgc {
    fn reclaim(&self) -> Vec<Reclaim> {
        Vec::new()
    }

    fn reclaimed(&self, _: &ReclaimReply) {}

    fn request_lost(&self, _: Op, _: &Bytes, _: &Bytes) {}

    fn notice(self: Arc<Self>, n: Notify) {
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
