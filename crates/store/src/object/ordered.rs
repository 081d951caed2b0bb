//! Bytes that reach an object's own file without the journal: the file is flushed with the group commit that
//! covers their record, just before the journal is.
//!
//! Such a write goes where no checksum is: behind the object's end, or into holes. Blocks without a checksum
//! are zeros whatever their file holds, so nobody sees it without its record. The host may write the record
//! to the disk first; its checksums say at the next start whether the bytes are there. Why that is sound:
//! `docs/decisions/0012-data-flushed-with-the-group.md`.

use super::Objects;
use super::change::Change;
use super::files::{FileKey, Files};
use super::location::{self, Location, ObjectRecord};
use super::redo::Redo;
use super::sums::BLOCK_BYTES;
use super::write::Destination;
use crate::core::{Core, PreCommitHook};
use crate::{Lsn, StoreError};
use model::ObjectId;
use model::mutex::MutexGuard;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use wire::frame::crc32c;
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

impl Objects {
    /// How a large write to the object's own file goes: over no byte that has a checksum it goes to the page
    /// cache, and is flushed with its record, or before it if a start might do something else with the file
    /// behind its back.
    pub(super) fn order_of(
        &self,
        id: ObjectId,
        old: &ObjectRecord,
        off: u64,
        end: u64,
    ) -> Result<Destination, StoreError> {
        if self.goes_over(id, old, off, end)? {
            return Ok(Destination::Own);
        }
        let applied = self.db.core().state.borrow().applied;
        Ok(if self.files.is_shaken(id, applied) { Destination::OwnFlushed } else { Destination::OwnInOrder })
    }

    /// Whether any byte from `off` to `end` lies in a block of the object that has a checksum, or may count
    /// without one.
    pub(super) fn goes_over(
        &self,
        id: ObjectId,
        old: &ObjectRecord,
        off: u64,
        end: u64,
    ) -> Result<bool, StoreError> {
        let size = old.attr.size;
        Ok(off < size
            && (!old.summed
                || self.any_sum(id, old, off / BLOCK_BYTES, end.min(size).div_ceil(BLOCK_BYTES))?))
    }

    /// The object's own file, for writes that the journal lacks.
    pub(super) fn file_in_order(&self, c: &Change) -> Result<Arc<dyn DiskFile>, StoreError> {
        let file = self.files.get(FileKey::Own(c.id))?;
        let len = file.stat().map_err(|e| self.own_error(c, e))?.len;
        if len > c.size() {
            // What an unfinished change left: gone for good before anything is built on it.
            self.cut_now(c, &*file)?;
        }
        Ok(file)
    }

    /// Writes to the object's own file, which is flushed with the record.
    pub(super) fn write_in_order(
        &self,
        c: &mut Change,
        off: u64,
        data: &[u8],
    ) -> Result<Location, StoreError> {
        let file = self.file_in_order(c)?;
        let range = self.write_ordered(c, &file, off, data, c.fill)?;
        c.relied = Some(Relied { key: FileKey::Own(c.id), file, dir: None, ranges: vec![range] });
        Ok(Location::Own)
    }

    /// Writes bytes to the object's own file, with zeros before and behind them, and notes what a start looks
    /// for. Returns the range that the record relies on.
    pub(super) fn write_ordered(
        &self,
        c: &mut Change,
        file: &Arc<dyn DiskFile>,
        off: u64,
        data: &[u8],
        fill: (u64, u64),
    ) -> Result<(u64, u64), StoreError> {
        assert!(fill.0 < BLOCK_BYTES && fill.1 < BLOCK_BYTES, "zeros fill up no more than a block");
        let range = (off - fill.0, off + data.len() as u64 + fill.1);
        let zeros = [0; BLOCK_BYTES as usize];
        let done = file
            .write_at(&zeros[..fill.0 as usize], range.0)
            .and_then(|()| self.files.write_bulk(&**file, data, off))
            .and_then(|()| file.write_at(&zeros[..fill.1 as usize], off + data.len() as u64));
        self.written(c, file, done)?;
        self.note_ordered(c, range, &[(off, data)])?;
        Ok(range)
    }

