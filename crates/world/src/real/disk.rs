//! The host's file system by plain system calls: interrupted ones are repeated, short ones completed.

use super::cached::{cached_pages, give_up};
use crate::{Disk, DiskFile, DiskSpace, FileStat, OpenMode};
use model::mutex::Mutex;
use rustix::fs::{self, FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// Files and folders of the host.
pub struct RealDisk;

struct RealFile {
    fd: OwnedFd,
    /// The same file past the page cache, opened when it is first needed; `None` where the host cannot.
    direct: OnceLock<Option<OwnedFd>>,
    /// Places of [`DIRECT_MIN_BYTES`] that were read past the page cache once.
    read_once: Mutex<BTreeSet<u64>>,
}

/// From this size on data in bulk goes past the page cache, if it and its place are aligned. Copying it there
/// costs more than the device does, most of all where the memory was not used before (docs/performance.md).
const DIRECT_MIN_BYTES: usize = 2 << 20;
/// Places of a file that are remembered, at most: 16 GiB of it.
const READ_ONCE_MAX: usize = 8192;
/// One read of a device: of 4 MiB it took longer than two of 2 MiB here (decision 0031).
const DIRECT_READ_BYTES: usize = 2 << 20;
/// No page of the cache is larger than this, and larger ones begin at multiples of their size, where the
/// kernel's small pages are of 4 KiB (elsewhere nothing goes past the cache). Writes past it begin and end at
/// such places: otherwise a small write beside one, to the same page, could be in the way of dropping that
/// page, which the kernel takes for a loss.
const CACHE_PAGE_MAX_BYTES: u64 = 2 << 20;
/// What devices want memory, offsets and lengths to be a multiple of.
const DIRECT_ALIGN: usize = 4096;

impl Disk for RealDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut flags = OFlags::CLOEXEC | if mode.write { OFlags::RDWR } else { OFlags::RDONLY };
        flags.set(OFlags::CREATE, mode.create);
        flags.set(OFlags::EXCL, mode.create && mode.exclusive);
        flags.set(OFlags::TRUNC, mode.truncate);
        let fd = retry_on_intr(|| fs::open(path, flags, Mode::from_raw_mode(0o600)))?;
        Ok(Arc::new(RealFile { fd, direct: OnceLock::new(), read_once: Mutex::default() }))
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

    fn clone_file(&self, from: &str, to: &str) -> io::Result<()> {
        let read = OFlags::RDONLY | OFlags::CLOEXEC;
        let source = retry_on_intr(|| fs::open(from, read, Mode::empty()))?;
        let new = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
        let clone = retry_on_intr(|| fs::open(to, new, Mode::from_raw_mode(0o600)))?;
        let done = retry_on_intr(|| fs::ioctl_ficlone(&clone, &source));
        done.map_err(|e| {
            // If it cannot be removed, whoever removes the folder meets it.
            let _ = fs::unlink(to);
            match e {
                // A file system without the call, and one that has it for other files.
                Errno::NOTTY | Errno::INVAL | Errno::NOSYS => Errno::OPNOTSUPP.into(),
                e => e.into(),
            }
        })
    }

    fn sync_tree(&self, dir: &str) -> io::Result<()> {
        // Of each file by itself it would be a flush each.
        let fd = open_dir(dir)?;
        Ok(retry_on_intr(|| fs::syncfs(&fd))?)
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

    fn device(&self, path: &str) -> Option<u64> {
        fs::stat(path).ok().map(|s| s.st_dev)
    }

    fn is_rotational(&self, path: &str) -> bool {
        let Ok(s) = fs::stat(path) else { return false };
        let dev = format!("/sys/dev/block/{}:{}", fs::major(s.st_dev), fs::minor(s.st_dev));
        // A partition has the queue of its disk.
        let queues = [format!("{dev}/queue/rotational"), format!("{dev}/../queue/rotational")];
        let first = |path: &String| {
            let mut c = [0; 1];
            self.open(path, OpenMode::READ).ok()?.read_at(&mut c, 0).ok().map(|_| c[0])
        };
        queues.iter().find_map(first) == Some(b'1')
    }
}

fn open_dir(dir: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| fs::open(dir, flags, Mode::empty()))?)
}

impl RealFile {
    fn direct(&self) -> Option<&OwnedFd> {
        let open = || {
            if rustix::param::page_size() != DIRECT_ALIGN {
                return None;
            }
            let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT;
            retry_on_intr(|| fs::open(&path, flags, Mode::empty())).ok()
        };
        self.direct.get_or_init(open).as_ref()
    }

    fn is_first_read(&self, place: u64) -> bool {
        let mut once = self.read_once.lock();
        if once.remove(&place) {
            return false;
        }
        if once.len() >= READ_ONCE_MAX {
            once.clear();
        }
        once.insert(place)
    }

    /// Reads past the page cache what can be; how much that was. Only what lies wholly on the device: pages
    /// of the cache are as good as read, and those that are dirty would have to be written first. What is
    /// read for the second time goes through the cache and stays there: many may want it. A scan leaves the
    /// cache as it is.
    fn read_direct(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        let aligned =
            buf.as_ptr().addr().is_multiple_of(DIRECT_ALIGN) && off.is_multiple_of(DIRECT_ALIGN as u64);
        if !aligned || buf.len() < DIRECT_MIN_BYTES {
            return Ok(0);
        }
        let Some(fd) = self.direct() else { return Ok(0) };
        let whole = buf.len() / DIRECT_ALIGN * DIRECT_ALIGN;
        if cached_pages(&self.fd, off, whole as u64) != Some(0)
            || !self.is_first_read(off / DIRECT_MIN_BYTES as u64)
        {
            return Ok(0);
        }
        aligned_moves(whole, |done| {
            let stop = whole.min(done + DIRECT_READ_BYTES);
            rustix::io::pread(fd, &mut buf[done..stop], off + done as u64)
        })
    }

