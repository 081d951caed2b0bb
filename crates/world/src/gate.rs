//! A disk with a gate before it: each call that does something is let through, or fails without reaching the
//! disk.

use crate::{Disk, DiskFile, DiskSpace, FileStat, OpenMode};
use std::io;
use std::sync::Arc;

/// What a call does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Reads contents of files or folders.
    Read,
    /// Changes contents or sizes of files.
    Write,
    /// Flushes files or folders.
    Flush,
    /// Makes, changes or removes names.
    Name,
}

/// Who lets calls through.
pub trait Gate: Send + Sync {
    /// An error is the call's answer.
    fn pass(&self, kind: Kind, path: &str) -> io::Result<()>;
}

impl<F: Fn(Kind, &str) -> io::Result<()> + Send + Sync> Gate for F {
    fn pass(&self, kind: Kind, path: &str) -> io::Result<()> {
        self(kind, path)
    }
}

/// Another disk behind a gate.
pub struct GatedDisk {
    inner: Arc<dyn Disk>,
    gate: Arc<dyn Gate>,
}

impl GatedDisk {
    pub fn new(inner: Arc<dyn Disk>, gate: Arc<dyn Gate>) -> GatedDisk {
        GatedDisk { inner, gate }
    }
}

struct GatedFile {
    inner: Arc<dyn DiskFile>,
    path: String,
    gate: Arc<dyn Gate>,
}

impl Disk for GatedDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if mode.create {
            self.gate.pass(Kind::Name, path)?;
        }
        if mode.truncate {
            self.gate.pass(Kind::Write, path)?;
        }
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(GatedFile { inner, path: path.to_string(), gate: self.gate.clone() }))
    }

    fn mkdir(&self, path: &str) -> io::Result<()> {
        self.gate.pass(Kind::Name, path)?;
        self.inner.mkdir(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.gate.pass(Kind::Name, to)?;
        self.inner.rename(from, to)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        self.gate.pass(Kind::Name, path)?;
        self.inner.unlink(path)
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        self.gate.pass(Kind::Name, path)?;
        self.inner.rmdir(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.gate.pass(Kind::Read, dir)?;
        self.inner.list(dir)
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.gate.pass(Kind::Flush, dir)?;
        self.inner.sync_dir(dir)
    }

    fn space(&self, path: &str) -> io::Result<DiskSpace> {
        self.inner.space(path)
    }

    fn device(&self, path: &str) -> Option<u64> {
        self.inner.device(path)
    }

    fn is_rotational(&self, path: &str) -> bool {
        self.inner.is_rotational(path)
    }
}

impl DiskFile for GatedFile {
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        self.gate.pass(Kind::Read, &self.path)?;
        self.inner.read_at(buf, off)
    }

    fn read_bulk_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        self.gate.pass(Kind::Read, &self.path)?;
        self.inner.read_bulk_at(buf, off)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<()> {
        self.gate.pass(Kind::Write, &self.path)?;
        self.inner.write_at(buf, off)
    }

    fn write_bulk_at(&self, buf: &[u8], off: u64) -> io::Result<()> {
        self.gate.pass(Kind::Write, &self.path)?;
        self.inner.write_bulk_at(buf, off)
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.inner.stat()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.gate.pass(Kind::Write, &self.path)?;
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass(Kind::Flush, &self.path)?;
        self.inner.sync_data()
    }

    fn drop_cached(&self) -> io::Result<()> {
        self.gate.pass(Kind::Flush, &self.path)?;
        self.inner.drop_cached()
    }

    fn allocate(&self, mode: u32, off: u64, len: u64) -> io::Result<()> {
        self.gate.pass(Kind::Write, &self.path)?;
        self.inner.allocate(mode, off, len)
    }

    fn seek_data(&self, off: u64) -> io::Result<Option<u64>> {
        self.inner.seek_data(off)
    }

    fn seek_hole(&self, off: u64) -> io::Result<Option<u64>> {
        self.inner.seek_hole(off)
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.inner.try_lock()
    }
}
