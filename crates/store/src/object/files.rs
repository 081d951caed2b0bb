//! Host files of objects: open handles, what of them is not flushed yet, and actions under way.

use super::cache_use::CacheUse;
use super::location::{container_path, own_path, packed_dir};
use super::ordered::Ordered;
use super::pending::DeferredWrites;
use super::unsettled::Unsettled;
use crate::StoreError;
use crate::core::CheckpointHook;
use model::ObjectId;
use model::mutex::{Mutex, MutexGuard, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use wire::frame::crc32c;
use world::sync::Notify;
use world::{BoxFuture, DiskFile, OpenMode, World};

/// Handles kept open.
const OPEN_MAX: usize = 256;
/// Unflushed files above which a writer flushes them first.
const DIRTY_MAX: usize = 256;
const SYNC_LOCKS: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum FileKey {
    Container(u8, u32),
    Own(ObjectId),
}

#[derive(Default)]
struct FileTable {
    open: BTreeMap<FileKey, (u64, Arc<dyn DiskFile>)>,
    /// Last use → file, oldest first.
    by_age: BTreeMap<u64, FileKey>,
    clock: u64,
    dirty: BTreeMap<FileKey, Arc<dyn DiskFile>>,
    dirty_dirs: BTreeSet<String>,
    tickets: BTreeSet<u64>,
    next_ticket: u64,
    failed: Option<StoreError>,
}

pub(crate) struct Files {
    pub(super) world: World,
    pub(super) dir: String,
    state: Mutex<FileTable>,
    ticket_gone: Notify,
    /// One flush at a time: a checkpoint must not overtake one that is under way.
    flushing: world::sync::Mutex<()>,
    /// Held for reading by changes that flush a file themselves.
    own_flushes: RwLock<()>,
    /// Files (by hash) that are being flushed: one flush at a time, as only one hears of a loss.
    syncs: [Mutex<()>; SYNC_LOCKS],
    pub(super) ordered: Mutex<Ordered>,
    pub(super) pending: Mutex<DeferredWrites>,
    /// Something pending was written, or never will be.
    pub(super) applied: Notify,
    /// Somebody waits for what is pending.
    pub(super) hurry: Notify,
    pub(super) cache_use: CacheUse,
    pub(super) unsettled: Mutex<Unsettled>,
    /// One at a time sets records right.
    pub(super) settling: world::sync::Mutex<()>,
    /// There is something in it.
    pub(super) unsettled_now: Arc<Notify>,
}

/// A change whose record is submitted, but whose file is changed only after the commit. A checkpoint waits
/// for those that were there when it began. Weak: what waits in [`Files`] for a commit that never comes has
/// tickets, and must not keep the files of a target that is gone.
pub(crate) struct Ticket {
    files: Weak<Files>,
    number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(files) = self.files.upgrade() {
            files.lock().tickets.remove(&self.number);
            files.ticket_gone.notify_waiters();
        }
    }
}

