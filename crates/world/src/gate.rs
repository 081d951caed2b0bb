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
    /// As [`Gate::pass`], of a new name for a file.
    fn pass_rename(&self, _from: &str, to: &str) -> io::Result<()> {
        self.pass(Kind::Name, to)
    }
    /// A call that was let through has ended, well or not.
    fn passed(&self, _kind: Kind, _path: &str) {}
    /// As [`Gate::passed`], of a new name for a file.
    fn passed_rename(&self, _from: &str, to: &str) {
        self.passed(Kind::Name, to);
    }
}

/// A call that was let through, until it ends.
struct Through<'a> {
    gate: &'a dyn Gate,
    kind: Kind,
    path: &'a str,
    /// The old name, where `path` is a new one.
    from: Option<&'a str>,
}

impl<'a> Through<'a> {
    fn pass(gate: &'a dyn Gate, kind: Kind, path: &'a str) -> io::Result<Through<'a>> {
        gate.pass(kind, path)?;
        Ok(Through { gate, kind, path, from: None })
    }

    fn pass_rename(gate: &'a dyn Gate, from: &'a str, to: &'a str) -> io::Result<Through<'a>> {
        gate.pass_rename(from, to)?;
        Ok(Through { gate, kind: Kind::Name, path: to, from: Some(from) })
    }
}

impl Drop for Through<'_> {
    fn drop(&mut self) {
        match self.from {
            Some(from) => self.gate.passed_rename(from, self.path),
            None => self.gate.passed(self.kind, self.path),
        }
    }
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
        let pass = |kind| Through::pass(&*self.gate, kind, path);
        // One is out before the next is in: who closes the gate waits for nobody that waits for it.
        let created = if mode.create { Some(pass(Kind::Name)?) } else { None };
        let _through = match mode.truncate {
            true => {
                drop(created);
                Some(pass(Kind::Write)?)
            }
            false => created,
        };
        let inner = self.inner.open(path, mode)?;
        Ok(Arc::new(GatedFile { inner, path: path.to_string(), gate: self.gate.clone() }))
    }

    fn mkdir(&self, path: &str) -> io::Result<()> {
        let _through = Through::pass(&*self.gate, Kind::Name, path)?;
        self.inner.mkdir(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let _through = Through::pass_rename(&*self.gate, from, to)?;
        self.inner.rename(from, to)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        let _through = Through::pass(&*self.gate, Kind::Name, path)?;
        self.inner.unlink(path)
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        let _through = Through::pass(&*self.gate, Kind::Name, path)?;
        self.inner.rmdir(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let _through = Through::pass(&*self.gate, Kind::Read, dir)?;
        self.inner.list(dir)
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let _through = Through::pass(&*self.gate, Kind::Flush, dir)?;
        self.inner.sync_dir(dir)
    }

    fn clone_file(&self, from: &str, to: &str) -> io::Result<()> {
        let _through = Through::pass(&*self.gate, Kind::Name, to)?;
        self.inner.clone_file(from, to)
    }

    fn sync_tree(&self, dir: &str) -> io::Result<()> {
        let _through = Through::pass(&*self.gate, Kind::Flush, dir)?;
        self.inner.sync_tree(dir)
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
        let _through = Through::pass(&*self.gate, Kind::Read, &self.path)?;
        self.inner.read_at(buf, off)
    }

    fn read_bulk_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        let _through = Through::pass(&*self.gate, Kind::Read, &self.path)?;
        self.inner.read_bulk_at(buf, off)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<()> {
        let _through = Through::pass(&*self.gate, Kind::Write, &self.path)?;
        self.inner.write_at(buf, off)
    }

    fn write_bulk_at(&self, buf: &[u8], off: u64) -> io::Result<()> {
        let _through = Through::pass(&*self.gate, Kind::Write, &self.path)?;
        self.inner.write_bulk_at(buf, off)
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.inner.stat()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let _through = Through::pass(&*self.gate, Kind::Write, &self.path)?;
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let _through = Through::pass(&*self.gate, Kind::Flush, &self.path)?;
        self.inner.sync_data()
    }

    fn drop_cached(&self) -> io::Result<()> {
        let _through = Through::pass(&*self.gate, Kind::Flush, &self.path)?;
        self.inner.drop_cached()
    }

    fn allocate(&self, mode: u32, off: u64, len: u64) -> io::Result<()> {
        let _through = Through::pass(&*self.gate, Kind::Write, &self.path)?;
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

    fn unlock(&self) -> io::Result<()> {
        self.inner.unlock()
    }
}
