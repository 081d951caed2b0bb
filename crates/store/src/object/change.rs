//! What all changes of an object share: lock, run where blocking does no harm, submit, and finish after
//! the commit.

use super::fallocate::allocate_or_zero;
use super::files::{FileKey, Ticket};
use super::location::{self, Location, ObjectRecord, Place};
use super::locks::Guard;
use super::ordered::Relied;
use super::pending::Waiting;
use super::redo::Redo;
use super::sums::{BLOCK_BYTES, Edit};
use super::{FinishTxn, ObjectMeta, Objects};
use crate::{Lsn, StoreError, Txn};
use model::{Errno, Fid, ObjectAttr, ObjectId, Timestamp};
use std::sync::Arc;
use wire::msg::fallocate::{FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE};
use world::{DiskFile, OpenMode};

/// One change in the making.
pub(super) struct Change {
    pub id: ObjectId,
    /// As it is now.
    pub old: ObjectRecord,
    pub redo: Vec<Redo>,
    /// The caller knows the file's owner: writes say it, other messages only say who asks.
    pub names_owner: bool,
    /// Slot taken for this change, given back if it fails.
    pub taken: Option<Place>,
    /// Own file made for this change, removed if it fails.
    pub created: bool,
    /// What it does to the checksums.
    pub sums: Edit,
    /// Zeros to be written before and behind the data: the rest of blocks that had no checksum.
    pub fill: (u64, u64),
    /// Bytes that go to a file once the record is committed.
    pub put_off: Vec<Waiting>,
    /// Bytes that are flushed before the record is.
    pub relied: Option<Relied>,
    /// Keys that go with the record.
    pub drop_keys: Vec<Vec<u8>>,
    /// Requests by layouts older than this are refused afterwards.
    pub fence: u32,
    /// What the object's mtime and ctime become, also if that is earlier.
    pub times: Option<(Timestamp, Timestamp)>,
    pub after: After,
}

/// What remains to be done once the record is committed.
#[derive(Default)]
pub(super) struct After {
    pub free: Vec<Place>,
    pub cut: Option<(ObjectId, u64)>,
    /// It became shorter within its slot: until that is committed the bytes behind its end belong to a record
    /// that a crash brings back, checksums and all, so nothing may be appended.
    pub shorter: bool,
    /// fallocate(2) that makes zeros: mode, offset, length.
    pub zero: Option<(ObjectId, u32, u64, u64)>,
    pub unlink: Vec<ObjectId>,
    /// The object's record says which checksums are to be dropped.
    pub stale: Option<ObjectId>,
    /// Destroyed objects with checksums to be dropped.
    pub leftovers: Vec<ObjectId>,
}

impl After {
    fn is_nothing(&self) -> bool {
        self.free.is_empty() && !self.holds() && self.leftovers.is_empty()
    }

    /// Whether the object stays locked until it is done.
    fn holds(&self) -> bool {
        self.cut.is_some()
            || self.shorter
            || self.zero.is_some()
            || !self.unlink.is_empty()
            || self.stale.is_some()
    }
}

impl Change {
    pub fn new(id: ObjectId, old: ObjectRecord) -> Change {
        Change {
            id,
            old,
            redo: Vec::new(),
            names_owner: false,
            taken: None,
            created: false,
            sums: Edit::default(),
            fill: (0, 0),
            put_off: Vec::new(),
            relied: None,
            drop_keys: Vec::new(),
            fence: 0,
            times: None,
            after: After::default(),
        }
    }

    pub fn size(&self) -> u64 {
        self.old.attr.size
    }

    /// Whether what was prepared fits to the place and the size that the object gets.
    fn check(&self, location: &Location, size: u64) {
        assert!(location.holds(size), "{size} bytes of object {} do not fit where they are put", self.id);
        assert!(self.taken.is_none_or(|p| *location == Location::Packed(p)), "a slot that was taken is used");
        let own = *location == Location::Own;
        assert!(own || self.old.location != Location::Own, "an object never leaves a file of its own");
        assert!(own || !self.created, "a file that was made is used");
        assert!(own || self.relied.is_none(), "only bytes in a file of its own are flushed with the record");
        let within = |w: &Waiting| w.off + w.data.len() as u64 <= size;
        assert!(self.put_off.iter().all(within), "no bytes are written behind the object's end");
        let cut = self.after.cut;
        assert!(
            cut.is_none_or(|(id, to)| own && id == self.id && to == size),
            "a cut file has the object's size"
        );
        assert!(own || self.after.zero.is_none(), "only a file of its own is zeroed after the commit");
        assert!(self.after.free.is_empty(), "the slot that a change leaves is freed when it is submitted");
    }

