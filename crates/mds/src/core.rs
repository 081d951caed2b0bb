//! What a metadata target holds in memory beside its table: clients and opens. One lock guards it and orders
//! the operations: readers share it, a transaction has it alone from its first read until it is submitted.

use crate::opens::Opens;
use rpc::ClientId;
use std::collections::BTreeMap;

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
