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
    pub target: Arc<Target>,
    fs: Weak<Fs>,
}

impl Mgc {
    /// The session with the MGS, which is made with it; it connects at its first call.
    pub(crate) fn new(fs: &Arc<Fs>, nids: Vec<Nid>) -> Arc<Mgc> {
        Arc::new_cyclic(|me: &Weak<Mgc>| Mgc {
            target: Target::new(&fs.cx, TargetId::MGT, nids, me.clone()),
            fs: Arc::downgrade(fs),
        })
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
