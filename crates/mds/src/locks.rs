//! Locks of this target: the table of crate `ldlm`, and telling those who waited.

use crate::mdt::Mdt;
use ldlm::Event;
use rpc::ClientId;
use wire::msg::notify::Notify;

impl Mdt {
    /// Tells waiting clients what became of their locks. A notify that is lost with its connection is made
    /// good by the client, which asks again after it reconnected.
    pub(crate) fn tell(&self, events: Vec<Event>) {
        for e in events {
            let errno = e.error.map_or(0, |e| u16::try_from(e.0).unwrap_or(u16::MAX));
            self.peers.notify(ClientId(e.client), Notify::LockGranted { id: e.id, errno });
        }
    }
}
