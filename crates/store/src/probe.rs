//! A transaction that changes nothing: how fast a target makes a small change durable is seen by it.

use crate::db::Db;
use crate::error::StoreError;
use crate::journal::Lsn;
use crate::txn::Txn;

/// A key that no table has: it is only ever deleted (docs/formats/table.md).
const KEY_PROBE: &[u8] = b"Zprobe";

impl Db {
    /// Submits one; it is durable as all others are.
    pub fn submit_probe(&self) -> Result<Lsn, StoreError> {
        let mut txn = Txn::new();
        txn.delete(KEY_PROBE);
        self.submit(txn)
    }
}
