//! File handles: what the kernel calls an open file or directory.

use client::{ErrorCursor, OpenHandle};
use model::mutex::Mutex;
use model::{Errno, Fid, Map};
use std::sync::Arc;

/// Most processes whose record locks went through one open file.
const LOCK_OWNERS_MAX: usize = 4096;

/// An open regular file, device node or the like.
pub struct FileHandle {
    pub file: Arc<OpenHandle>,
    /// Owners that took POSIX locks through this handle: `F_OFD_*` locks are given back with it, because the
    /// kernel sends no unlock for them.
    lock_owners: Mutex<Vec<u64>>,
}

impl FileHandle {
    pub fn new(file: OpenHandle) -> FileHandle {
        FileHandle { file: Arc::new(file), lock_owners: Mutex::new(Vec::new()) }
    }

    /// `ENOLCK` when too many did already.
    pub fn note_lock_owner(&self, owner: u64) -> Result<(), Errno> {
        let mut v = self.lock_owners.lock();
        if !v.contains(&owner) {
            if v.len() >= LOCK_OWNERS_MAX {
                return Err(Errno::ENOLCK);
            }
            v.push(owner);
            assert!(v.len() <= LOCK_OWNERS_MAX, "so many owners are remembered and no more");
        }
        Ok(())
    }

    pub fn take_lock_owners(&self) -> Vec<u64> {
        std::mem::take(&mut *self.lock_owners.lock())
    }

    /// Opened for writing.
    pub fn writable(&self) -> bool {
        let mode = self.file.flags & libc::O_ACCMODE as u32;
        mode == libc::O_WRONLY as u32 || mode == libc::O_RDWR as u32
    }
}

/// An open directory. Listing needs no state: an offset is a cookie, and says where to go on.
pub struct DirHandle {
    pub fid: Fid,
    /// Up to where its users were told of errors.
    pub errors: ErrorCursor,
}

#[derive(Clone)]
pub enum Handle {
    File(Arc<FileHandle>),
    Dir(Arc<DirHandle>),
}

struct HandleTable {
    open: Map<u64, Handle>,
    next: u64,
}

/// Handle number → what it stands for. Numbers are never reused.
pub struct Handles {
    inner: Mutex<HandleTable>,
}

impl Default for Handles {
    fn default() -> Handles {
        Handles { inner: Mutex::new(HandleTable { open: Map::default(), next: 1 }) }
    }
}

impl Handles {
    fn lock(&self) -> model::mutex::MutexGuard<'_, HandleTable> {
        self.inner.lock()
    }

    pub fn insert_file(&self, h: FileHandle) -> u64 {
        Handles::insert(&mut self.lock(), Handle::File(Arc::new(h)))
    }

    pub fn insert_dir(&self, fid: Fid, errors: ErrorCursor) -> u64 {
        Handles::insert(&mut self.lock(), Handle::Dir(Arc::new(DirHandle { fid, errors })))
    }

    fn insert(t: &mut HandleTable, h: Handle) -> u64 {
        let fh = t.next;
        t.next += 1;
        let other = t.open.insert(fh, h);
        assert!(other.is_none(), "numbers of handles are never reused");
        fh
    }

    /// `EBADF` if it is none, or a directory.
    pub fn file(&self, fh: u64) -> Result<Arc<FileHandle>, Errno> {
        match self.lock().open.get(&fh) {
            Some(Handle::File(f)) => Ok(f.clone()),
            _ => Err(Errno::EBADF),
        }
    }

    /// `EBADF` if it is none, or a file.
    pub fn dir(&self, fh: u64) -> Result<Arc<DirHandle>, Errno> {
        match self.lock().open.get(&fh) {
            Some(Handle::Dir(d)) => Ok(d.clone()),
            _ => Err(Errno::EBADF),
        }
    }

    pub fn remove(&self, fh: u64) -> Option<Handle> {
        self.lock().open.remove(&fh)
    }

    pub fn count(&self) -> usize {
        self.lock().open.len()
    }
}
