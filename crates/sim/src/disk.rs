//! A node's disk, as one life of the node sees it: after a crash the old life reaches nothing any more.

use crate::executor::Core;
use ::world::mem::MemDisk;
use ::world::{Disk, DiskFile, DiskSpace, FileStat, OpenMode};
use std::io;
use std::sync::Arc;

pub(crate) struct LifeDisk {
    pub(crate) core: Arc<Core>,
    pub(crate) node: u32,
    pub(crate) life: u64,
    pub(crate) disk: MemDisk,
}

impl LifeDisk {
    /// Handles of earlier lives are dead by themselves; this is for calls by path.
    fn alive(&self) -> io::Result<&MemDisk> {
        self.core.settle(self.node);
        if self.core.lock().nodes[self.node as usize].life == self.life {
            Ok(&self.disk)
        } else {
            Err(io::Error::other("this node has crashed"))
        }
    }
}

impl Disk for LifeDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if path.starts_with("/proc/") {
            let s = self.core.lock();
            let n = &s.nodes[self.node as usize];
            return match path {
                "/proc/sys/kernel/random/boot_id" => Ok(Arc::new(Text(n.boot_id(self.node)))),
                "/proc/sys/kernel/hostname" => Ok(Arc::new(Text(format!("{}{}", n.name, self.node)))),
                _ => Err(io::ErrorKind::NotFound.into()),
            };
        }
        let file = self.alive()?.open(path, mode)?;
        if !mode.write {
            return Ok(file);
        }
        let path = path.into();
        Ok(Arc::new(LifeFile { core: self.core.clone(), node: self.node, life: self.life, path, file }))
    }

    fn mkdir(&self, path: &str) -> io::Result<()> {
        self.alive()?.mkdir(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.alive()?.rename(from, to)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        self.alive()?.unlink(path)
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        self.alive()?.rmdir(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.alive()?.list(dir)
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        self.alive()?.exists(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.alive()?.sync_dir(dir)
    }

    fn clone_file(&self, from: &str, to: &str) -> io::Result<()> {
        self.alive()?.clone_file(from, to)
    }

    fn space(&self, path: &str) -> io::Result<DiskSpace> {
        let s = self.alive()?.space(path)?;
        let percent = self.core.lock().nodes[self.node as usize].used_by_others;
        let taken = s.total / 100 * percent;
        let (free, available) = (s.free.saturating_sub(taken), s.available.saturating_sub(taken));
        Ok(DiskSpace { free, available, ..s })
    }
}

/// A file of `/proc`.
struct Text(String);

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::PermissionDenied.into())
}

impl DiskFile for Text {
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        let rest = self.0.as_bytes().get(off as usize..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        read_only()
    }

    fn stat(&self) -> io::Result<FileStat> {
        Ok(FileStat { len: self.0.len() as u64, blocks: 0 })
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        read_only()
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn drop_cached(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _: u32, _: u64, _: u64) -> io::Result<()> {
        read_only()
    }

    fn seek_data(&self, _: u64) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn seek_hole(&self, _: u64) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn try_lock(&self) -> io::Result<bool> {
        Ok(false)
    }

    fn unlock(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that is written: a node may be stopped in the middle of that ([`crate::world::Stop::Change`]).
struct LifeFile {
    core: Arc<Core>,
    node: u32,
    life: u64,
    path: Arc<str>,
    file: Arc<dyn DiskFile>,
}

impl LifeFile {
    /// Keeps a change back if it comes while the node is stopped: true. What came before it has then
    /// happened; a `flush` waits with the change that it flushes.
    fn held(&self, flush: bool, change: impl FnOnce(&dyn DiskFile) + Send + 'static) -> bool {
        let mut s = self.core.lock();
        let n = &mut s.nodes[self.node as usize];
        if n.life != self.life {
            return false;
        }
        let (held, waker) = n.holds(&self.path);
        let mut before = Vec::new();
        if held {
            let file = self.file.clone();
            before = n.hold(flush, &self.path, Box::new(move || change(file.as_ref())));
        }
        drop(s);
        before.into_iter().for_each(|change| change());
        waker.into_iter().for_each(std::task::Waker::wake);
        held
    }

    fn may_hold(&self) -> bool {
        self.core.lock().nodes[self.node as usize].may_hold()
    }
}

impl DiskFile for LifeFile {
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        self.core.settle(self.node);
        self.file.read_at(buf, off)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<()> {
        if self.may_hold() {
            let data = buf.to_vec();
            if self.held(false, move |f| drop(f.write_at(&data, off))) {
                return Ok(());
            }
        }
        self.file.write_at(buf, off)
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.core.settle(self.node);
        self.file.stat()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.held(false, move |f| drop(f.set_len(len))) {
            return Ok(());
        }
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.held(true, |f| drop(f.sync_data())) {
            return Ok(());
        }
        self.file.sync_data()
    }

    fn drop_cached(&self) -> io::Result<()> {
        self.core.settle(self.node);
        self.file.drop_cached()
    }

    fn allocate(&self, mode: u32, off: u64, len: u64) -> io::Result<()> {
        if self.held(false, move |f| drop(f.allocate(mode, off, len))) {
            return Ok(());
        }
        self.file.allocate(mode, off, len)
    }

    fn seek_data(&self, off: u64) -> io::Result<Option<u64>> {
        self.core.settle(self.node);
        self.file.seek_data(off)
    }

    fn seek_hole(&self, off: u64) -> io::Result<Option<u64>> {
        self.core.settle(self.node);
        self.file.seek_hole(off)
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }

    fn unlock(&self) -> io::Result<()> {
        self.file.unlock()
    }
}
