//! What this mount keeps of files' data, under extent locks of the OSTs: written bytes that are not with the servers
//! yet, bytes that were read, sizes and times.
//!
//! `pin` gets locks and holds them for an operation, `read` and `write` are the operations, `flush` sends what is
//! dirty, `revoke` gives locks back, `space` bounds all of it. `file` is what is known of one file, `segments` the
//! bytes of one object, `fill` is for pages that a kernel keeps, `pages` which those are, `beside` keeps writes apart from them, `ahead` decides what to read in advance, `group` is for processes that share a lock, `errors` remembers writes that failed.
//!
//! Below lies the uncached way (`ops/write.rs`, `ops/read.rs`): each request to the server, which keeps others off
//! meanwhile. It serves contended objects and files whose layout is not understood here.

pub(crate) mod ahead;
mod beside;
mod change;
pub(crate) mod errors;
pub(crate) mod file;
mod fill;
mod flush;
mod group;
mod pages;
mod pin;
mod prefetch;
mod read;
mod revoke;
mod segments;
mod space;
mod write;

use crate::stripe;
use crate::{Fs, R};
use ahead::AheadStats;
use errors::WriteErrors;
use file::{File, Obj};
use model::{Errno, Fid, Layout, Map, ObjectAttr, ObjectId, Timestamp};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use world::sync;

pub(crate) use fill::GRACE;
pub(crate) use group::GroupLock;
pub(crate) use space::{OstSpace, UNLOCKED_RPCS_MAX};

/// `llite.*.max_cached_mb` unless set otherwise: bytes read and written that are kept.
pub(crate) const CACHED_DEFAULT_MB: u64 = 1024;
/// What of that small files may take that lie with their inodes.
pub(crate) fn content_share(max_cached_bytes: u64) -> u64 {
    max_cached_bytes / 4
}

/// `llite.*.max_read_ahead_mb` unless set otherwise: of the whole mount, under way at a time.
pub(crate) const READ_AHEAD_DEFAULT_MB: u64 = 256;
/// `llite.*.max_read_ahead_per_file_mb` unless set otherwise.
pub(crate) const READ_AHEAD_PER_FILE_DEFAULT_MB: u64 = 32;
/// Files of which locks are held; the least recently used are given up beyond.
const FILES_MAX: usize = 10_000;
/// Segments kept altogether; they are accounted for because tiny ones cost more than their bytes.
pub(crate) const SEGMENTS_MAX: usize = 200_000;

/// Everything that a mount keeps of files' data.
pub(crate) struct Data {
    files: Mutex<Map<Fid, Arc<File>>>,
    objects: Mutex<Map<ObjectId, (Weak<File>, usize)>>,
    /// Files with bytes to write.
    dirty: Mutex<BTreeMap<Fid, Arc<File>>>,
    ticking: AtomicBool,
    shrinking: AtomicBool,
    /// Of locks, ranges under way, reads: never reused.
    next: AtomicU64,
    /// Grows with each use of a file.
    clock: AtomicU64,
    pub unwritten: AtomicU64,
    pub clean: AtomicU64,
    /// Of requests that are kept until their effect is durable, at the last look.
    pub uncommitted: AtomicU64,
    pub segments: AtomicUsize,
    /// Told when bytes were written or lost.
    pub drained: sync::Notify,
    pub errors: WriteErrors,
    pub max_cached: AtomicU64,
    pub max_read_ahead: AtomicU64,
    pub max_read_ahead_per_file: AtomicU64,
    /// Bytes being read ahead.
    pub reading_ahead: AtomicU64,
    pub ahead_stats: AheadStats,
    writing: beside::Writing,
    /// A task looks after pages of which the locks may be lost.
    watching_pages: AtomicBool,
}

impl Data {
    pub(crate) fn new(first: u64, now: Timestamp) -> Data {
        Data {
            files: Mutex::default(),
            objects: Mutex::default(),
            dirty: Mutex::default(),
            ticking: AtomicBool::new(false),
            shrinking: AtomicBool::new(false),
            next: AtomicU64::new(first),
            clock: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
            clean: AtomicU64::new(0),
            uncommitted: AtomicU64::new(0),
            segments: AtomicUsize::new(0),
            drained: sync::Notify::new(),
            errors: WriteErrors::default(),
            max_cached: AtomicU64::new(CACHED_DEFAULT_MB << 20),
            max_read_ahead: AtomicU64::new(READ_AHEAD_DEFAULT_MB << 20),
            max_read_ahead_per_file: AtomicU64::new(READ_AHEAD_PER_FILE_DEFAULT_MB << 20),
            reading_ahead: AtomicU64::new(0),
            ahead_stats: AheadStats::new(now),
            writing: beside::Writing::default(),
            watching_pages: AtomicBool::new(false),
        }
    }

    /// A number that never was.
    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn all_files(&self) -> Vec<Arc<File>> {
        let mut all: Vec<Arc<File>> =
            self.files.lock().expect("no panic while locked").values().cloned().collect();
        all.sort_by_key(|f| f.fid);
        all
    }

    /// The file of an object, if anything of it is known.
    fn of_object(&self, id: ObjectId) -> Option<(Arc<File>, usize)> {
        let objects = self.objects.lock().expect("no panic while locked");
        let (weak, stripe) = objects.get(&id)?;
        Some((weak.upgrade()?, *stripe))
    }

    /// The file, if anything is known of it.
    pub(crate) fn known(&self, fid: Fid) -> Option<Arc<File>> {
        self.files.lock().expect("no panic while locked").get(&fid).cloned()
    }

