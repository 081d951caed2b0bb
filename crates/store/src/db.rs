//! A target's ordered keys: journal, overlay and table behind one face.
//!
//! [`Db::submit`] makes a transaction visible at once and queues it for the journal; [`Db::durable`] waits
//! for its commit. A reader that must not show what a crash could take back asks its [`View`] which
//! transaction it saw last and waits for that one.

use crate::StoreError;
use crate::author::{Author, Seen};
use crate::core::Core;
use crate::journal::replay::Damage;
use crate::lease::Lease;
use crate::object::Redo;
use crate::still::FrozenView;
use model::limits;
use std::sync::Arc;
use world::World;

/// Position of a transaction in the journal, counted from 1, never reused within an epoch.
pub type Lsn = u64;

/// Key tag of reply slots.
pub const TAG_REPLY: u8 = b'R';
const REPLY_VERSION: u8 = 1;

/// A reply slot's new contents, encoded when the transaction gets its position.
#[derive(Clone, Debug)]
pub(crate) struct PendingReply {
    pub client: [u8; 16],
    pub slot: u16,
    pub reply: ReplyRecord,
}

/// One transaction: absolute writes, in order. Nothing of it or all of it survives a crash.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    pub writes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// What to do again with the files of data objects after a crash (design.md §7); filled by `object`.
    pub redo: Vec<Redo>,
    pub(crate) replies: Vec<PendingReply>,
    /// Bytes in other files that are flushed before the record is.
    pub(crate) outside: usize,
    /// Whose it is, and whether it depends on what its keys held before.
    pub(crate) author: Option<(Arc<Author>, bool)>,
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
        self.writes.is_empty() && self.redo.is_empty() && self.replies.is_empty()
    }

    /// The reply slot (client, slot) → xid, result: exactly once (design.md §6). Key tag `R`.
    pub fn put_reply(&mut self, client: &[u8; 16], slot: u16, reply: &ReplyRecord) {
        self.replies.push(PendingReply { client: *client, slot, reply: reply.clone() });
    }

    /// Says for whose request this is; without it is the server's own. `overwrites`: it depends on whatever
    /// its keys held before (to be said where they are not read through [`Db::view_for`]).
    pub fn set_author(&mut self, author: &Arc<Author>, overwrites: bool) {
        self.author = Some((author.clone(), overwrites));
    }

    /// What is to be written, for a store of another kind, which calls the transaction `transno`. Later
    /// writes of a key stand behind earlier ones.
    ///
    /// # Panics
    /// If it has work for the files of data objects: those are on a disk.
    pub fn into_writes(mut self, transno: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        assert!(self.redo.is_empty(), "a transaction with objects belongs to a disk");
        self.place_replies(transno);
        self.writes
    }

    /// Turns the replies into plain writes, now that the transaction number is known.
    pub(crate) fn place_replies(&mut self, transno: u64) {
        for p in std::mem::take(&mut self.replies) {
            self.put(reply_key(&p.client, p.slot), encode_reply(&p.reply, transno));
        }
    }
}

pub(crate) fn reply_key(client: &[u8; 16], slot: u16) -> Vec<u8> {
    let mut k = Vec::with_capacity(19);
    k.push(TAG_REPLY);
    k.extend_from_slice(client);
    k.extend_from_slice(&slot.to_be_bytes());
    k
}

/// Whose reply slot a key is.
pub(crate) fn client_of_reply_key(key: &[u8]) -> Option<[u8; 16]> {
    let rest = key.strip_prefix(&[TAG_REPLY]).filter(|r| r.len() == 18)?;
    rest[..16].try_into().ok()
}

pub(crate) fn encode_reply(r: &ReplyRecord, transno: u64) -> Vec<u8> {
    let mut w = crate::bytes::Writer(Vec::with_capacity(23 + r.body.len()));
    w.u8(REPLY_VERSION);
    w.u64(transno);
    w.u64(r.xid);
    w.u16(r.status);
    w.bytes(&r.body);
    w.0
}

pub(crate) fn decode_reply(v: &[u8]) -> Option<StoredReply> {
    let mut r = crate::bytes::Reader(v);
    if r.u8()? != REPLY_VERSION {
        return None;
    }
    let (transno, xid, status) = (r.u64()?, r.u64()?, r.u16()?);
    Some(StoredReply { xid, transno, status, body: r.bytes()?.to_vec() })
}

/// What a reply slot holds. The transaction number is not here: it is known only once the record has its
/// place in the journal, and is stored then ([`StoredReply`]).
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

impl StoredReply {
    /// The key of a reply slot.
    pub fn key(client: &[u8; 16], slot: u16) -> Vec<u8> {
        reply_key(client, slot)
    }

    /// What a reply slot's value says; `None` if it does not decode.
    pub fn decode(value: &[u8]) -> Option<StoredReply> {
        decode_reply(value)
    }
}

