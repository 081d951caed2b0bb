//! After a restart: what this target does in its recovery window ([`rpc::server::recovery`]). Files without
//! names or opens go when it is over.
//!
//! A resent create is answered from its stored reply without reaching the target; clients therefore reclaim
//! the handles of requests under way too (one that was not executed names no file and is lost, which is no
//! harm). Handles and lock ids are the clients' choice: saying something twice is harmless.

use crate::mdt::Mdt;
use crate::schema::key;
use crate::settings::seconds;
use model::TargetId;
use rpc::server::Peers;
use rpc::server::recovery::{Recover, Recovery};
use rpc::{ClientId, Service};
use std::sync::Arc;
use std::time::Duration;
use world::BoxFuture;

impl Mdt {
    /// Takes a client out that never came back, all in one step: if it connects a moment later it is a new
    /// one. It has no opens and no locks, since those come with its reclaim.
    fn remove_absent(&self, client: ClientId) -> Result<(), store::StoreError> {
        let mut core = self.core.write();
        if !self.recovery.give_up(client) {
            return Ok(());
        }
        let Some(c) = core.clients.remove(&client) else { return Ok(()) };
        let opens = core.opens.of_client(client).len();
        assert_eq!(opens, 0, "a client that never came back has nothing open");
        model::event!(
            WARN,
            ClientEvicted,
            TargetId::mdt(self.cfg.index).label(&self.cfg.fsname),
            "{}: client {client} ({} at {}) did not come back in time and is evicted",
            TargetId::mdt(self.cfg.index).label(&self.cfg.fsname),
            c.name,
            c.address
        );
        let mut txn = store::Txn::new();
        txn.delete(key::client(&client.0));
        self.db.delete_replies(&client.0, &mut txn)?;
        self.db.submit(txn).map(drop)
    }
}

impl Recover for Mdt {
    fn recovery(&self) -> &Arc<Recovery> {
        &self.recovery
    }

    fn patience(&self) -> Duration {
        seconds(&self.shared.settings.recovery_time_s)
    }

    fn hard_limit(&self) -> Duration {
        seconds(&self.shared.settings.recovery_hard_s)
    }

    fn peers(&self) -> &Peers {
        &self.peers
    }

    fn evict_absent(self: Arc<Self>, client: ClientId) -> BoxFuture<()> {
        Box::pin(async move {
            if let Err(e) = self.remove_absent(client) {
                tracing::error!("evicting client {client} failed: {e}");
            }
        })
    }

    fn recovered(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(self.purge_orphans())
    }
}

/// `recovery_status`.
pub fn status(mdt: &Mdt) -> String {
    mdt.recovery.status(mdt.last_committed())
}
