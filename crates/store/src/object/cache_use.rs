//! Whether data in bulk goes through the host's page cache. Past it is faster where the device is (decision
//! 0031); on disks with heads a reader soon after the writer, or the second of many, is better served from
//! memory: there an administrator switches it on.

use super::files::Files;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
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
}

impl CacheUse {
    pub(super) fn of_disk(world: &World, dir: &str) -> CacheUse {
        let rotational = world.disk.is_rotational(dir);
        // Not by that: hosts say of virtual disks on flash that they have heads (virtio does).
        CacheUse { rotational, reads: AtomicBool::default(), writes: AtomicBool::default() }
    }
}

impl Files {
    pub(super) fn write_bulk(&self, file: &dyn DiskFile, data: &[u8], off: u64) -> io::Result<()> {
        if self.cache_use.writes.load(Relaxed) {
            file.write_at(data, off)
        } else {
            file.write_bulk_at(data, off)
        }
    }

    /// Reads all of `buf`; zeros behind the file's end.
    pub(super) fn read_padded(&self, file: &dyn DiskFile, buf: &mut [u8], off: u64) -> io::Result<()> {
        let through = self.cache_use.reads.load(Relaxed);
        let n = if through { file.read_at(buf, off) } else { file.read_bulk_at(buf, off) }?;
        buf[n..].fill(0);
        Ok(())
    }
}
