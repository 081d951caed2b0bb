//! A target's ordered keys: journal, overlay and table behind one face.
//!
//! [`Db::submit`] makes a transaction visible at once and queues it for the journal; [`Db::durable`] waits
//! for its commit. A reader that must not show what a crash could take back asks its [`View`] which
//! transaction it saw last and waits for that one.

use crate::StoreError;
use crate::object::ObjectWrite;
use std::sync::Arc;
use world::World;

/// Position of a transaction in the journal, counted from 1, never reused within an epoch.
pub type Lsn = u64;

/// One transaction: absolute writes, in order. Nothing of it or all of it survives a crash.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    pub writes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Payloads of data objects that lie in this record (design.md §7); filled by `object`.
    pub object_writes: Vec<ObjectWrite>,
}

impl Txn {
    pub fn new() -> Txn {
        Txn::default()
    }

    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.writes.push((key.into(), Some(value.into())));
    }

    pub fn delete(&mut self, key: impl Into<Vec<u8>>) {
        self.writes.push((key.into(), None));
    }

    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.object_writes.is_empty()
    }

    /// The reply slot (client, slot) → xid, result: exactly once (design.md §6). Key tag `R`.
    pub fn put_reply(&mut self, _client: &[u8; 16], _slot: u16, _reply: &ReplyRecord) {
        unimplemented!()
    }
}

/// What a reply slot holds. `transno` is 0 here: it is known only once the record has its place, so it is
/// derived from the record's position when read back.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct ReplyRecord {
    pub xid: u64,
    pub status: u16,
    pub body: Vec<u8>,
}

/// A reply slot as read back: the record, and the transaction number it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredReply {
    pub xid: u64,
    /// `Db::transno` of the transaction that stored it.
    pub transno: u64,
    pub status: u16,
    pub body: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct DbOptions {
    /// Bytes of one journal segment.
    pub segment_bytes: u64,
    /// Checkpoint when the overlay holds so many transactions …
    pub checkpoint_txns: usize,
    /// … or so many bytes.
    pub checkpoint_bytes: usize,
    pub table_cache_bytes: usize,
}

impl Default for DbOptions {
    fn default() -> DbOptions {
        DbOptions {
            segment_bytes: 64 << 20,
            checkpoint_txns: 20_000,
            checkpoint_bytes: 32 << 20,
            table_cache_bytes: 128 << 20,
        }
    }
}

pub struct Db {
    _todo: (),
}

impl Db {
    /// Makes an empty database in `dir` (which exists and is empty of these files).
    pub fn create(_world: &World, _dir: &str) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// Opens, replays the journal over the table, and starts the committer and the checkpointer.
    /// `epoch` is the target's new epoch; it must be greater than any in the journal.
    pub fn open(_world: &World, _dir: &str, _epoch: u32, _opt: DbOptions) -> Result<Arc<Db>, StoreError> {
        unimplemented!()
    }

    pub fn get(&self, _key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        unimplemented!()
    }

    /// Keys `from..to` in order, at most `limit`.
    #[allow(clippy::type_complexity)]
    pub fn scan(&self, _from: &[u8], _to: &[u8], _limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        unimplemented!()
    }

    /// A reader that remembers the newest transaction it saw anything of.
    pub fn view(self: &Arc<Self>) -> View {
        unimplemented!()
    }

    /// Visible to every later `get` at once; durable later, and only after every earlier one.
    pub fn submit(&self, _txn: Txn) -> Result<Lsn, StoreError> {
        unimplemented!()
    }

    /// Waits until `lsn` and everything before it is on disk. `Stopped` if it never will be.
    pub fn durable(self: &Arc<Self>, _lsn: Lsn) -> world::BoxFuture<Result<(), StoreError>> {
        unimplemented!()
    }

    pub fn last_committed(&self) -> Lsn {
        unimplemented!()
    }

    /// The newest submitted one.
    pub fn last_submitted(&self) -> Lsn {
        unimplemented!()
    }

    pub fn epoch(&self) -> u32 {
        unimplemented!()
    }

    /// (epoch, position) in one number that only grows: what the wire calls transno.
    pub fn transno(&self, lsn: Lsn) -> u64 {
        u64::from(self.epoch()) << 40 | lsn
    }

    pub fn reply(&self, _client: &[u8; 16], _slot: u16) -> Result<Option<StoredReply>, StoreError> {
        unimplemented!()
    }

    /// Adds deletions of all reply slots of a client.
    pub fn delete_replies(&self, _client: &[u8; 16], _txn: &mut Txn) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// Why the target stopped (failed fsync, damaged record), if it did. Watched by the server.
    pub fn stopped(&self) -> Option<String> {
        unimplemented!()
    }

    /// Everything into the table and the journal empty: orderly shutdown.
    pub fn close(self: &Arc<Self>) -> world::BoxFuture<Result<(), StoreError>> {
        unimplemented!()
    }
}

/// Reads through a [`Db`] and remembers the newest transaction that any answer depended on.
pub struct View {
    _todo: (),
}

impl View {
    pub fn get(&mut self, _key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        unimplemented!()
    }

    #[allow(clippy::type_complexity)]
    pub fn scan(
        &mut self,
        _from: &[u8],
        _to: &[u8],
        _limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        unimplemented!()
    }

    /// 0 if everything seen is in the table already.
    pub fn seen(&self) -> Lsn {
        unimplemented!()
    }
}