#[derive(Clone, Debug)]
pub struct DbOptions {
    /// Bytes of one journal segment.
    pub segment_bytes: u64,
    /// Checkpoint when the overlay holds so many transactions …
    pub checkpoint_txns: usize,
    /// … or so many bytes.
    pub checkpoint_bytes: usize,
    /// False: only when it is closed, or no segment can be had. For measurements, and for tests of what
    /// follows.
    pub checkpoints: bool,
    pub table_cache_bytes: usize,
    /// A damaged journal ends where the damage is, and what was behind is lost; else it is not opened. An
    /// administrator's decision (`nacre fsck --repair --cut-journal`).
    pub cut_damaged_journal: bool,
    /// Nothing is written once it is over.
    pub lease: Lease,
}

impl Default for DbOptions {
    fn default() -> DbOptions {
        DbOptions {
            segment_bytes: 64 << 20,
            checkpoint_txns: 20_000,
            checkpoint_bytes: 32 << 20,
            checkpoints: true,
            table_cache_bytes: 128 << 20,
            cut_damaged_journal: false,
            lease: Lease::default(),
        }
    }
}

/// Dropping the last handle stops the background work without a checkpoint, as a crash would.
pub struct Db {
    core: Arc<Core>,
}

impl Drop for Db {
    fn drop(&mut self) {
        self.core.stop("the database was closed");
    }
}

impl Db {
    /// Makes an empty database in `dir` (which exists and is empty of these files). Durable when it returns.
    pub fn create(world: &World, dir: &str) -> Result<(), StoreError> {
        let journal = journal_dir(dir);
        let table = crate::table::redb::path(dir);
        for p in [&journal, &table] {
            if world.disk.exists(p).map_err(StoreError::io("cannot look at", p))? {
                return Err(StoreError::Refused(format!(
                    "'{dir}' already holds a database ('{p}' exists): use an empty folder, or remove it first"
                )));
            }
        }
        world.disk.mkdir(&journal).map_err(StoreError::io("cannot create", &journal))?;
        crate::table::redb::RedbTable::create(world, dir)?;
        world.disk.sync_dir(&journal).map_err(StoreError::io("cannot flush the folder", &journal))?;
        world.disk.sync_dir(dir).map_err(StoreError::io("cannot flush the folder", dir))
    }

    /// Why the journal of a database that does not open cannot be believed to its end, and what is lost if it
    /// is cut there ([`DbOptions::cut_damaged_journal`]). `None`: it is sound. Changes nothing.
    pub fn journal_damage(world: &World, dir: &str) -> Result<Option<Damage>, StoreError> {
        crate::recover::journal_damage(world, dir)
    }

