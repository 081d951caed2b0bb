//! The ordered table: the journal's checkpoint. `commit` is the only way in, `redb` the engine.

pub mod commit;
pub mod redb;

use crate::StoreError;
use crate::journal::Lsn;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Key and value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// The newest value of a key, and the transaction it comes from.
#[derive(Clone, Debug)]
pub struct Entry {
    pub lsn: Lsn,
    /// `None`: the key is deleted.
    pub value: Option<Bytes>,
}

/// What one checkpoint writes.
pub type Batch = BTreeMap<Vec<u8>, Entry>;

/// The table as it was after one checkpoint; later ones do not change it.
pub trait Snapshot: Send + Sync {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// Pairs of `from..to` in order, given to `each` until it returns false.
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError>;
}

/// An ordered table with atomic, durable batches.
pub trait Table: Send + Sync {
    /// Position of the newest transaction that the table holds.
    fn applied(&self) -> Result<Lsn, StoreError>;
    /// All of it or nothing, durable when it returns. Blocks.
    fn apply(&self, batch: &Batch, applied: Lsn) -> Result<(), StoreError>;
    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, StoreError>;
}
