//! Bytes that reach an object's own file without the journal: the file is flushed with the group commit that
//! covers their record, just before the journal is.
//!
//! Such a write goes where no checksum is: behind the object's end, or into holes. Blocks without a checksum
//! are zeros whatever their file holds, so nobody sees it without its record. The host may write the record
//! to the disk first; its checksums say at the next start whether the bytes are there. Why that is sound:
//! `docs/decisions/0012-data-flushed-with-the-group.md`.

use super::files::{FileKey, Files};
use crate::core::{Core, PreCommitHook};
use crate::{Lsn, StoreError};
use model::ObjectId;
use model::mutex::MutexGuard;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use world::{BoxFuture, DiskFile};

/// Unflushed bytes above which writers wait …
const DIRTY_MAX_BYTES: usize = 128 << 20;
/// … and unflushed files.
const DIRTY_MAX_FILES: usize = 256;
/// Files that are flushed beside each other.
const FLUSHES_AT_ONCE: usize = 8;
/// Objects noted as cut or allocated before those are forgotten that no longer matter.
const SHAKEN_MIN: usize = 1024;

/// Bytes of a file that a record relies on.
pub(super) struct Relied {
    pub key: FileKey,
    pub file: Arc<dyn DiskFile>,
    /// The folder, if the file's name is new.
    pub dir: Option<String>,
    /// Of the object.
    pub ranges: Vec<(u64, u64)>,
}

impl Relied {
    pub fn bytes(&self) -> usize {
        self.ranges.iter().map(|(from, to)| (to - from) as usize).sum()
    }
}

/// A file to be flushed before any record from `bound` on is.
struct Dirty {
    number: u64,
    bound: Lsn,
    file: Arc<dyn DiskFile>,
    dir: Option<String>,
    bytes: usize,
}

/// What the next group flushes.
struct Group {
    files: Vec<(FileKey, Arc<dyn DiskFile>)>,
    dirs: BTreeSet<String>,
    bytes: usize,
}

struct Range {
    lsn: Lsn,
    from: u64,
    to: u64,
}

#[derive(Default)]
pub(crate) struct Ordered {
    queue: BTreeMap<FileKey, Dirty>,
    next: u64,
    /// In the queue, or being flushed.
    dirty_bytes: usize,
    /// Being flushed.
    flushing: usize,
    /// Written by records that may not be committed yet, oldest first.
    uncommitted: BTreeMap<ObjectId, VecDeque<Range>>,
    /// Objects whose file a start would cut or allocate again, by a record up to this one.
    shaken: BTreeMap<ObjectId, Lsn>,
    shaken_max: usize,
}

impl Ordered {
    /// Takes everything that records up to `upto` may rely on. A file's later bytes are flushed along.
    fn take(&mut self, upto: Lsn) -> Option<Group> {
        assert_eq!(self.flushing, 0, "one group of files is flushed at a time");
        let all = std::mem::take(&mut self.queue);
        let (now, later) = all.into_iter().partition::<BTreeMap<_, _>, _>(|(_, d)| d.bound <= upto);
        self.queue = later;
        if now.is_empty() {
            return None;
        }
        let mut g = Group { files: Vec::with_capacity(now.len()), dirs: BTreeSet::new(), bytes: 0 };
        for (key, d) in now {
            g.bytes += d.bytes;
            g.files.push((key, d.file));
            g.dirs.extend(d.dir);
        }
        self.flushing = g.files.len();
        Some(g)
    }

    fn is_full(&self) -> bool {
        self.dirty_bytes >= DIRTY_MAX_BYTES || self.queue.len() + self.flushing >= DIRTY_MAX_FILES
    }

    fn forget_committed(&mut self, committed: Lsn) {
        self.uncommitted.retain(|_, list| {
            while list.front().is_some_and(|r| r.lsn <= committed) {
                list.pop_front();
            }
            !list.is_empty()
        });
    }
}