    pub fn is_sparse(&self) -> bool {
        self.old.location == Location::Own && self.old.attr.blocks.saturating_mul(512) < self.size()
    }
}

/// What a change leaves behind: the caller's answer, the position, and the rest of the work.
pub(super) type Done<T> = (T, Lsn, After);

/// An error of the host that casts doubt on the disk stops the target; others concern one request.
pub(super) fn unless_fatal(objects: &Objects, e: StoreError) -> StoreError {
    if matches!(e, StoreError::Io { .. }) && !e.is_harmless() {
        objects.db.core().fail(&e);
    }
    e
}

impl Objects {
    /// Locks an object for a change and loads its record; what an earlier change left undone is done first.
    pub(super) async fn begin(self: &Arc<Self>, id: ObjectId) -> Result<(Guard, ObjectRecord), StoreError> {
        let guard = self.locks.write(id).await;
        let mut old = self.load(id)?.0.unwrap_or_else(ObjectRecord::empty);
        if old.stale.is_some() {
            self.drop_stale(Some(id), &[]).await?;
            old = self.load(id)?.0.unwrap_or_else(ObjectRecord::empty);
            assert!(old.stale.is_none(), "checksums of a locked object are dropped once");
        }
        Ok((guard, old))
    }

    /// Runs `f`, here if it is quick, else on a thread that may block; then what remains after the commit,
    /// in the background, with the object still locked. Dropping the future cuts nothing short.
    pub(super) async fn run<T: Send + 'static>(
        self: Arc<Self>,
        guards: Vec<Guard>,
        quick: bool,
        f: impl FnOnce(&Objects) -> Result<Done<T>, StoreError> + Send + 'static,
    ) -> Result<(T, Lsn), StoreError> {
        let me = self.clone();
        let whole = move || {
            // Now that the object is locked: if the target stopped, the change before this one may have left
            // its cut undone because its record will never be durable, and nobody may do it in its place.
            me.db.core().check()?;
            // Taken before the record is submitted, so that no checkpoint covers the record without the rest.
            let ticket = me.files.ticket();
            let (out, lsn, after) = f(&me)?;
            me.finish_after(guards, ticket, lsn, after);
            Ok((out, lsn))
        };
        let done = if quick { whole() } else { self.world.blocking(whole).await };
        if self.files.too_dirty() {
            self.flush_some().await?;
        }
        done
    }

    fn finish_after(self: &Arc<Self>, guards: Vec<Guard>, ticket: Ticket, lsn: Lsn, after: After) {
        if after.is_nothing() {
            return;
        }
        assert!(lsn > 0, "what remains to be done waits for the commit of a record");
        let me = self.clone();
        // A slot may be given to others after the commit; the object itself need not wait for that.
        let (held, ticket) = after.holds().then_some((guards, ticket)).unzip();
        let (stale, leftovers) = (after.stale, after.leftovers.clone());
        self.world.spawn("object change", async move {
            let mut done = me.db.core().committed(lsn).await;
            let zero = after.zero;
            if done.is_ok() {
                let objects = me.clone();
                done = me.world.blocking(move || objects.apply_after(&after)).await;
                if let Err(e) = &done {
                    me.db.core().fail(e);
                }
            }
            if let (Err(_), Some((id, _, off, len))) = (&done, zero) {
                // The target has stopped. Readers of the range may get what was there before.
                me.left_open.lock().either(id, off, len);
            }
            // What follows may wait for a checkpoint.
            drop(ticket);
            if done.is_ok()
                && let Err(e) = me.drop_stale(stale, &leftovers).await
            {
                tracing::warn!("checksums that nobody needs stay until the next start: {e}");
            }
            drop(held);
        });
    }

    fn apply_after(&self, after: &After) -> Result<(), StoreError> {
        if let Some((id, size)) = after.cut {
            let key = FileKey::Own(id);
            let file = self.files.get(key)?;
            file.set_len(size).map_err(StoreError::io("cannot cut object file", &self.files.path(key)))?;
            self.files.mark(key, file);
        }
        if let Some((id, mode, off, len)) = after.zero {
            let key = FileKey::Own(id);
            let file = self.files.get(key)?;
            let done = allocate_or_zero(&*file, mode, off, len);
            self.files.mark(key, file);
            done.map_err(StoreError::io("cannot zero a range of object file", &self.files.path(key)))?;
        }
        for id in &after.unlink {
            let key = FileKey::Own(*id);
            self.files.forget(key);
            let path = self.files.path(key);
            self.world.disk.unlink(&path).map_err(StoreError::io("cannot remove object file", &path))?;
            self.files.mark_dir(location::own_dir(&self.dir, *id));
        }
        for p in &after.free {
            self.empty_slot(*p);
            self.slots.lock().release(*p);
        }
        Ok(())
    }

    /// Gives a slot's blocks back to the host, before anybody else may have it. Should it fail, or a crash
    /// undo it, the blocks stay until the slot is used again.
    fn empty_slot(&self, p: Place) {
        let key = FileKey::Container(p.class, p.container);
        let mode = FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE;
        let punched = self.files.get(key).map(|f| f.allocate(mode, p.start(), p.slot_bytes()));
        if let Ok(Err(e)) = punched {
            tracing::debug!("container '{}': space of a free slot stays taken: {e}", self.files.path(key));
        }
    }

    /// Too many files wait for a checkpoint: flush them now.
    async fn flush_some(self: &Arc<Self>) -> Result<(), StoreError> {
        let me = self.clone();
        let (tx, rx) = world::sync::oneshot::channel();
        self.world.spawn("object flush", async move {
            let r = me.files.clone().flush_marked().await;
            if let Err(e) = &r {
                me.db.core().fail(e);
            }
            let _ = tx.send(r);
        });
        rx.await.unwrap_or_else(|_| Err(StoreError::Stopped("the server is shutting down".into())))
    }

    /// Submits a change: new location and attributes, redo entries and the caller's part in one transaction.
    pub(super) fn submit(
        &self,
        mut c: Change,
        location: Location,
        size: u64,
        meta: &ObjectMeta,
        at: u64,
        finish: FinishTxn,
    ) -> Result<Done<ObjectAttr>, StoreError> {
        c.check(&location, size);
        let mut rec = ObjectRecord { location, ..c.old.clone() };
        let a = &mut rec.attr;
        a.size = size;
        a.data_version =
            meta.data_version.map_or(a.data_version.saturating_add(1), |v| v.max(a.data_version));
        if let Some(t) = meta.time {
            a.ctime = t.max(a.ctime);
            a.mtime = a.ctime;
        }
        if let Some(times) = c.times {
            (a.mtime, a.ctime) = times;
        }
        a.blocks = match &rec.location {
            Location::Inline(b) => blocks(b.len() as u64),
            Location::Packed(_) => blocks(size),
            Location::Own => a.blocks,
        };
        self.refresh_blocks(c.id, &mut rec);
        if c.names_owner || rec.file == Fid::NONE {
            (rec.uid, rec.gid, rec.projid) = (meta.uid, meta.gid, meta.projid);
        }
        if meta.file != Fid::NONE {
            rec.file = meta.file;
        }
        // Not what a client says of its layout: it could keep others from the object.
        rec.layout_generation = rec.layout_generation.max(c.fence);
        if let Location::Packed(p) = c.old.location
            && rec.location != c.old.location
        {
            c.after.free.push(p);
        }
        let mut txn = Txn::new();
        if let Err(e) = self.store_sums(&mut c, &mut rec, &mut txn) {
            self.give_up(&c);
            return Err(e);
        }
        txn.put(location::object_key(c.id), rec.encode());
        c.drop_keys.drain(..).for_each(|k| txn.delete(k));
        txn.redo = std::mem::take(&mut c.redo);
        let rewrites_bytes = Redo::rewrites_bytes(&txn.redo);
        finish(&mut txn, at, &rec.attr);
        let relied = c.relied.take();
        // Before the record: a commit that covers it flushes these, too.
        let bound = self.db.last_submitted() + 1;
        let relied_number = relied.as_ref().map(|r| {
            txn.outside = r.bytes();
            self.files.rely_on(r, bound)
        });
        let waiting = std::mem::take(&mut c.put_off);
        // From before the record, so that no checkpoint covers it without these bytes.
        let ticket = (!waiting.is_empty()).then(|| Arc::new(self.files.ticket()));
        match self.db.submit(txn) {
            Ok(lsn) => {
                if let Some(r) = relied {
                    assert!(bound <= lsn, "no record is flushed before the bytes that it relies on");
                    self.files.relied_on(c.id, &r, lsn);
                }
                self.files.note_redo(c.id, rewrites_bytes, lsn, self.db.core().state.borrow().applied);
                if let Some(t) = ticket {
                    self.files.put_off(self.db.core(), c.id, lsn, waiting, &t);
                }
                Ok((rec.attr, lsn, c.after))
            }
            Err(e) => {
                if let Some((r, n)) = relied.as_ref().zip(relied_number) {
                    self.files.release_dependency(n, r);
                }
                self.give_up(&c);
                Err(e)
            }
        }
    }

    /// Nothing about the object changed: then there is no transaction either (0). One that says nothing of
    /// the object would leave no trace on which the changes of others depend; done again after theirs, it
    /// might change something.
    pub(super) fn unchanged(&self, c: &Change) -> Done<ObjectAttr> {
        let mut rec = c.old.clone();
        self.refresh_blocks(c.id, &mut rec);
        (rec.attr, 0, After::default())
    }

    /// Takes back what a failed change prepared. The object's old state is untouched but for the bytes in
    /// the change's own range.
    pub(super) fn give_up(&self, c: &Change) {
        if let Some(p) = c.taken {
            self.slots.lock().release(p);
        }
        if c.created {
            assert!(c.old.location != Location::Own, "a file that holds an object's bytes is not removed");
            self.files.forget(FileKey::Own(c.id));
            if let Err(e) = self.world.disk.unlink(&location::own_path(&self.dir, c.id)) {
                tracing::warn!("object {}: file of a failed change stays until the next start: {e}", c.id);
            }
        }
    }

    /// The object's bytes from the beginning, unchecked (their checksums go with them), short if the rest are
    /// zeros. Only for objects that are not in a file of their own.
    pub(super) fn small_content(&self, id: ObjectId, rec: &ObjectRecord) -> Result<Vec<u8>, StoreError> {
        match &rec.location {
            Location::Inline(b) => Ok(b.to_vec()),
            Location::Packed(_) => {
                let mut buf = vec![0; usize::try_from(rec.attr.size).expect("a slot's size")];
                self.read_raw(id, rec, 0, &mut buf)?;
                Ok(buf)
            }
            Location::Own => unreachable!("never moved back"),
        }
    }

    /// Writes bytes of a slot, to the page cache and to the change's redo list.
    pub(super) fn write_slot(
        &self,
        c: &mut Change,
        p: Place,
        off: u64,
        data: bytes::Bytes,
    ) -> Result<(), StoreError> {
        assert!(off + data.len() as u64 <= p.slot_bytes(), "a slot is never overrun");
        let key = FileKey::Container(p.class, p.container);
        c.redo.push(Redo::WritePacked { object: c.id, place: p, offset: off as u32, data: data.clone() });
        if c.old.location == Location::Packed(p) && off < c.size() {
            let file = self.files.get(key)?;
            self.reserve(c, &*file, p.start(), off, data.len() as u64)?;
            c.put_off.push(Waiting { key, at: p.start() + off, off, data });
            return Ok(());
        }
        let file = self.files.get(key)?;
        let done = file.write_at(&data, p.start() + off);
        self.files.mark(key, file);
        done.map_err(StoreError::io("cannot write container", &self.files.path(key)))
    }

    /// Blocks for bytes at `off` of the object that are written later, when nobody can be told of a full disk
    /// any more; the object begins at `base` of the file. Such that are there already need nothing.
    pub(super) fn reserve(
        &self,
        c: &Change,
        file: &dyn DiskFile,
        base: u64,
        off: u64,
        len: u64,
    ) -> Result<(), StoreError> {
        let end = off + len;
        let summed = || self.all_sums(c.id, &c.old, off / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        // Blocks with checksums have their place.
        if end <= c.size() && (!c.is_sparse() || summed()?) {
            return Ok(());
        }
        match file.allocate(FALLOC_KEEP_SIZE, base + off, len) {
            Err(e) if e.kind() == std::io::ErrorKind::StorageFull => Err(StoreError::Errno(Errno::ENOSPC)),
            // A host that cannot reserve: the headroom has to do.
            _ => Ok(()),
        }
    }

    pub(super) fn take_slot(&self, c: &mut Change, class: u8) -> Place {
        assert!(c.taken.is_none(), "a change takes one slot");
        let p = self.slots.lock().take(class);
        c.taken = Some(p);
        p
    }

    /// The object's own file, cut to the object's size if an unfinished change left it longer.
    pub(super) fn own_file(&self, c: &mut Change) -> Result<Arc<dyn DiskFile>, StoreError> {
        let key = FileKey::Own(c.id);
        let path = self.files.path(key);
        let file = self.files.get(key)?;
        let len = file.stat().map_err(StoreError::io("cannot look at object file", &path))?.len;
        let size = c.size();
        if len > size {
            file.set_len(size).map_err(StoreError::io("cannot cut object file", &path))?;
            self.files.mark(key, file.clone());
            // The cut may not be on disk when this change's record is: it has to be redone with it.
            c.redo.push(Redo::Truncate { object: c.id, size });
        }
        Ok(file)
    }

    /// A file of its own with the object's present bytes, and these; to be flushed with
    /// [`Objects::flush_new_own`].
    pub(super) fn create_own(&self, c: &mut Change) -> Result<(Arc<dyn DiskFile>, Vec<u8>), StoreError> {
        assert!(!c.created, "a change makes one file");
        let content = self.small_content(c.id, &c.old)?;
        let dir = location::own_dir(&self.dir, c.id);
        match self.world.disk.mkdir(&dir) {
            Ok(()) => {
                self.flush_dir(&location::own_root(&self.dir))?;
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(StoreError::io("cannot create", &dir)(e)),
        }
        let key = FileKey::Own(c.id);
        let path = self.files.path(key);
        let mode = OpenMode { truncate: true, ..OpenMode::CREATE };
        let file =
            self.world.disk.open(&path, mode).map_err(StoreError::io("cannot create object file", &path))?;
        c.created = true;
        self.files.keep(key, file.clone());
        file.write_at(&content, 0).map_err(StoreError::io("cannot write object file", &path))?;
        Ok((file, content))
    }

    /// Bytes and name durable: the record says that nothing before it needs to be redone.
    pub(super) fn flush_new_own(&self, c: &mut Change, file: &dyn DiskFile) -> Result<(), StoreError> {
        self.flush_own(c, file)?;
        self.flush_dir(&location::own_dir(&self.dir, c.id))
    }

    fn flush_dir(&self, dir: &str) -> Result<(), StoreError> {
        self.files.flush_by_change(|| self.files.sync_dir(dir)).map_err(|e| self.lost(e))
    }

    pub(super) fn flush_own(&self, c: &mut Change, file: &dyn DiskFile) -> Result<(), StoreError> {
        let key = FileKey::Own(c.id);
        self.files.flush_by_change(|| self.files.sync(key, file)).map_err(|e| self.lost(e))?;
        self.files.clean(key);
        c.redo.push(Redo::Flushed { object: c.id });
        Ok(())
    }

    /// A failed flush stops the target, whatever its errno: nobody knows what it lost.
    pub(super) fn lost(&self, e: StoreError) -> StoreError {
        self.db.core().fail(&e);
        StoreError::Stopped(e.to_string())
    }

    pub(super) fn own_error(&self, c: &Change, e: std::io::Error) -> StoreError {
        StoreError::io("cannot change object file", &self.files.path(FileKey::Own(c.id)))(e)
    }

    /// ENOSPC if the data would leave too little room for journal and table.
    pub(super) fn need_space(&self, bytes: u64) -> Result<(), StoreError> {
        if self.db.core().space.take(bytes) { Ok(()) } else { Err(StoreError::Errno(Errno::ENOSPC)) }
    }
}

pub(super) fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(4096) * 8
}
