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
    /// Connected since this start of the target.
    pub connected: bool,
    /// Has nothing (more) to say about what it had before this start.
    pub reclaimed: bool,
    /// It connected but did not reclaim in time: recovery ended without it. It may still say what it had.
    pub waived: bool,
}

#[derive(Default)]
pub struct Core {
    pub opens: Opens,
    pub clients: BTreeMap<ClientId, ClientState>,
}

impl Core {
    /// Nobody who was known at the start is waited for any more.
    pub fn all_reclaimed(&self) -> bool {
        self.clients.values().all(|c| c.reclaimed || c.waived)
    }
}
