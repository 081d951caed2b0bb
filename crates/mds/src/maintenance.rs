//! Maintenance of the file system as a metadata target holds it: who owned directories gives them back, so
//! that nothing is executed any more of which it does not hear (decision 0079).

use crate::mdt::Mdt;
use model::Errno;
use model::maintenance::{Maintenance, Mode};
use rpc::ClientId;
use rpc::maintenance::GRACE;
use std::sync::Arc;
use wire::msg::config::ConfigReply;

/// Takes over what the configuration orders. Returns whether it is news.
pub fn configured(mdt: &Arc<Mdt>, config: &ConfigReply) -> bool {
    let ordered = Maintenance::of(&config.params, &mdt.cfg.fsname);
    let hold = mdt.peers.maintenance();
    let was = hold.maintenance();
    // One that was set here alone is nobody's business: it goes with the next one of all.
    let news = hold.set(ordered.clone(), Some(config.version), mdt.world.now());
    if news && was.mode != ordered.mode {
        model::event!(
            INFO,
            MaintenanceChanged,
            mdt.cfg.fsname,
            "{} is {}",
            mdt.cfg.fsname,
            ordered.sentence()
        );
    }
    if news && ordered.mode != Mode::Off {
        let mdt = mdt.clone();
        mdt.world.clone().spawn("mdt-maintenance", async move {
            // Who got one meanwhile gets no other.
            mdt.world.sleep(GRACE).await;
            recall(&mdt).await.unwrap_or(())
        });
    }
    news
}

/// Takes the leases of all clients that are not left alone back: an owner tells what it did before.
/// `ESHUTDOWN` when the target stops.
pub async fn recall(mdt: &Mdt) -> Result<(), Errno> {
    let m = mdt.peers.maintenance().maintenance();
    if m.mode == Mode::Off {
        return Ok(());
    }
    let held = mdt.peers.list().into_iter().filter(|p| !m.leaves_alone(&[p.who.address]));
    let clients: Vec<ClientId> = held.map(|p| p.who.client).collect();
    mdt.transactions.revoke(|leases| leases.files_of(&clients)).await
}
