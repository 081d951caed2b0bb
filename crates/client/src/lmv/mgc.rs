//! The session with the MGS: it says when the configuration changed.

use crate::base::Context;
use crate::session::{SessionOwner, Target};
use bytes::Bytes;
use model::{HostNid, TargetId};
use std::sync::{Arc, Weak};
use wire::Op;
use wire::msg::notify::Notify;
use wire::msg::reclaim::{Reclaim, ReclaimReply};
use world::sync;

pub(crate) struct Mgc {
    pub target: Arc<Target>,
    config_changed: Arc<sync::Notify>,
}

impl Mgc {
    /// The session with the MGS, which is made with it; it connects at its first call.
    pub(crate) fn new(cx: &Arc<Context>, config_changed: Arc<sync::Notify>, hosts: Vec<HostNid>) -> Arc<Mgc> {
        Arc::new_cyclic(|me: &Weak<Mgc>| {
            let target = Target::new(cx, TargetId::MGT, Vec::new(), me.clone());
            target.import.seek(hosts);
            Mgc { target, config_changed }
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
        if let Notify::ConfigChanged { .. } = n {
            self.config_changed.notify_one();
        }
    }

    /// What it said while the session was down is lost.
    fn is_up(&self) {
        self.config_changed.notify_one();
    }

    fn evicted(&self) {}
}
