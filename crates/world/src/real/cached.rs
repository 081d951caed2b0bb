//! What the host keeps of a file in memory: how much, and how to be rid of it.

use crate::mapping::Mapping;
use rustix::fs::{self, Advice, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

/// Looked through in one piece.
const WINDOW_BYTES: u64 = 1 << 30;
/// Read and written again in one piece.
const AGAIN_BYTES: usize = 1 << 20;
/// The kernel gives pages up that nobody looks at just now: another try finds those that were being looked
/// at.
const TRIES: usize = 3;

/// Pages of a range that are in the page cache (of the whole file with a `len` of 0); `None` if the kernel
/// cannot tell (before 6.5).
pub(super) fn cached_pages(fd: &OwnedFd, off: u64, len: u64) -> Option<u64> {
    /// The same on all architectures.
    const CACHESTAT: libc::c_long = 451;
    let range = [off, len];
    // Pages that are cached, dirty, being written, evicted, recently evicted.
    let mut found = [0u64; 5];
    // SAFETY: the system call reads two numbers and writes five, of these arrays, which outlive it.
    #[allow(unsafe_code)]
    let done = unsafe {
        libc::syscall(CACHESTAT, fd.as_raw_fd(), range.as_ptr(), found.as_mut_ptr(), 0 as libc::c_uint)
    };
    (done == 0).then_some(found[0])
}

/// The file's ranges that are in the page cache, or may be.
fn cached_ranges(fd: &OwnedFd, len: u64) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::new();
    if cached_pages(fd, 0, 0) == Some(0) {
        return out;
    }
    let page = rustix::param::page_size() as u64;
    let mut at = 0;
    while at < len {
        let stop = len.min(at + WINDOW_BYTES);
        // A file that cannot be mapped cannot be looked at: all of it counts.
        let found = Mapping::shared(fd, at, (stop - at) as usize, false).and_then(|m| m.resident());
        let held = found.unwrap_or_else(|_| vec![true; (stop - at).div_ceil(page) as usize]);
        for (i, _) in held.iter().enumerate().filter(|(_, held)| **held) {
            let start = at + i as u64 * page;
            let end = len.min(start + page);
            match out.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => out.push(start..end),
            }
        }
        at = stop;
    }
    assert!(out.windows(2).all(|w| w[0].end < w[1].start), "ranges are in order, and apart");
    out
}

/// See [`crate::DiskFile::drop_cached`]. The kernel takes the wish for advice: what it keeps all the same
/// (pages that are mapped, and all of a file system that has no other place for them) is written again, with
/// its own bytes.
pub(super) fn give_up(fd: &OwnedFd) -> io::Result<()> {
    // Pages that could not be written are clean after that, and go with the rest.
    let _ = retry_on_intr(|| fs::fdatasync(fd));
    let len = fs::fstat(fd)?.st_size as u64;
    let mut left = Vec::new();
    for _ in 0..TRIES {
        match retry_on_intr(|| fs::fadvise(fd, 0, None, Advice::DontNeed)) {
            // Not a file that has pages.
            Ok(()) | Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {}
            Err(e) => return Err(e.into()),
        }
        left = cached_ranges(fd, len);
        if left.is_empty() {
            return Ok(());
        }
    }
    write_again(fd, &left)
}

/// Pages that are written anew are dirty, whatever they were, and a flush then says the truth about them.
fn write_again(fd: &OwnedFd, ranges: &[Range<u64>]) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let rw = retry_on_intr(|| fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()))?;
    let mut buf = vec![0; AGAIN_BYTES];
    for r in ranges {
        let mut at = r.start;
        while at < r.end {
            let want = (r.end - at).min(AGAIN_BYTES as u64) as usize;
            let n = retry_on_intr(|| rustix::io::pread(&rw, &mut buf[..want], at))?;
            if n == 0 {
                break;
            }
            let mut done = 0;
            while done < n {
                match retry_on_intr(|| rustix::io::pwrite(&rw, &buf[done..n], at + done as u64))? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    k => done += k,
                }
            }
            at += n as u64;
        }
    }
    Ok(retry_on_intr(|| fs::fdatasync(&rw))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::RealDisk;
    use crate::{Disk, OpenMode};

    fn open(path: &str) -> OwnedFd {
        fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    /// On disk the pages go; in `/dev/shm` they are the medium, and stay. The bytes are the same in any case.
    #[test]
    fn what_is_dropped_is_read_again_as_it_is_on_the_medium() {
        for dir in [std::env::temp_dir(), "/dev/shm".into()] {
            let path = dir.join(format!("nacre-drop-{}", std::process::id()));
            let path = path.to_str().expect("a plain name").to_string();
            let f = RealDisk.open(&path, OpenMode::CREATE).unwrap();
            let bytes: Vec<u8> = (0..3_000_123u32).map(|i| (i * 7 / 3) as u8).collect();
            f.write_at(&bytes, 0).unwrap();
            f.set_len(9_000_000).unwrap();
            let fd = open(&path);
            assert_ne!(cached_pages(&fd, 0, 0), Some(0));
            f.drop_cached().unwrap();
            if fs::fstatfs(&fd).unwrap().f_type == 0xef53 {
                assert!(cached_ranges(&fd, 9_000_000).is_empty(), "ext4 gives them up");
            }
            let mut got = vec![1; 9_000_000];
            assert_eq!(f.read_at(&mut got, 0).unwrap(), got.len());
            assert!(got[..bytes.len()] == bytes && got[bytes.len()..].iter().all(|b| *b == 0), "{path}");
            RealDisk.unlink(&path).unwrap();
        }
    }

    /// A page that a program has mapped stays in the cache whatever is advised.
    #[test]
    fn what_the_kernel_keeps_is_written_again() {
        let path = std::env::temp_dir().join(format!("nacre-kept-{}", std::process::id()));
        let path = path.to_str().expect("a plain name").to_string();
        let f = RealDisk.open(&path, OpenMode::CREATE).unwrap();
        f.write_at(&[5; 70_000], 0).unwrap();
        let fd = open(&path);
        let mut m = Mapping::shared(&fd, 4096, 8192, true).unwrap();
        m.write(10, b"stored");
        m.sync().unwrap();
        assert_eq!(m.read(0, 2), [5, 5]);
        f.drop_cached().unwrap();
        let mut got = [0; 8];
        assert_eq!(f.read_at(&mut got, 4096 + 9).unwrap(), 8);
        assert_eq!(&got, b"\x05stored\x05");
        let held = cached_ranges(&fd, 70_000);
        assert!(held.iter().any(|r| r.contains(&4096)), "{held:?}");
        RealDisk.unlink(&path).unwrap();
    }
}
