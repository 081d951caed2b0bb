//! Where an MGS keeps what it knows: ordered keys, changed by transactions that are visible at once and
//! durable a little later, in order.

use std::sync::Arc;
use store::{Db, Lsn, StoreError, StoredReply, Txn};
use world::BoxFuture;

/// As [`Db`]'s methods of the same names.
pub trait Book: Send + Sync {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    #[allow(clippy::type_complexity)]
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError>;
    fn submit(&self, txn: Txn) -> Result<Lsn, StoreError>;
    fn durable(self: Arc<Self>, lsn: Lsn) -> BoxFuture<Result<(), StoreError>>;
    fn last_submitted(&self) -> Lsn;
    fn last_committed(&self) -> Lsn;
    fn epoch(&self) -> u32;
    fn transno(&self, lsn: Lsn) -> u64;
    fn reply(&self, client: &[u8; 16], slot: u16) -> Result<Option<StoredReply>, StoreError>;
    fn delete_replies(&self, client: &[u8; 16], txn: &mut Txn) -> Result<(), StoreError>;
    /// False: another MGS may be active by now.
    fn is_held(&self) -> bool;
    fn stopped(&self) -> Option<String>;
    /// The folder, if it is kept in one that this server alone writes to.
    fn folder(&self) -> Option<String> {
        None
    }
}

impl Book for Db {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Db::get(self, key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        Db::scan(self, from, to, limit)
    }

    fn submit(&self, txn: Txn) -> Result<Lsn, StoreError> {
        Db::submit(self, txn)
    }

    fn durable(self: Arc<Self>, lsn: Lsn) -> BoxFuture<Result<(), StoreError>> {
        Db::durable(&self, lsn)
    }

    fn last_submitted(&self) -> Lsn {
        Db::last_submitted(self)
    }

    fn last_committed(&self) -> Lsn {
        Db::last_committed(self)
    }

    fn epoch(&self) -> u32 {
        Db::epoch(self)
    }

    fn transno(&self, lsn: Lsn) -> u64 {
        Db::transno(self, lsn)
    }

    fn reply(&self, client: &[u8; 16], slot: u16) -> Result<Option<StoredReply>, StoreError> {
        Db::reply(self, client, slot)
    }

    fn delete_replies(&self, client: &[u8; 16], txn: &mut Txn) -> Result<(), StoreError> {
        Db::delete_replies(self, client, txn)
    }

    fn is_held(&self) -> bool {
        Db::is_held(self)
    }

    fn stopped(&self) -> Option<String> {
        Db::stopped(self)
    }

    fn folder(&self) -> Option<String> {
        Some(Db::dir(self).to_string())
    }
}
