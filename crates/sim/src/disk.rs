//! A node's disk, as one life of the node sees it: after a crash the old life reaches nothing any more.

use crate::executor::Core;
use ::world::mem::MemDisk;
use ::world::{Disk, DiskFile, DiskSpace, OpenMode};
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
        if self.core.lock().nodes[self.node as usize].life == self.life {
            Ok(&self.disk)
        } else {
            Err(io::Error::other("this node has crashed"))
        }
    }
}

impl Disk for LifeDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.alive()?.open(path, mode)
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

    fn space(&self, path: &str) -> io::Result<DiskSpace> {
        self.alive()?.space(path)
    }
}
