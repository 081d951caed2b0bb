//! A target's ordered keys: journal, overlay and table behind one face.
//!
//! [`Db::submit`] makes a transaction visible at once and queues it for the journal; [`Db::durable`] waits
//! for its commit. A reader that must not show what a crash could take back asks its [`View`] which
//! transaction it saw last and waits for that one.

use crate::StoreError;
use crate::author::{Author, Seen};
use crate::core::Core;
use crate::journal::replay::Damage;
use crate::journal::{Lsn, journal_dir};
use crate::options::DbOptions;
use crate::still::{FrozenView, Read};
use crate::table::Pair;
use crate::txn::{StoredReply, Txn, decode_reply, reply_key};
use model::limits;
use std::sync::Arc;
use world::World;
use world::span::waited;

/// Name of the span in which somebody waits for the journal.
const JOURNAL_SPAN: &str = "journal flushed";

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
        Box::pin(async move { waited(&db.core.world, JOURNAL_SPAN, db.core.committed_in_time(lsn)).await })
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
            let world = &db.core.world;
            waited(world, JOURNAL_SPAN, db.core.committed(lsn)).await?;
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

impl Read for Db {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Db::get(self, key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        Db::scan(self, from, to, limit)
    }
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
