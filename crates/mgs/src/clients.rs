//! What the MGS remembers of its clients: that it knows them, and their last replies. No opens, no locks.

use crate::book::Book;
use crate::service::Mgs;
use model::Errno;
use rpc::{ClientId, ConnectOutcome};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::{Lsn, StoreError, Txn};
use world::World;

/// Key tag of client records.
const TAG: u8 = b'N';
const RECORD_VERSION: u8 = 1;
/// A client that was known before a restart and does not come back within this time is forgotten.
const COME_BACK: Duration = Duration::from_secs(60);

/// Known clients; false: not heard of since the start.
pub(crate) type Clients = BTreeMap<ClientId, bool>;

fn key(client: ClientId) -> Vec<u8> {
    [&[TAG], client.0.as_slice()].concat()
}

/// The client records where an MGS keeps them.
pub(crate) fn read(db: &dyn Book) -> Result<Clients, StoreError> {
    let mut out = Clients::new();
    for (k, _) in db.scan(&[TAG], &[TAG + 1], model::limits::CLIENTS_MAX)? {
        let id = k[1..].try_into().map_err(|_| StoreError::Damaged {
            what: "client record",
            path: format!("{k:02x?}"),
            why: "its key has the wrong length".to_string(),
        })?;
        out.insert(ClientId(id), false);
    }
    Ok(out)
}

/// Forgets those that do not come back after a restart.
pub(crate) fn expect_back(world: &World, mgs: Weak<Mgs>) {
    let w = world.clone();
    world.spawn("mgs-clients", async move {
        w.sleep(COME_BACK).await;
        let Some(mgs) = mgs.upgrade() else { return };
        let silent: Vec<ClientId> =
            mgs.clients().iter().filter(|(_, heard)| !**heard).map(|(c, _)| *c).collect();
        for c in silent {
            if let Err(e) = mgs.forget(c, true) {
                tracing::error!("MGS: cannot forget client {c}: {e}");
            }
        }
    });
}

impl Mgs {
    /// Makes a client known; its record is durable when this ends.
    pub(crate) async fn welcome(
        self: Arc<Self>,
        client: ClientId,
        name: String,
    ) -> Result<ConnectOutcome, StoreError> {
        let (new_client, lsn) = {
            let mut known = self.clients();
            match known.get_mut(&client) {
                Some(heard) => {
                    *heard = true;
                    (false, self.db().last_submitted())
                }
                None => {
                    let mut txn = Txn::new();
                    let record =
                        postcard::to_extend(&name, vec![RECORD_VERSION]).expect("plain data encodes");
                    txn.put(key(client), record);
                    let lsn = self.db().submit(txn)?;
                    known.insert(client, true);
                    (true, lsn)
                }
            }
        };
        self.db().clone().durable(lsn).await?;
        Ok(ConnectOutcome { new_client, recovering: false })
    }

    /// Drops a client and its reply slots (`if_silent`: only if it was not heard of since the start).
    /// Returns the transaction to wait for.
    pub(crate) fn forget(&self, client: ClientId, if_silent: bool) -> Result<Lsn, Errno> {
        let mut known = self.clients();
        if known.get(&client).is_none_or(|heard| *heard && if_silent) {
            return Ok(0);
        }
        let mut txn = Txn::new();
        txn.delete(key(client));
        self.db().delete_replies(&client.0, &mut txn).map_err(|e| e.errno())?;
        let lsn = self.db().submit(txn).map_err(|e| e.errno())?;
        known.remove(&client);
        Ok(lsn)
    }
}
