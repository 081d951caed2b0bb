//! What a metadata target holds in memory beside its table: clients and opens. One lock guards it and orders
//! the operations: readers share it, a transaction has it alone from its first read until it is submitted.

use crate::opens::{Open, OpenChange, Opens};
use crate::schema::key;
use rpc::ClientId;
use std::collections::BTreeMap;
use store::Db;
use wire::msg::reclaim::OpenRecord;

/// A client as this target knows it.
#[derive(Clone, Debug)]
pub struct ClientState {
    pub name: String,
    pub address: String,
    pub identity: rpc::Identity,
}

#[derive(Default)]
pub struct Core {
    pub opens: Opens,
    pub clients: BTreeMap<ClientId, ClientState>,
}

impl Core {
    /// A client has files open under leases that it is about to give back. Permission was checked when it
    /// opened them. Files that are not there are ignored: their removal did not wait for this client, so it
    /// was its own.
    pub fn opened(&mut self, db: &Db, client: ClientId, opens: Vec<OpenRecord>) {
        if !self.clients.contains_key(&client) {
            return;
        }
        for o in opens {
            // If that cannot be read: better one open too many than a file lost.
            let gone = matches!(db.get(&key::inode(o.fid)), Ok(None));
            if !gone && self.opens.check_room(client).is_ok() {
                let open = Open { fid: o.fid, flags: o.flags };
                self.opens.apply(OpenChange::Add { client, handle: o.handle, open });
            }
        }
    }
}