    /// Opens, replays the journal into the overlay (and over the files of data objects), and starts the
    /// committer and the checkpointer, which brings to the table what was replayed. `epoch` is the target's
    /// new epoch; it must be greater than any in the journal, and less than [`limits::EPOCHS_MAX`].
    pub fn open(world: &World, dir: &str, epoch: u32, opt: DbOptions) -> Result<Arc<Db>, StoreError> {
        if epoch >= limits::EPOCHS_MAX {
            return Err(StoreError::Refused(format!(
                "'{dir}' was started {epoch} times as its label says: it cannot count so many"
            )));
        }
        let core = crate::recover::open(world, dir, epoch, opt)?;
        core.start();
        Ok(Arc::new(Db { core }))
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.core.get(key, None)?.0)
    }

    /// Keys `from..to` in order, at most `limit`.
    #[allow(clippy::type_complexity)]
    pub fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        Ok(self.core.scan(from, to, limit, None)?.0)
    }

    /// Everything as it is now, to be looked at while it changes.
    pub fn still(&self) -> Result<FrozenView, StoreError> {
        self.core.still()
    }

    /// A reader that remembers the newest transaction it saw anything of.
    pub fn view(self: &Arc<Self>) -> View {
        View { core: self.core.clone(), author: None, seen: Seen::default() }
    }

    /// A reader for a request: its own client's uncommitted transactions are not foreign to it.
    pub fn view_for(self: &Arc<Self>, author: &Arc<Author>) -> View {
        View { core: self.core.clone(), author: Some(author.clone()), seen: Seen::default() }
    }

    /// A request of a client begins: to be held until its answer was sent. `hurried`: that will wait for the
    /// commit.
    pub fn author(&self, client: [u8; 16], hurried: bool) -> Arc<Author> {
        Author::new(self.core.clone(), client, hurried)
    }

    /// What it means to an author's client to see transaction `lsn` (and, of the same keys, earlier ones).
    pub fn seen(&self, lsn: Lsn, author: &Author) -> Seen {
        self.core.lock().seen(lsn, Some(&author.client))
    }

    /// As [`Db::durable`], but leaves it to the committer when that is: a few hundredths of a second at most.
    pub fn durable_in_time(self: &Arc<Self>, lsn: Lsn) -> world::BoxFuture<Result<(), StoreError>> {
        let db = self.clone();
        Box::pin(async move { db.core.committed_in_time(lsn).await })
    }

    /// Visible to every later `get` at once; durable later, and only after every earlier one.
    /// An empty transaction gets the position of the newest one.
    ///
    /// `ENOSPC`: no room for a journal segment, nothing happened. `E2BIG`: over
    /// [`crate::journal::RECORD_MAX_BYTES`]. `Stopped`: the target serves nothing any more.
    pub fn submit(&self, txn: Txn) -> Result<Lsn, StoreError> {
        self.core.submit(txn)
    }

    /// Waits until `lsn` and everything before it is on disk. `Stopped` if it never will be. Waits for the
    /// checkpointer too when that is far behind (back-pressure).
    pub fn durable(self: &Arc<Self>, lsn: Lsn) -> world::BoxFuture<Result<(), StoreError>> {
        let db = self.clone();
        Box::pin(async move {
            db.core.committed(lsn).await?;
            db.core.not_backlogged().await
        })
    }

    pub fn last_committed(&self) -> Lsn {
        self.core.last_committed()
    }

    /// The newest submitted one.
    pub fn last_submitted(&self) -> Lsn {
        self.core.last_submitted()
    }

    /// The folder it was opened in.
    pub fn dir(&self) -> &str {
        &self.core.dir
    }

    pub fn epoch(&self) -> u32 {
        self.core.epoch
    }

    /// (epoch, position) in one number that only grows: what the wire calls transno.
    pub fn transno(&self, lsn: Lsn) -> u64 {
        self.core.transno(lsn)
    }

    pub fn reply(&self, client: &[u8; 16], slot: u16) -> Result<Option<StoredReply>, StoreError> {
        let key = reply_key(client, slot);
        let Some(v) = self.get(&key)? else { return Ok(None) };
        let r = decode_reply(&v).ok_or_else(|| {
            StoreError::damaged(
                "reply slot",
                &self.core.dir,
                format!("slot {slot} of client {client:02x?} does not decode"),
            )
        })?;
        Ok(Some(r))
    }

    /// Adds deletions of all reply slots of a client.
    pub fn delete_replies(&self, client: &[u8; 16], txn: &mut Txn) -> Result<(), StoreError> {
        let (from, mut to) = (reply_key(client, 0), reply_key(client, u16::MAX));
        to.push(0);
        for (k, _) in self.scan(&from, &to, usize::from(u16::MAX) + 1)? {
            txn.delete(k);
        }
        Ok(())
    }

    /// False: somebody else may serve the target by now.
    pub fn is_held(&self) -> bool {
        self.core.opt.lease.check(&self.core.world, &self.core.dir).is_ok()
    }

    /// Why the target stopped (failed fsync, damaged record), if it did. Watched by the server.
    pub fn stopped(&self) -> Option<String> {
        self.core.stopped()
    }

    /// It stopped because its lease was over (the host or the process stood still, or the disk stalled), and
    /// not for an error of its disk: an ordinary start makes everything good, if nobody else has the target.
    pub fn is_out_of_time(&self) -> bool {
        self.core.is_out_of_time()
    }

    /// The host's file system is nearly full: operations that need space should answer ENOSPC, so that
    /// journal and table keep room to work (and to delete).
    pub fn space_low(&self) -> bool {
        self.space_low_beside(0)
    }

    /// As [`Db::space_low`] on a host that has `reserve` bytes less: they were promised to somebody.
    pub fn space_low_beside(&self, reserve: u64) -> bool {
        self.core.space.low(reserve)
    }

    /// Everything into the table and the journal empty: orderly shutdown. Later transactions are refused.
    pub fn close(self: &Arc<Self>) -> world::BoxFuture<Result<(), StoreError>> {
        let db = self.clone();
        Box::pin(async move { db.core.close().await })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

pub(crate) fn journal_dir(dir: &str) -> String {
    format!("{dir}/journal")
}

/// Reads through a [`Db`] and remembers what any answer depended on.
pub struct View {
    core: Arc<Core>,
    author: Option<Arc<Author>>,
    seen: Seen,
}

impl View {
    fn who(&self) -> Option<&[u8; 16]> {
        self.author.as_ref().map(|a| &a.client)
    }

    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let (v, seen) = self.core.get(key, self.who())?;
        self.seen.merge(seen);
        Ok(v)
    }

    #[allow(clippy::type_complexity)]
    pub fn scan(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        let (v, seen) = self.core.scan(from, to, limit, self.who())?;
        self.seen.merge(seen);
        Ok(v)
    }

    /// The newest transaction anything depended on; 0 if everything seen is in the table already.
    pub fn seen(&self) -> Lsn {
        self.seen.newest
    }

    /// The same, told apart by whose it is.
    pub fn dependencies(&self) -> Seen {
        self.seen
    }
}