impl Files {
    pub fn new(world: &World, dir: &str) -> Arc<Files> {
        Arc::new(Files {
            world: world.clone(),
            dir: dir.to_string(),
            state: Mutex::default(),
            ticket_gone: Notify::new(),
            flushing: world::sync::Mutex::new(()),
            own_flushes: RwLock::new(()),
            syncs: std::array::from_fn(|_| Mutex::new(())),
            ordered: Mutex::default(),
            pending: Mutex::default(),
            applied: Notify::new(),
            hurry: Notify::new(),
            cache_use: CacheUse::of_disk(world, dir),
            unsettled: Mutex::default(),
            settling: world::sync::Mutex::new(()),
            unsettled_now: Arc::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, FileTable> {
        self.state.lock()
    }

    pub fn path(&self, key: FileKey) -> String {
        match key {
            FileKey::Container(class, n) => container_path(&self.dir, class, n),
            FileKey::Own(id) => own_path(&self.dir, id),
        }
    }

    /// A handle; containers come into being here.
    pub fn get(&self, key: FileKey) -> Result<Arc<dyn DiskFile>, StoreError> {
        if let Some(f) = self.lock().touch(key) {
            return Ok(f);
        }
        let path = self.path(key);
        let what = "cannot open object file";
        let file = match self.world.disk.open(&path, OpenMode::WRITE) {
            Err(e) if matches!(key, FileKey::Container(..)) && e.kind() == std::io::ErrorKind::NotFound => {
                let f = self.world.disk.open(&path, OpenMode::CREATE).map_err(StoreError::io(what, &path))?;
                self.mark_dir(packed_dir(&self.dir));
                f
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(StoreError::damaged("object file", &path, "it is missing: run nacre fsck"));
            }
            other => other.map_err(StoreError::io(what, &path))?,
        };
        self.keep(key, file.clone());
        Ok(file)
    }

    /// Remembers a handle that was opened elsewhere.
    pub fn keep(&self, key: FileKey, file: Arc<dyn DiskFile>) {
        self.lock().insert(key, file);
    }

    /// The file changed in the page cache: to be called after the change and before its record is submitted.
    pub fn mark(&self, key: FileKey, file: Arc<dyn DiskFile>) {
        self.lock().dirty.insert(key, file);
        if let FileKey::Own(id) = key {
            self.unsettle(id);
        }
    }

    pub fn mark_dir(&self, dir: String) {
        self.lock().dirty_dirs.insert(dir);
    }

    /// Everything in the file is durable; no change may be under way.
    pub fn clean(&self, key: FileKey) {
        self.lock().dirty.remove(&key);
    }

    /// The file is going away.
    pub fn forget(&self, key: FileKey) {
        let mut s = self.lock();
        s.dirty.remove(&key);
        if let Some((age, _)) = s.open.remove(&key) {
            let was = s.by_age.remove(&age);
            assert_eq!(was, Some(key), "an open file has its age");
        }
    }

    pub fn ticket(self: &Arc<Self>) -> Ticket {
        let mut s = self.lock();
        let number = s.next_ticket;
        s.next_ticket += 1;
        let new = s.tickets.insert(number);
        assert!(new, "each change has a ticket of its own");
        Ticket { files: Arc::downgrade(self), number }
    }

    /// The file of an object may have other blocks from now on.
    pub(super) fn unsettle(&self, id: ObjectId) {
        self.unsettled.lock().add(id);
        self.unsettled_now.notify_one();
    }

    /// Nobody knows which, so all are to be looked at.
    pub(super) fn unsettle_all(&self) {
        let mut u = self.unsettled.lock();
        (u.all, u.again) = (true, true);
    }

    /// Waits until nothing that was changed is still to be done.
    pub(super) async fn finished(&self) {
        loop {
            let gone = self.ticket_gone.notified();
            if self.lock().tickets.is_empty() {
                return;
            }
            self.hurry();
            gone.await;
        }
    }

    /// A flush by a change itself (blocks). The host reports the loss of a file's pages only once: if it is
    /// reported here, a checkpoint that flushes the same file must not take the second answer for the truth.
    pub fn flush_by_change(&self, f: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        let _under_way = self.own_flushes.read();
        let flushed = f();
        if let Err(e) = &flushed {
            self.failed(e);
        }
        flushed
    }

    /// Flushes one file (blocks). The host tells only one of those that flush a file that its pages are lost:
    /// the others learn it here.
    pub(super) fn sync(&self, key: FileKey, f: &dyn DiskFile) -> Result<(), StoreError> {
        let n = match key {
            FileKey::Container(class, n) => usize::from(class) + n as usize,
            FileKey::Own(id) => crc32c(&id.to_bytes()) as usize,
        };
        let _alone = self.syncs[n % SYNC_LOCKS].lock();
        if let Some(e) = &self.lock().failed {
            return Err(e.clone());
        }
        f.sync_data()
            .map_err(StoreError::io("cannot flush object file", &self.path(key)))
            .inspect_err(|e| self.failed(e))
    }

    /// Flushes a folder (blocks).
    pub(super) fn sync_dir(&self, dir: &str) -> Result<(), StoreError> {
        let done = self.world.disk.sync_dir(dir).map_err(StoreError::io("cannot flush the folder", dir));
        done.inspect_err(|e| self.failed(e))
    }

    /// Something is not in a file that a record says is: no flush succeeds any more.
    pub(super) fn failed(&self, e: &StoreError) {
        self.lock().failed.get_or_insert(e.clone());
    }

    pub fn too_dirty(&self) -> bool {
        self.lock().dirty.len() >= DIRTY_MAX
    }

    /// Makes everything that was marked so far durable. A failure is final.
    pub async fn flush_marked(self: Arc<Self>) -> Result<(), StoreError> {
        let _one = self.flushing.lock().await;
        let me = self.clone();
        // The closure holds nothing of this future: should the caller go away meanwhile, the next flush
        // could begin too early. So the whole is only called from tasks that run to their end.
        self.world
            .blocking(move || {
                let (files, dirs) = {
                    let mut s = me.lock();
                    if let Some(e) = &s.failed {
                        return Err(e.clone());
                    }
                    (std::mem::take(&mut s.dirty), std::mem::take(&mut s.dirty_dirs))
                };
                let flushed = me.flush_these(&files, &dirs);
                // Flushes of changes that began meanwhile may have got an error that belongs here.
                drop(me.own_flushes.write());
                let mut s = me.lock();
                if let Err(e) = flushed {
                    s.failed.get_or_insert(e);
                }
                s.failed.clone().map_or(Ok(()), Err)
            })
            .await
    }

    fn flush_these(
        &self,
        files: &BTreeMap<FileKey, Arc<dyn DiskFile>>,
        dirs: &BTreeSet<String>,
    ) -> Result<(), StoreError> {
        for (key, f) in files {
            self.sync(*key, &**f)?;
            // Where bytes go is decided when they are flushed.
            if let FileKey::Own(id) = key {
                self.unsettle(*id);
            }
        }
        dirs.iter().try_for_each(|d| self.sync_dir(d))
    }
}

impl FileTable {
    fn touch(&mut self, key: FileKey) -> Option<Arc<dyn DiskFile>> {
        let (age, file) = self.open.get_mut(&key)?;
        self.clock += 1;
        let was = self.by_age.remove(age);
        assert_eq!(was, Some(key), "an open file has its age");
        self.by_age.insert(self.clock, key);
        *age = self.clock;
        Some(file.clone())
    }

    fn insert(&mut self, key: FileKey, file: Arc<dyn DiskFile>) {
        self.clock += 1;
        if let Some((age, _)) = self.open.insert(key, (self.clock, file)) {
            self.by_age.remove(&age);
        }
        self.by_age.insert(self.clock, key);
        if self.open.len() > OPEN_MAX {
            let (_, oldest) = self.by_age.pop_first().expect("as many ages as files");
            self.open.remove(&oldest);
        }
        assert_eq!(self.open.len(), self.by_age.len(), "as many ages as files");
    }
}

impl CheckpointHook for Files {
    fn flush(self: Arc<Self>) -> BoxFuture<Result<(), StoreError>> {
        Box::pin(async move {
            let before = self.lock().next_ticket;
            loop {
                let gone = self.ticket_gone.notified();
                if self.lock().tickets.first().is_none_or(|t| *t >= before) {
                    break;
                }
                self.hurry();
                gone.await;
            }
            self.flush_marked().await
        })
    }
}
