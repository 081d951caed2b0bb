//! Files and the objects that their bytes lie in: from layouts and ranges of files to ranges of objects.
//!
//! `map` is pure: which pieces of a request go to which object, and what the objects' answers mean for the
//! file. `file` is what is known of one file, `pin` gets locks on several objects and holds them for an
//! operation, `read`, `write` and `change` are the operations, `streams` decides what to read in advance,
//! `readahead` does, `glimpse` asks for sizes and times, `glimpselist` for those of many files, `group` is
//! for processes that share a lock.
//!
//! What cannot be done under locks (contended objects, layouts that are not understood here) goes through the
//! servers: see `llite/write.rs`, `llite/read.rs`.

mod change;
pub(crate) mod file;
mod glimpse;
mod glimpselist;
mod group;
pub(crate) mod map;
pub(crate) mod params;
pub(crate) mod pin;
mod read;
mod readahead;
pub(crate) mod streams;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use file::{File, LayoutHolder};
pub(crate) use glimpse::{Placed, glimpse, outdate_unsent};
pub(crate) use glimpselist::glimpse_each;
pub(crate) use group::GroupLock;
pub(crate) use read::read_len;
pub(crate) use write::{WriteGuard, Written, check_end, wants};

use crate::base::Context;
use crate::osc::{Object, ObjectCache, Osc};
use crate::{BoxFutureOf, R};
use model::mutex::{Mutex, MutexGuard};
use model::{Fid, Layout, Map, Set, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use streams::AheadStats;
use world::future::join_all;

/// `llite.*.max_cached_mb` unless set otherwise: bytes read and written that are kept.
pub(crate) const CACHED_DEFAULT_MB: u64 = 1024;
/// What of that small files may take that lie with their inodes.
pub(crate) fn content_share(max_cached_bytes: u64) -> u64 {
    max_cached_bytes / 4
}

/// `llite.*.max_read_ahead_per_file_mb` unless set otherwise.
pub(crate) const READ_AHEAD_PER_FILE_DEFAULT_MB: u64 = 32;
/// Files of which locks are held; the least recently used are given up beyond.
const FILES_MAX: usize = 10_000;

#[derive(Default)]
struct Files {
    /// By their newest layout.
    now: Map<Fid, Arc<File>>,
    /// By older layouts: something of them may go on, or be lost.
    before: Vec<Arc<File>>,
}

impl Files {
    /// Those by older layouts go of which nothing is kept any more.
    fn forget_idle(&mut self, cache: &ObjectCache) {
        let Files { now, before } = self;
        before.retain(|f| {
            let newer = now.get(&f.fid).map(|n| &**n);
            let idle = Arc::strong_count(f) == 1 && f.is_idle(newer);
            if idle {
                f.objects.iter().filter(|o| newer.is_none_or(|n| !n.has(o))).for_each(|o| cache.remove(o));
            }
            !idle
        });
    }
}

/// The files of a mount of whose data something is kept.
pub(crate) struct Lov {
    cx: Arc<Context>,
    files: Mutex<Files>,
    shrinking: AtomicBool,
    /// Grows with each use of a file.
    clock: AtomicU64,
    pub cache: Arc<ObjectCache>,
    pub read_ahead: Arc<ReadAhead>,
}

/// Settings and counters of reading ahead, which all files share.
pub(crate) struct ReadAhead {
    /// `max_read_ahead_per_file_mb`, in bytes.
    pub max_per_file: AtomicU64,
    pub stats: AheadStats,
}

impl Lov {
    pub(crate) fn new(cx: Arc<Context>, cache: Arc<ObjectCache>, now: Timestamp) -> Lov {
        Lov {
            cx,
            files: Mutex::default(),
            shrinking: AtomicBool::new(false),
            clock: AtomicU64::new(0),
            cache,
            read_ahead: Arc::new(ReadAhead {
                max_per_file: AtomicU64::new(READ_AHEAD_PER_FILE_DEFAULT_MB << 20),
                stats: AheadStats::new(now),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock()
    }

    pub(crate) fn all_files(&self) -> Vec<Arc<File>> {
        let mut all: Vec<Arc<File>> = {
            let files = self.lock();
            files.now.values().chain(&files.before).cloned().collect()
        };
        all.sort_by_key(|f| (f.fid, f.layout.generation));
        all
    }

    /// The file by its newest layout, if anything is known of it.
    pub(crate) fn known(&self, fid: Fid) -> Option<Arc<File>> {
        self.lock().now.get(&fid).cloned()
    }

    /// Files of which something may be kept.
    pub(crate) fn fids(&self) -> Vec<Fid> {
        self.lock().now.keys().copied().collect()
    }

    /// The file by each layout of which something may be kept.
    pub(crate) fn by_all_layouts(&self, fid: Fid) -> Vec<Arc<File>> {
        let files = self.lock();
        let before = files.before.iter().filter(|f| f.fid == fid);
        before.chain(files.now.get(&fid)).cloned().collect()
    }

    pub(crate) fn touch(&self, f: &File) {
        f.touch(self.clock.fetch_add(1, Ordering::Relaxed));
    }

    /// The file with these objects, known from now on if it was not; by a newer layout it takes the place of
    /// what was known. How many are known.
    pub(crate) fn open(
        &self,
        fid: Fid,
        layout: &Arc<Layout>,
        oscs: Vec<Arc<Osc>>,
        holder: Arc<dyn LayoutHolder>,
    ) -> (Arc<File>, usize) {
        let mut files = self.lock();
        let old = files.now.get(&fid).cloned();
        if let Some(f) = old.as_ref().filter(|f| f.layout.generation >= layout.generation) {
            return (f.clone(), files.now.len());
        }
        let shared = (self.cx.clone(), self.read_ahead.clone(), holder);
        let f = File::new(shared, fid, layout.clone(), oscs, old.as_deref());
        let carried = |o: &&Arc<Object>| old.as_ref().is_some_and(|old| old.has(o));
        f.objects.iter().filter(|o| !carried(o)).for_each(|o| self.cache.add(o));
        assert_eq!(f.objects.len(), layout.object_count(), "{fid} has the objects of its layout");
        files.now.insert(fid, f.clone());
        files.before.extend(old);
        files.forget_idle(&self.cache);
        (f, files.now.len())
    }

    /// Gives up the least recently used tenth of the files, in the background, if there are too many.
    pub(crate) fn shrink_files(self: &Arc<Self>, count: usize) {
        if count <= FILES_MAX || self.shrinking.swap(true, Ordering::SeqCst) {
            return;
        }
        let me = self.clone();
        self.cx.world.spawn("client-shrink", async move {
            let mut all = me.all_files();
            all.sort_by_key(|f| f.used());
            all.truncate(FILES_MAX / 10);
            for f in all {
                f.give_up_locks().await;
                let fid = f.fid;
                drop(f);
                me.forget_if_idle(fid);
            }
            me.shrinking.store(false, Ordering::SeqCst);
        });
    }

    /// Drops a file of which nothing is kept and that nobody uses.
    fn forget_if_idle(&self, fid: Fid) {
        let mut files = self.lock();
        files.forget_idle(&self.cache);
        let of_older = files.before.iter().any(|f| f.fid == fid);
        let idle = files.now.get(&fid).is_some_and(|f| Arc::strong_count(f) == 1 && f.is_idle(None));
        if idle
            && !of_older
            && let Some(f) = files.now.remove(&fid)
        {
            f.objects.iter().for_each(|o| self.cache.remove(o));
        }
    }
}

/// Whether the data of a file with this layout can be kept: it has objects. What lies with the inode is kept
/// with the inode.
pub(crate) fn cacheable(l: &Layout) -> bool {
    l.has_objects() && map::supported(l).is_ok()
}

impl File {
    /// Writes all that is there now and waits for it.
    pub(crate) async fn flush(&self) -> R<()> {
        self.objects.iter().for_each(Object::kick);
        for o in &self.objects {
            o.flush_range(0, u64::MAX).await?;
        }
        Ok(())
    }

    /// Writes all that is there now, waits for it, and tells which OSTs have all of it on disk by now, with
    /// everything that they had executed before: those that were sent what the file had for them as one
    /// durable write.
    pub(crate) async fn flush_durably(&self) -> R<Set<u16>> {
        use crate::osc::Flushed;
        let each =
            self.objects.iter().map(|o| -> BoxFutureOf<'_, R<Flushed>> { Box::pin(o.flush_durably()) });
        let done = join_all(each.collect()).await.into_iter().collect::<R<Vec<Flushed>>>()?;
        let (mut safe, mut unsafe_) = (Set::default(), Set::default());
        for (o, flushed) in self.objects.iter().zip(done) {
            let ost = o.osc.target.id.index;
            match flushed {
                Flushed::Nothing => {}
                Flushed::Durably => drop(safe.insert(ost)),
                Flushed::Plainly => drop(unsafe_.insert(ost)),
            }
        }
        Ok(safe.difference(&unsafe_).copied().collect())
    }

    /// Waits until `bytes` more may be dirty for the OSTs of these stripes. Interruptible; whoever waits
    /// holds nothing.
    pub(crate) async fn room(&self, stripes: &[usize], bytes: u64) {
        for s in stripes {
            let osc = &self.objects[*s].osc;
            osc.cache.room(osc, bytes).await;
        }
    }

    /// Gives up all locks that nobody uses.
    pub(crate) async fn give_up_locks(&self) {
        for o in &self.objects {
            o.give_up_locks().await;
        }
    }
}
