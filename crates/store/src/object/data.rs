//! Where the bytes of objects go: slots of containers, and files of their own.

use super::change::{After, Change};
use super::files::{FileKey, Files};
use super::location::{self, Location, Place};
use super::pending::Waiting;
use super::redo::Redo;
use super::slots::Slots;
use super::sums::BLOCK_BYTES;
use super::verify::Checksums;
use super::zeros::allocate_or_zero;
use crate::StoreError;
use crate::core::Core;
use bytes::Bytes;
use model::Errno;
use model::mutex::Mutex;
use std::sync::Arc;
use wire::msg::fallocate::{FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE};
use world::{DiskFile, OpenMode};

/// Brings the bytes of changes to where their objects lie.
pub(super) struct ObjectData {
    pub core: Arc<Core>,
    pub files: Arc<Files>,
    pub slots: Mutex<Slots>,
    pub sums: Arc<Checksums>,
}

impl ObjectData {
    /// Does what remains of a change whose record is committed.
    pub(super) fn apply_after(&self, after: &After) -> Result<(), StoreError> {
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
            self.core.world.disk.unlink(&path).map_err(StoreError::io("cannot remove object file", &path))?;
            self.files.mark_dir(location::own_dir(&self.core.dir, *id));
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

    /// Takes back what a failed change prepared. The object's old state is untouched but for the bytes in
    /// the change's own range.
    pub(super) fn give_up(&self, c: &Change) {
        if let Some(p) = c.taken {
            self.slots.lock().release(p);
        }
        if c.created {
            assert!(c.old.location != Location::Own, "a file that holds an object's bytes is not removed");
            self.files.forget(FileKey::Own(c.id));
            if let Err(e) = self.core.world.disk.unlink(&location::own_path(&self.core.dir, c.id)) {
                tracing::warn!("object {}: file of a failed change stays until the next start: {e}", c.id);
            }
        }
    }

    /// Writes bytes of a slot, to the page cache and to the change's redo list.
    pub(super) fn write_slot(
        &self,
        c: &mut Change,
        p: Place,
        off: u64,
        data: Bytes,
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
        let summed = || self.sums.all_sums(c.id, &c.old, off / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
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
    /// [`ObjectData::flush_new_own`].
    pub(super) fn create_own(&self, c: &mut Change) -> Result<(Arc<dyn DiskFile>, Vec<u8>), StoreError> {
        assert!(!c.created, "a change makes one file");
        let content = self.files.small_content(c.id, &c.old)?;
        let dir = location::own_dir(&self.core.dir, c.id);
        match self.core.world.disk.mkdir(&dir) {
            Ok(()) => {
                self.flush_dir(&location::own_root(&self.core.dir))?;
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(StoreError::io("cannot create", &dir)(e)),
        }
        let key = FileKey::Own(c.id);
        let path = self.files.path(key);
        let mode = OpenMode { truncate: true, ..OpenMode::CREATE };
        let file = self
            .core
            .world
            .disk
            .open(&path, mode)
            .map_err(StoreError::io("cannot create object file", &path))?;
        c.created = true;
        self.files.keep(key, file.clone());
        file.write_at(&content, 0).map_err(StoreError::io("cannot write object file", &path))?;
        Ok((file, content))
    }

    /// Bytes and name durable: the record says that nothing before it needs to be redone.
    pub(super) fn flush_new_own(&self, c: &mut Change, file: &dyn DiskFile) -> Result<(), StoreError> {
        self.flush_own(c, file)?;
        self.flush_dir(&location::own_dir(&self.core.dir, c.id))
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
        self.core.fail(&e);
        StoreError::Stopped(e.to_string())
    }

    pub(super) fn own_error(&self, c: &Change, e: std::io::Error) -> StoreError {
        StoreError::io("cannot change object file", &self.files.path(FileKey::Own(c.id)))(e)
    }

    /// ENOSPC if the data would leave too little room for journal and table.
    pub(super) fn need_space(&self, bytes: u64) -> Result<(), StoreError> {
        if self.core.space.take(bytes) { Ok(()) } else { Err(StoreError::Errno(Errno::ENOSPC)) }
    }

    /// Bytes for the object's own file that the record carries, with zeros before and behind them. Over bytes
    /// that are there they go once the record is committed.
    pub(super) fn write_journaled(
        &self,
        c: &mut Change,
        file: &Arc<dyn DiskFile>,
        off: u64,
        data: &Bytes,
        fill: (u64, u64),
    ) -> Result<(), StoreError> {
        let (off, data) = filled(off, data, fill);
        c.redo.push(Redo::WriteOwn { object: c.id, offset: off, data: data.clone() });
        if off >= c.size() {
            return self.written(c, file, self.files.write_bulk(&**file, &data, off));
        }
        self.reserve(c, &**file, 0, off, data.len() as u64)?;
        c.put_off.push(Waiting { key: FileKey::Own(c.id), at: off, off, data });
        Ok(())
    }

    /// Bytes for the object's own file that are durable before the record is submitted, with zeros before and
    /// behind them.
    pub(super) fn write_flushed(
        &self,
        c: &mut Change,
        file: &Arc<dyn DiskFile>,
        off: u64,
        data: &Bytes,
        fill: (u64, u64),
    ) -> Result<(), StoreError> {
        let (off, data) = filled(off, data, fill);
        self.written(c, file, self.files.write_bulk(&**file, &data, off))?;
        self.flush_own(c, &**file)
    }

    /// What came of writing to the object's own file at once. If it failed and nothing is the matter with the
    /// disk, the space of a part that was written behind the end is given back.
    pub(super) fn written(
        &self,
        c: &Change,
        file: &Arc<dyn DiskFile>,
        done: std::io::Result<()>,
    ) -> Result<(), StoreError> {
        self.files.mark(FileKey::Own(c.id), file.clone());
        let Err(e) = done else { return Ok(()) };
        let e = self.own_error(c, e);
        if e.is_harmless() {
            self.cut_now(c, &**file)?;
        }
        Err(e)
    }

    /// Cuts the file to the object's size, durably, as no record says it.
    pub(super) fn cut_now(&self, c: &Change, file: &dyn DiskFile) -> Result<(), StoreError> {
        let key = FileKey::Own(c.id);
        file.set_len(c.size()).map_err(StoreError::io("cannot cut object file", &self.files.path(key)))?;
        self.files.flush_by_change(|| self.files.sync(key, file)).map_err(|e| self.lost(e))
    }
}

/// The data with zeros before and behind it.
fn filled(off: u64, data: &Bytes, fill: (u64, u64)) -> (u64, Bytes) {
    if fill == (0, 0) {
        return (off, data.clone());
    }
    assert!(fill.0 < BLOCK_BYTES && fill.1 < BLOCK_BYTES, "zeros fill up no more than a block");
    let mut all = Vec::with_capacity(data.len() + (fill.0 + fill.1) as usize);
    all.resize(fill.0 as usize, 0);
    all.extend_from_slice(data);
    all.resize(all.len() + fill.1 as usize, 0);
    (off - fill.0, all.into())
}
