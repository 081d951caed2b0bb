//! Whether data in bulk goes through the host's page cache. Past it is faster where the device is (decision
//! 0031); on disks with heads a reader soon after the writer, or the second of many, is better served from
//! memory: there an administrator switches it on.

use super::files::Files;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use world::{DiskFile, World};

/// Settings of a target that may change while it runs.
pub struct CacheUse {
    /// The disk has heads to move.
    pub rotational: bool,
    /// What is read is kept in memory at its first read. What is there already is always read from there, and
    /// what is read twice is kept.
    pub reads: AtomicBool,
    /// What is written is kept in memory.
    pub writes: AtomicBool,
    /// Of objects in files that are longer neither is.
    pub file_max_bytes: AtomicU64,
}

impl CacheUse {
    pub(super) fn of_disk(world: &World, dir: &str) -> CacheUse {
        let rotational = world.disk.is_rotational(dir);
        // Not by that: hosts say of virtual disks on flash that they have heads (virtio does).
        let (reads, writes) = (AtomicBool::default(), AtomicBool::default());
        CacheUse { rotational, reads, writes, file_max_bytes: AtomicU64::new(u64::MAX) }
    }
}

impl CacheUse {
    /// Whether a file is short enough to stay in memory, once it ends at `end` or behind.
    fn keeps(&self, file: &dyn DiskFile, end: u64) -> io::Result<bool> {
        let most = self.file_max_bytes.load(Relaxed);
        Ok(most == u64::MAX || (end <= most && file.stat()?.len <= most))
    }
}

impl Files {
    pub(super) fn write_bulk(&self, file: &dyn DiskFile, data: &[u8], off: u64) -> io::Result<()> {
        let end = off.saturating_add(data.len() as u64);
        if self.cache_use.writes.load(Relaxed) && self.cache_use.keeps(file, end)? {
            file.write_at(data, off)
        } else {
            file.write_bulk_at(data, off)
        }
    }

    /// Reads all of `buf`; zeros behind the file's end.
    pub(super) fn read_padded(&self, file: &dyn DiskFile, buf: &mut [u8], off: u64) -> io::Result<()> {
        let through = self.cache_use.reads.load(Relaxed) && self.cache_use.keeps(file, 0)?;
        let n = if through { file.read_at(buf, off) } else { file.read_bulk_at(buf, off) }?;
        buf[n..].fill(0);
        Ok(())
    }
}
