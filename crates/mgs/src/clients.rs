//! What the MGS remembers of its clients: that it knows them, and their last replies. No opens, no locks.

use crate::book::Book;
use crate::mounts::Asked;
use crate::service::Mgs;
use model::Errno;
use rpc::{ClientId, ConnectOutcome, Greeting, Identity};
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

/// One client.
pub(crate) struct Known {
    name: String,
    identity: Identity,
    /// Since the start.
    heard: bool,
    /// Which configuration it asked for last, since the start.
    pub(crate) asked: Option<Asked>,
}

/// Known clients.
pub(crate) type Clients = BTreeMap<ClientId, Known>;

/// `None`: the bytes are no record.
fn decode(v: &[u8]) -> Option<Known> {
    let rest = v.strip_prefix(&[RECORD_VERSION])?;
    let (name, rest) = postcard::take_from_bytes::<String>(rest).ok()?;
    Some(Known { name, identity: Identity::decode(rest)?, heard: false, asked: None })
}

impl Known {
    /// Since the start.
    pub(crate) fn heard(&self) -> bool {
        self.heard
    }

    /// As it called itself: of what it showed nothing is kept.
    pub(crate) fn is_server(&self) -> bool {
        self.name.starts_with("nacred ")
    }

    fn encode(&self) -> Vec<u8> {
        let v = postcard::to_extend(&self.name, vec![RECORD_VERSION]).expect("plain data encodes");
        postcard::to_extend(&self.identity, v).expect("plain data encodes")
    }
}

fn key(client: ClientId) -> Vec<u8> {
    [&[TAG], client.0.as_slice()].concat()
}

/// The client records where an MGS keeps them.
pub(crate) fn read(db: &dyn Book) -> Result<Clients, StoreError> {
    let mut out = Clients::new();
    for (k, v) in db.scan(&[TAG], &[TAG + 1], model::limits::CLIENTS_MAX)? {
        let damaged = |why: &str| StoreError::Damaged {
            what: "client record",
            path: format!("{k:02x?}"),
            why: why.to_string(),
        };
        let id = k[1..].try_into().map_err(|_| damaged("its key has the wrong length"))?;
        out.insert(ClientId(id), decode(&v).ok_or_else(|| damaged("unknown version or cut short"))?);
    }
    Ok(out)
}

/// Forgets those that do not come back after a restart.
pub(crate) fn expect_back(world: &World, mgs: Weak<Mgs>) {
    let w = world.clone();
    world.spawn("mgs-clients", async move {
        w.sleep(COME_BACK).await;
        let Some(mgs) = mgs.upgrade() else { return };
        let silent: Vec<ClientId> = mgs.clients().iter().filter(|(_, k)| !k.heard).map(|(c, _)| *c).collect();
        for c in silent {
            if let Err(e) = mgs.forget(c, true) {
                tracing::error!("MGS: cannot forget client {c}: {e}");
            }
        }
    });
}

impl Mgs {
    /// Makes a client known; its record is durable when this ends.
    pub(crate) async fn welcome(self: Arc<Self>, hello: Greeting) -> Result<ConnectOutcome, (Errno, String)> {
        let client = ClientId(hello.connect.client_uuid);
        assert_eq!(hello.from.client, client, "a hello is of the client that it names");
        let failed = |e: StoreError| (e.errno(), e.to_string());
        let record = |k: &Known| {
            let mut txn = Txn::new();
            txn.put(key(client), k.encode());
            self.db().submit(txn).map_err(failed)
        };
        let (new_client, lsn) = {
            let mut known = self.clients();
            match known.get_mut(&client) {
                Some(k) => {
                    let bound = hello.check(&mut k.identity)?;
                    k.heard = true;
                    let lsn = if bound { record(k)? } else { self.db().last_submitted() };
                    (hello.is_unaware(&k.identity), lsn)
                }
                None => {
                    let identity = hello.identity(self.db().epoch());
                    let k = Known { name: hello.connect.client_name, identity, heard: true, asked: None };
                    let lsn = record(&k)?;
                    known.insert(client, k);
                    (true, lsn)
                }
            }
        };
        self.db().clone().durable(lsn).await.map_err(failed)?;
        Ok(ConnectOutcome { new_client, recovering: false })
    }

    /// Drops a client and its reply slots (`if_silent`: only if it was not heard of since the start).
    /// Returns the transaction to wait for.
    pub(crate) fn forget(&self, client: ClientId, if_silent: bool) -> Result<Lsn, Errno> {
        let mut known = self.clients();
        if known.get(&client).is_none_or(|k| k.heard && if_silent) {
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
