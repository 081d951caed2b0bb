//! A transaction that changes nothing: how fast a target makes a small change durable is seen by it.

use crate::db::Db;
use crate::error::StoreError;
use crate::txn::Txn;
use std::sync::Arc;
use world::BoxFuture;

/// A key that no table has: it is only ever deleted (docs/formats/table.md).
const KEY_PROBE: &[u8] = b"Zprobe";

impl Db {
    /// Submits one at once. What is returned ends when it is durable, as all others are, or says why it is
    /// not.
    pub fn probe(self: &Arc<Self>) -> BoxFuture<Result<(), StoreError>> {
        let mut txn = Txn::new();
        txn.delete(KEY_PROBE);
        match self.submit(txn) {
            Ok(lsn) => self.durable(lsn),
            Err(e) => Box::pin(async move { Err(e) }),
        }
    }
}