    /// Writes past the page cache as far as the host can; how much that was. `off` is a multiple of the
    /// cache's largest page.
    fn write_direct(&self, buf: &[u8], off: u64) -> io::Result<usize> {
        let Some(fd) = self.direct() else { return Ok(0) };
        aligned_moves(buf.len(), |done| rustix::io::pwrite(fd, &buf[done..], off + done as u64))
    }
}

/// Reads or writes from where it is done to, until all is or the rest is for the page cache: behind the end
/// of the file, or of a file system that wants larger pieces, or moves parts of them. How much was done.
fn aligned_moves(len: usize, mut go_on: impl FnMut(usize) -> Result<usize, Errno>) -> io::Result<usize> {
    let mut done = 0;
    while done < len {
        match retry_on_intr(|| go_on(done)) {
            Ok(n) if n.is_multiple_of(DIRECT_ALIGN) && n > 0 => done += n,
            Ok(_) | Err(Errno::INVAL) => break,
            Err(e) => return Err(e.into()),
        }
    }
    assert!(done <= len, "no more is moved than was asked for");
    Ok(done)
}

/// The part of `len` bytes at `at` in memory and `off` in a file that may be written past the page cache.
fn direct_part(at: usize, off: u64, len: usize) -> Option<std::ops::Range<usize>> {
    let start = off.next_multiple_of(CACHE_PAGE_MAX_BYTES);
    let end = (off + len as u64) / CACHE_PAGE_MAX_BYTES * CACHE_PAGE_MAX_BYTES;
    if end <= start {
        return None;
    }
    let part = (start - off) as usize..(end - off) as usize;
    assert!(part.end <= len, "what goes past the cache is a part of what is written");
    (part.len() >= DIRECT_MIN_BYTES && (at + part.start).is_multiple_of(DIRECT_ALIGN)).then_some(part)
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

    fn read_bulk_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        let done = self.read_direct(buf, off)?;
        if done == buf.len() {
            Ok(done)
        } else {
            Ok(done + self.read_at(&mut buf[done..], off + done as u64)?)
        }
    }

    fn write_bulk_at(&self, buf: &[u8], off: u64) -> io::Result<()> {
        let Some(part) = direct_part(buf.as_ptr().addr(), off, buf.len()) else {
            return self.write_at(buf, off);
        };
        let from = part.start;
        self.write_at(&buf[..from], off)?;
        let done = self.write_direct(&buf[part], off + from as u64)? + from;
        self.write_at(&buf[done..], off + done as u64)
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

    fn drop_cached(&self) -> io::Result<()> {
        give_up(&self.fd)
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

    fn unlock(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| fs::flock(&self.fd, FlockOperation::Unlock))?)
    }
}

fn found(r: Result<u64, Errno>) -> io::Result<Option<u64>> {
    match r {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer;

    #[test]
    fn what_goes_past_the_page_cache_shares_no_page_with_anything() {
        const M: u64 = 1 << 20;
        let part =
            |at, off, len: u64| direct_part(at, off, len as usize).map(|r| (r.start as u64, r.end as u64));
        assert_eq!(part(0, 0, 4 * M), Some((0, 4 * M)));
        assert_eq!(part(64, 0, 4 * M), None, "memory");
        assert_eq!(part(0, M, 4 * M), Some((M, 3 * M)));
        assert_eq!(part(0, M + 4096, 4 * M), Some((M - 4096, 3 * M - 4096)));
        assert_eq!(part(0, M + 5, 4 * M), None, "memory and place do not fit");
        assert_eq!(part(4096 - 4, 4 * M - 5, 2 * M + 5), None, "memory");
        assert_eq!(part(5, 4 * M - 4091, 2 * M + 5000), Some((4091, 2 * M + 4091)), "they do");
        assert_eq!(part(0, M, 2 * M), None, "too little is left");
    }

    /// A file system that can do without the page cache is needed to see a difference; the bytes are the same
    /// on any.
    #[test]
    fn bulk_past_the_page_cache_is_what_was_written() {
        let path = std::env::temp_dir().join(format!("nacre-bulk-{}", std::process::id()));
        let path = path.to_str().expect("a plain name").to_string();
        let f = RealDisk.open(&path, OpenMode::CREATE).unwrap();
        for (off, len) in [(0, 4 << 20), (4 << 20, (2 << 20) + 5000), (1 << 20, 2 << 20), (77, 3 << 20)] {
            let mut b = buffer::bulk(len);
            b.iter_mut().enumerate().for_each(|(i, x)| *x = ((i + off as usize) * 7 / 3) as u8);
            f.write_at(&[9; 100], off + 5).unwrap();
            f.write_bulk_at(&b, off).unwrap();
            // First past the cache, then through it, then from it.
            for _ in 0..3 {
                let mut got = buffer::bulk(len);
                assert_eq!(f.read_bulk_at(&mut got, off).unwrap(), len);
                assert!(got[..] == b[..], "{len} bytes at {off}");
            }
        }
        let end = f.stat().unwrap().len;
        assert_eq!(end, (6 << 20) + 5000);
        let mut got = buffer::bulk(4 << 20);
        assert_eq!(f.read_bulk_at(&mut got, 4 << 20).unwrap(), (2 << 20) + 5000, "short at the end only");
        RealDisk.unlink(&path).unwrap();
    }
}