    /// Brings the totals up to date after a change of an object. Call with the file locked.
    fn account(&self, o: &mut Obj, now: world::Instant) {
        let is = (o.segs.unwritten_bytes(), o.segs.clean_bytes(), o.segs.count());
        let was = std::mem::replace(&mut o.counted, is);
        add(&self.unwritten, was.0, is.0);
        add(&o.target.data.unwritten, was.0, is.0);
        add(&self.clean, was.1, is.1);
        self.segments.fetch_add(is.2.wrapping_sub(was.2), Ordering::Relaxed);
        if o.segs.dirty_bytes() == 0 {
            o.oldest = None;
        } else if o.oldest.is_none() {
            o.oldest = Some(now);
        }
        if is.0 < was.0 {
            o.target.data.drained.notify_waiters();
            self.drained.notify_waiters();
        }
    }
}

fn add(total: &AtomicU64, was: u64, is: u64) {
    total.fetch_add(is.wrapping_sub(was), Ordering::Relaxed);
}

/// Whether the data of a file with this layout can be kept: one RAID0 component with objects. What lies with the inode
/// is not: nobody holds locks on it.
pub(crate) fn cacheable(l: &Layout) -> bool {
    stripe::component(l).is_ok_and(|c| !c.objects.is_empty())
}

impl Fs {
    /// What this mount keeps of the file; `None` if nothing may be kept of it.
    pub(crate) async fn data_file(self: &Arc<Self>, fid: Fid, layout: &Arc<Layout>) -> R<Option<Arc<File>>> {
        if !cacheable(layout) {
            return Ok(None);
        }
        let same = |f: &Arc<File>| f.layout.objects().eq(layout.objects());
        if let Some(f) = self.data.known(fid) {
            f.touch(self.data.clock.fetch_add(1, Ordering::Relaxed));
            return Ok(same(&f).then_some(f));
        }
        let mut targets = Vec::with_capacity(layout.stripe_count());
        for o in layout.objects() {
            targets.push(self.ost(o.ost).await?);
        }
        let (file, count) = {
            let mut files = self.data.files.lock().expect("no panic while locked");
            let fresh = || Arc::new(File::new(fid, layout.clone(), targets));
            let file = files.entry(fid).or_insert_with(fresh).clone();
            let mut objects = self.data.objects.lock().expect("no panic while locked");
            for (i, o) in file.layout.objects().enumerate() {
                objects.insert(o.id, (Arc::downgrade(&file), i));
            }
            (file, files.len())
        };
        file.touch(self.data.clock.fetch_add(1, Ordering::Relaxed));
        if count > FILES_MAX {
            self.shrink_files();
        }
        Ok(same(&file).then_some(file))
    }

    /// Gives up the least recently used tenth of the files, in the background.
    fn shrink_files(self: &Arc<Self>) {
        if self.data.shrinking.swap(true, Ordering::SeqCst) {
            return;
        }
        let fs = self.clone();
        self.world.spawn("client-shrink", async move {
            let mut all = fs.data.all_files();
            all.sort_by_key(|f| f.used.load(Ordering::Relaxed));
            all.truncate(FILES_MAX / 10);
            for f in all {
                fs.give_up_locks(&f).await;
                let fid = f.fid;
                drop(f);
                fs.data.forget_if_idle(fid);
            }
            fs.data.shrinking.store(false, Ordering::SeqCst);
        });
    }

    /// Attributes of objects as far as they are known here without asking: with everything written here.
    pub(crate) fn attr_if_locked(&self, id: ObjectId) -> Option<ObjectAttr> {
        let (file, stripe) = self.data.of_object(id)?;
        let objs = file.lock();
        let o = &objs[stripe];
        let usable = o.target.is_active() && o.target.data.is_leased(&self.world, &o.target);
        (usable && o.all_known()).then(|| o.attr_now())
    }

    /// The file's size, if locks of this mount keep others from changing it.
    pub fn size_if_locked(&self, fid: Fid) -> Option<u64> {
        let file = self.data.known(fid)?;
        let objs = file.lock();
        let usable = |o: &Obj| o.target.is_active() && o.target.data.is_leased(&self.world, &o.target);
        if objs.iter().all(usable) { file.size_known(&objs) } else { None }
    }

    /// What this mount adds to an object's attributes as the server tells them.
    pub(crate) fn kept_of(&self, id: ObjectId) -> Option<wire::msg::notify::KeptAttr> {
        let (file, stripe) = self.data.of_object(id)?;
        file.lock()[stripe].kept()
    }

    /// Bytes were lost: remembered until everybody was told who must know. Called before the file's lock is let
    /// go under which they went: whoever finds nothing left to write finds the error.
    fn write_lost(&self, file: &File, o: ObjectId, range: (u64, u64), e: Errno) {
        self.told.add(file.fid, e);
        self.data.errors.add(self.world.wall(), file.fid, o.to_string(), range, e);
    }
}

impl Data {
    /// Drops a file of which nothing is kept and that nobody uses.
    fn forget_if_idle(&self, fid: Fid) {
        let mut files = self.files.lock().expect("no panic while locked");
        let idle = files.get(&fid).is_some_and(|f| {
            Arc::strong_count(f) == 1
                && f.lock().iter().all(|o| {
                    o.locks.is_empty() && o.pending.is_empty() && o.segs.count() == 0 && o.busy.is_empty()
                })
        });
        if idle && let Some(f) = files.remove(&fid) {
            let mut objects = self.objects.lock().expect("no panic while locked");
            for o in f.layout.objects() {
                objects.remove(&o.id);
            }
        }
    }
}