    /// Cuts the file to the object's size, durably, as no record says it.
    pub(super) fn cut_now(&self, c: &Change, file: &dyn DiskFile) -> Result<(), StoreError> {
        let key = FileKey::Own(c.id);
        file.set_len(c.size()).map_err(StoreError::io("cannot cut object file", &self.files.path(key)))?;
        self.files.flush_by_change(|| self.files.sync(key, file)).map_err(|e| self.lost(e))
    }

    /// The change's record is to be committed only after these ranges of its file were flushed. `parts`: what
    /// was written where, the last of them the caller's data, of which the change knows the checksums of
    /// whole blocks; zeros elsewhere.
    fn rely_on(
        &self,
        c: &mut Change,
        file: Arc<dyn DiskFile>,
        dir: Option<String>,
        ranges: &[(u64, u64)],
        parts: &[(u64, &[u8])],
    ) -> Result<(), StoreError> {
        for range in ranges {
            self.note_ordered(c, *range, parts)?;
        }
        c.relied = Some(Relied { key: FileKey::Own(c.id), file, dir, ranges: ranges.to_vec() });
        Ok(())
    }

    /// What a start looks for in one of the ranges that a record relies on; see [`Objects::rely_on`].
    fn note_ordered(
        &self,
        c: &mut Change,
        (from, to): (u64, u64),
        parts: &[(u64, &[u8])],
    ) -> Result<(), StoreError> {
        let &(off, data) = parts.last().expect("something was written");
        let end = off + data.len() as u64;
        let mut crcs = Vec::with_capacity(((to - from) / BLOCK_BYTES) as usize + 2);
        for (a, b) in pieces(from, to) {
            let known = if b - a == BLOCK_BYTES && off <= a && b <= end {
                self.sum(c, a / BLOCK_BYTES)?
            } else {
                None
            };
            crcs.push(known.unwrap_or_else(|| crc_of(a, b, parts)));
        }
        c.redo.push(Redo::Ordered { object: c.id, offset: from, len: to - from, crcs });
        Ok(())
    }

    /// A file of its own for the object's bytes and the written ones, flushed with the record.
    pub(super) fn write_new_own(
        &self,
        c: &mut Change,
        off: u64,
        data: &[u8],
    ) -> Result<Location, StoreError> {
        let (file, content) = self.create_own(c)?;
        self.files.write_bulk(&*file, data, off).map_err(|e| self.own_error(c, e))?;
        let (size, end) = (c.size(), off + data.len() as u64);
        assert!(end > size, "within its size an object keeps its place");
        let all = [(0, if off <= size { end } else { size }), (off, end)];
        let ranges = if off <= size { &all[..1] } else { &all[usize::from(size == 0)..] };
        let dir = location::own_dir(&self.dir, c.id);
        self.rely_on(c, file, Some(dir), ranges, &[(0, &content), (off, data)])?;
        Ok(Location::Own)
    }
}

/// crc32c of bytes `from..to` (at most a block), made of `parts`, later ones over earlier ones.
fn crc_of(from: u64, to: u64, parts: &[(u64, &[u8])]) -> u32 {
    let mut piece = [0; BLOCK_BYTES as usize];
    let piece = &mut piece[..(to - from) as usize];
    for (off, data) in parts {
        let (a, b) = (from.max(*off), to.min(off + data.len() as u64));
        if a < b {
            piece[(a - from) as usize..(b - from) as usize]
                .copy_from_slice(&data[(a - off) as usize..(b - off) as usize]);
        }
    }
    crc32c(piece)
}

/// The pieces that block boundaries make of a range.
pub(super) fn pieces(from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut at = from;
    std::iter::from_fn(move || {
        let start = at;
        at = (start / BLOCK_BYTES + 1).saturating_mul(BLOCK_BYTES).min(to);
        (start < to).then_some((start, at))
    })
}
