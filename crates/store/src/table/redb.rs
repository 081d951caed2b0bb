//! redb as the table's engine, on the world's disk. Byte table of what Nacre puts into it:
//! `docs/formats/table.md`.

use super::{Snapshot, Table};
use crate::journal::Lsn;
use crate::{StoreError, medium};
use redb::{Database, ReadOnlyTable, ReadableDatabase, StorageBackend, TableDefinition};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use world::{DiskFile, OpenMode, World};

pub(super) const KEYS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("keys");
pub(super) const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
pub(super) const META_VERSION: &str = "version";
pub(super) const META_APPLIED: &str = "applied_lsn";
const VERSION: u64 = 1;

pub fn path(dir: &str) -> String {
    format!("{dir}/table.redb")
}

/// redb's view of one of our files.
struct Backend {
    file: Arc<dyn DiskFile>,
    abandoned: Arc<AtomicBool>,
}

impl Backend {
    /// redb writes something when it closes: not into a table that made it panic.
    fn in_use(&self) -> io::Result<()> {
        match self.abandoned.load(Ordering::Acquire) {
            true => Err(io::Error::other("the table is damaged")),
            false => Ok(()),
        }
    }
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("table.redb")
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.in_use()?;
        Ok(self.file.stat()?.len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.in_use()?;
        if self.file.read_at(out, offset)? != out.len() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "read behind the end of the table"));
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.in_use()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.in_use()?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.in_use()?;
        self.file.write_at(data, offset)
    }

    /// A reader that is not through yet keeps the file open for a moment; the lock is not his.
    fn close(&self) -> io::Result<()> {
        self.file.unlock()
    }
}

pub struct RedbTable {
    /// `None`: it is being closed.
    db: Option<Database>,
    pub(super) path: String,
    damaged: Arc<AtomicBool>,
    abandoned: Arc<AtomicBool>,
}

/// redb's errors in our words.
pub(super) fn failed<E: Into<redb::Error>>(what: &'static str, path: &str) -> impl FnOnce(E) -> StoreError {
    let path = path.to_string();
    move |e| match e.into() {
        redb::Error::Io(e) => StoreError::io(what, &path)(e),
        redb::Error::DatabaseClosed => StoreError::Stopped("the table was closed".into()),
        redb::Error::Corrupted(why) => StoreError::damaged("table", &path, why),
        e => StoreError::damaged("table", &path, format!("{what}: {e}")),
    }
}

/// Bytes of the checksum before each stored value.
const CHECKSUM_BYTES: usize = 4;

/// crc32c over key length, key and value: redb does not check its pages when it reads them.
pub(super) fn checksum(key: &[u8], value: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut d = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    d.update(&(key.len() as u32).to_le_bytes());
    d.update(key);
    d.update(value);
    (d.finalize() as u32).to_le_bytes()
}

/// Runs something of redb, which panics on some kinds of damage: `damaged` remembers that it did.
fn guarded<T>(
    what: &'static str,
    path: &str,
    damaged: &AtomicBool,
    f: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_or_else(|_| {
        damaged.store(true, Ordering::Release);
        let why = format!("{what}: its pages make no sense (see the panic message in the log)");
        Err(StoreError::damaged("table", path, why))
    })
}

impl RedbTable {
    /// An empty table in `dir`, durable.
    pub fn create(world: &World, dir: &str) -> Result<(), StoreError> {
        let path = path(dir);
        let file = world
            .disk
            .open(&path, OpenMode::CREATE_NEW)
            .map_err(StoreError::io("cannot create table", &path))?;
        let t = RedbTable::with_file(file, path, 1 << 20, Arc::default())?;
        let what = "cannot initialise table";
        let tx = t.db().begin_write().map_err(failed(what, &t.path))?;
        {
            tx.open_table(KEYS).map_err(failed(what, &t.path))?;
            let mut meta = tx.open_table(META).map_err(failed(what, &t.path))?;
            meta.insert(META_VERSION, VERSION).map_err(failed(what, &t.path))?;
            meta.insert(META_APPLIED, 0).map_err(failed(what, &t.path))?;
        }
        tx.commit().map_err(failed(what, &t.path))
    }