impl Files {
    fn in_order(&self) -> MutexGuard<'_, Ordered> {
        self.ordered.lock()
    }

    /// To be called before the record is submitted, which will be `bound` or a later one.
    pub(super) fn rely_on(&self, r: &Relied, bound: Lsn) -> u64 {
        assert!(!r.ranges.is_empty() && r.ranges.iter().all(|(a, b)| a < b), "a record relies on bytes");
        let mut o = self.in_order();
        let (bytes, number) = (r.bytes(), o.next);
        o.next += 1;
        o.dirty_bytes += bytes;
        let new = Dirty { number, bound, file: r.file.clone(), dir: None, bytes: 0 };
        let d = o.queue.entry(r.key).or_insert(new);
        // The name is new, or was flushed with an earlier group.
        d.dir = d.dir.take().or_else(|| r.dir.clone());
        d.bound = d.bound.min(bound);
        d.bytes += bytes;
        d.number
    }

    /// There is no such record. The object's lock is held.
    pub(super) fn release_dependency(&self, number: u64, r: &Relied) {
        let mut o = self.in_order();
        // Else it is being flushed, or was.
        if let Some(d) = o.queue.get_mut(&r.key).filter(|d| d.number == number) {
            d.bytes -= r.bytes();
            if d.bytes == 0 {
                o.queue.remove(&r.key);
            }
            o.dirty_bytes -= r.bytes();
        }
    }

    /// The record is `lsn`. The object's lock is held.
    pub(super) fn relied_on(&self, object: ObjectId, r: &Relied, lsn: Lsn) {
        let mut o = self.in_order();
        let list = o.uncommitted.entry(object).or_default();
        assert!(list.back().is_none_or(|n| n.lsn < lsn), "an object's records come in order");
        list.extend(r.ranges.iter().map(|&(from, to)| Range { lsn, from, to }));
    }

    /// Waits until no uncommitted record relies on bytes `from..to` of the object, which are about to be
    /// changed by another record: so that one says in the journal that the first was durable, and no start
    /// looks for bytes that are no longer there. The object's lock is held.
    pub(super) async fn settled(
        &self,
        core: &Core,
        object: ObjectId,
        from: u64,
        to: u64,
    ) -> Result<(), StoreError> {
        let newest = {
            let o = self.in_order();
            let list = o.uncommitted.get(&object).into_iter().flatten();
            list.filter(|r| r.from < to && from < r.to).map(|r| r.lsn).max()
        };
        match newest {
            Some(lsn) => core.committed(lsn).await,
            None => Ok(()),
        }
    }

    /// Waits until there is room for more.
    pub(super) async fn room_in_order(&self, core: &Core) -> Result<(), StoreError> {
        let full = || self.in_order().is_full();
        if !full() {
            return Ok(());
        }
        // Records rely on all of it, so the committer will be at it soon, and say so.
        let mut rx = core.state.subscribe();
        rx.wait_for(|s| s.stopped.is_some() || !full()).await.expect("the sender is in core");
        core.check()
    }

    /// Remembers what a start would do again with the object's file because of record `lsn`.
    pub(super) fn note_redo(&self, object: ObjectId, rewrites_bytes: Option<bool>, lsn: Lsn, applied: Lsn) {
        let mut o = self.in_order();
        match rewrites_bytes {
            Some(true) => {
                o.shaken.insert(object, lsn);
                if o.shaken.len() > o.shaken_max {
                    o.shaken.retain(|_, l| *l > applied);
                    o.shaken_max = SHAKEN_MIN.max(2 * o.shaken.len());
                }
            }
            Some(false) => {
                o.shaken.remove(&object);
            }
            None => {}
        }
    }

    /// Whether a start might cut or allocate the object's file once more, below bytes that the journal lacks.
    pub(super) fn is_shaken(&self, object: ObjectId, applied: Lsn) -> bool {
        self.in_order().shaken.get(&object).is_some_and(|l| *l > applied)
    }

    fn flush_part(
        &self,
        files: Vec<(FileKey, Arc<dyn DiskFile>)>,
        dirs: Vec<String>,
    ) -> Result<(), StoreError> {
        self.flush_by_change(|| {
            files.iter().try_for_each(|(key, f)| self.sync(*key, &**f))?;
            dirs.iter().try_for_each(|d| self.sync_dir(d))
        })
    }
}

impl PreCommitHook for Files {
    fn prepare(self: Arc<Self>, from: Lsn, upto: Lsn) -> BoxFuture<Result<bool, StoreError>> {
        Box::pin(async move {
            let group = {
                let mut o = self.in_order();
                o.forget_committed(from - 1);
                o.take(upto)
            };
            let Some(g) = group else { return Ok(false) };
            let mut parts: Vec<(Vec<_>, Vec<_>)> = Vec::new();
            parts.resize_with(FLUSHES_AT_ONCE.min(g.files.len()), Default::default);
            let n = parts.len();
            g.files.into_iter().enumerate().for_each(|(i, f)| parts[i % n].0.push(f));
            g.dirs.into_iter().enumerate().for_each(|(i, d)| parts[i % n].1.push(d));
            let flushes: Vec<_> = parts
                .into_iter()
                .map(|(files, dirs)| {
                    let me = self.clone();
                    self.world.blocking(move || me.flush_part(files, dirs))
                })
                .collect();
            let mut done = Ok(());
            for f in flushes {
                done = done.and(f.await);
            }
            if done.is_ok() {
                let mut o = self.in_order();
                o.dirty_bytes -= g.bytes;
                o.flushing = 0;
                assert!(
                    !o.queue.is_empty() || o.dirty_bytes == 0,
                    "dirty bytes lie in files that will be flushed"
                );
            }
            done.map(|()| true)
        })
    }
}
