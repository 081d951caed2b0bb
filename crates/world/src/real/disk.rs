//! The host's file system by plain system calls: interrupted ones are repeated, short ones completed.

use crate::{Disk, DiskFile, DiskSpace, FileStat, OpenMode};
use rustix::fs::{self, FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Files and folders of the host.
pub struct RealDisk;

struct RealFile {
    fd: OwnedFd,
}

impl Disk for RealDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut flags = OFlags::CLOEXEC | if mode.write { OFlags::RDWR } else { OFlags::RDONLY };
        flags.set(OFlags::CREATE, mode.create);
        flags.set(OFlags::EXCL, mode.create && mode.exclusive);
        flags.set(OFlags::TRUNC, mode.truncate);
        let fd = retry_on_intr(|| fs::open(path, flags, Mode::from_raw_mode(0o600)))?;
        Ok(Arc::new(RealFile { fd }))
    }

    fn mkdir(&self, path: &str) -> io::Result<()> {
        Ok(fs::mkdir(path, Mode::from_raw_mode(0o700))?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(fs::rename(from, to)?)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        Ok(fs::unlink(path)?)
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        Ok(fs::rmdir(path)?)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let fd = open_dir(dir)?;
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&fd)? {
            let entry = entry?;
            // Names that are not UTF-8 are none of ours: nothing here ever makes one.
            if let Ok(name) = entry.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_string());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        match fs::lstat(path) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let fd = open_dir(dir)?;
        Ok(retry_on_intr(|| fs::fsync(&fd))?)
    }

    fn space(&self, path: &str) -> io::Result<DiskSpace> {
        let s = retry_on_intr(|| fs::statvfs(path))?;
        Ok(DiskSpace {
            total: s.f_blocks.saturating_mul(s.f_frsize),
            free: s.f_bfree.saturating_mul(s.f_frsize),
            available: s.f_bavail.saturating_mul(s.f_frsize),
            files: s.f_files,
            files_free: s.f_ffree,
        })
    }
}

fn open_dir(dir: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| fs::open(dir, flags, Mode::empty()))?)
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match retry_on_intr(|| rustix::io::pread(&self.fd, &mut buf[done..], off + done as u64))? {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match retry_on_intr(|| rustix::io::pwrite(&self.fd, &buf[done..], off + done as u64))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => done += n,
            }
        }
        Ok(())
    }

    fn stat(&self) -> io::Result<FileStat> {
        let s = fs::fstat(&self.fd)?;
        Ok(FileStat { len: s.st_size as u64, blocks: s.st_blocks as u64 })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| fs::ftruncate(&self.fd, len))?)
    }

    fn sync_data(&self) -> io::Result<()> {
        // EINTR only: a failed flush is never tried again, the pages may be clean by then.
        Ok(retry_on_intr(|| fs::fdatasync(&self.fd))?)
    }

    fn allocate(&self, mode: u32, off: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::from_bits_retain(mode);
        Ok(retry_on_intr(|| fs::fallocate(&self.fd, flags, off, len))?)
    }

    fn seek_data(&self, off: u64) -> io::Result<Option<u64>> {
        found(retry_on_intr(|| fs::seek(&self.fd, SeekFrom::Data(off))))
    }

    fn seek_hole(&self, off: u64) -> io::Result<Option<u64>> {
        found(retry_on_intr(|| fs::seek(&self.fd, SeekFrom::Hole(off))))
    }

    fn try_lock(&self) -> io::Result<bool> {
        match retry_on_intr(|| fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

fn found(r: Result<u64, Errno>) -> io::Result<Option<u64>> {
    match r {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(e) => Err(e.into()),
    }
}