    /// `shown`: what is read comes from the disk, not from what the host has in memory.
    pub fn open(world: &World, dir: &str, cache_bytes: usize, shown: bool) -> Result<RedbTable, StoreError> {
        let path = path(dir);
        let file =
            world.disk.open(&path, OpenMode::WRITE).map_err(StoreError::io("cannot open table", &path))?;
        if file.stat().map_err(StoreError::io("cannot open table", &path))?.len == 0 {
            return Err(StoreError::damaged("table", &path, "it is empty: run mkfs.nacre again"));
        }
        if !file.try_lock().map_err(StoreError::io("cannot lock table", &path))? {
            return Err(StoreError::Refused(format!(
                "table '{path}' is in use by another process (or still being closed by this one): stop that first"
            )));
        }
        if shown {
            medium::show(&*file, &path)?;
        }
        let (p, damaged) = (path.clone(), Arc::<AtomicBool>::default());
        let (t, version) = guarded("cannot open", &p, &damaged, || {
            let t = RedbTable::with_file(file, path, cache_bytes, damaged.clone())?;
            let version = t.meta(META_VERSION)?;
            Ok((t, version))
        })?;
        if version != VERSION {
            return Err(StoreError::Refused(format!(
                "table '{}' has format version {version}, this Nacre knows version {VERSION}: upgrade",
                t.path
            )));
        }
        Ok(t)
    }

    fn with_file(
        file: Arc<dyn DiskFile>,
        path: String,
        cache_bytes: usize,
        damaged: Arc<AtomicBool>,
    ) -> Result<RedbTable, StoreError> {
        let abandoned = Arc::<AtomicBool>::default();
        let db = Database::builder()
            .set_cache_size(cache_bytes)
            .create_with_backend(Backend { file, abandoned: abandoned.clone() })
            .map_err(failed("cannot open table", &path))?;
        Ok(RedbTable { db: Some(db), path, damaged, abandoned })
    }

    pub(super) fn db(&self) -> &Database {
        self.db.as_ref().expect("only a drop takes it")
    }

    fn guarded<T>(
        &self,
        what: &'static str,
        f: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        guarded(what, &self.path, &self.damaged, f)
    }

    fn meta(&self, key: &str) -> Result<u64, StoreError> {
        let what = "cannot read table";
        let tx = self.db().begin_read().map_err(failed(what, &self.path))?;
        let meta = tx.open_table(META).map_err(failed(what, &self.path))?;
        let v = meta.get(key).map_err(failed(what, &self.path))?;
        v.map(|v| v.value())
            .ok_or_else(|| StoreError::damaged("table", &self.path, format!("it has no '{key}'")))
    }
}

impl Table for RedbTable {
    fn applied(&self) -> Result<Lsn, StoreError> {
        let applied = self.guarded("cannot read", || self.meta(META_APPLIED))?;
        if applied > crate::journal::record::POSITION_MAX {
            return Err(StoreError::damaged("table", &self.path, format!("its position is {applied}")));
        }
        Ok(applied)
    }

    fn apply(&self, batch: &super::Batch, applied: Lsn) -> Result<(), StoreError> {
        self.guarded("cannot write", || super::commit::commit(self, batch, applied))
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>, StoreError> {
        let what = "cannot read table";
        self.guarded("cannot read", || {
            let tx = self.db().begin_read().map_err(failed(what, &self.path))?;
            let keys = tx.open_table(KEYS).map_err(failed(what, &self.path))?;
            let (path, damaged) = (self.path.clone(), self.damaged.clone());
            Ok(Arc::new(RedbSnapshot { keys, path, damaged }) as Arc<dyn Snapshot>)
        })
    }
}

impl Drop for RedbTable {
    /// redb writes something when it closes, and may meet damage only then.
    fn drop(&mut self) {
        self.abandoned.store(self.damaged.load(Ordering::Acquire), Ordering::Release);
        let db = self.db.take();
        let closed = self.guarded("cannot close", || {
            drop(db);
            Ok(())
        });
        if let Err(e) = closed {
            tracing::error!("{e}");
        }
    }
}

struct RedbSnapshot {
    keys: ReadOnlyTable<&'static [u8], &'static [u8]>,
    path: String,
    damaged: Arc<AtomicBool>,
}

impl RedbSnapshot {
    /// The value behind its checksum.
    fn verified<'a>(&self, key: &[u8], stored: &'a [u8]) -> Result<&'a [u8], StoreError> {
        match stored.split_first_chunk::<CHECKSUM_BYTES>() {
            Some((sum, v)) if *sum == checksum(key, v) => Ok(v),
            _ => Err(StoreError::damaged(
                "table",
                &self.path,
                format!("the checksum of key {key:02x?} differs"),
            )),
        }
    }
}

impl Snapshot for RedbSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let what = "cannot read table";
        guarded("cannot read", &self.path, &self.damaged, || {
            let v = self.keys.get(key).map_err(failed(what, &self.path))?;
            v.map(|v| self.verified(key, v.value()).map(<[u8]>::to_vec)).transpose()
        })
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let what = "cannot read table";
        if from >= to {
            return Ok(());
        }
        guarded("cannot read", &self.path, &self.damaged, || {
            for pair in self.keys.range(from..to).map_err(failed(what, &self.path))? {
                let (k, v) = pair.map_err(failed(what, &self.path))?;
                if !each(k.value(), self.verified(k.value(), v.value())?) {
                    break;
                }
            }
            Ok(())
        })
    }
}
