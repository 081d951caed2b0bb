//! A disk that keeps in memory whatever was not flushed: `kill -9` of the process is then a loss of power.
//!
//! Tests switch it on with `NACRE_VOLATILE_DISK=1`. File contents and sizes reach the host's files at
//! `sync_data` only. Names (create, rename, unlink) go through at once; the simulator's disk loses those too.

use crate::{Disk, DiskFile, DiskSpace, FileStat, OpenMode};
use model::mutex::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

const PAGE_BYTES: u64 = 4096;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;
const KEEP_SIZE: u32 = 1;

/// Wraps another disk.
pub struct VolatileDisk {
    inner: Arc<dyn Disk>,
    /// Files opened for writing, for as long as they have their name: closing one flushes nothing.
    open: Mutex<BTreeMap<String, Arc<VolatileFile>>>,
}

struct VolatileFile {
    inner: Arc<dyn DiskFile>,
    state: Mutex<Unflushed>,
}

/// What the host's file lacks.
struct Unflushed {
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES as usize]>>,
    /// Size as it appears.
    len: u64,
    /// The host's file is valid up to here: the smallest size since the last flush.
    valid: u64,
}

/// An open file.
struct Handle(Arc<VolatileFile>);

impl VolatileDisk {
    pub fn new(inner: Arc<dyn Disk>) -> VolatileDisk {
        VolatileDisk { inner, open: Mutex::new(BTreeMap::new()) }
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Arc<VolatileFile>>> {
        self.open.lock()
    }
}

impl Disk for VolatileDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut table = self.table();
        if let Some(f) = table.get(path).cloned() {
            if mode.create && mode.exclusive {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            if mode.truncate {
                Handle(Arc::clone(&f)).set_len(0)?;
            }
            return Ok(Arc::new(Handle(f)));
        }
        let inner = self.inner.open(path, mode)?;
        if !mode.write {
            // Nothing of it is unflushed; and files of /proc have contents without a size.
            return Ok(inner);
        }
        let len = inner.stat()?.len;
        let state = Unflushed { pages: BTreeMap::new(), len, valid: len };
        let f = Arc::new(VolatileFile { inner, state: Mutex::new(state) });
        table.insert(path.to_string(), Arc::clone(&f));
        Ok(Arc::new(Handle(f)))
    }

    fn mkdir(&self, path: &str) -> io::Result<()> {
        self.inner.mkdir(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut table = self.table();
        self.inner.rename(from, to)?;
        table.remove(to);
        if let Some(f) = table.remove(from) {
            table.insert(to.to_string(), f);
        }
        Ok(())
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        let mut table = self.table();
        self.inner.unlink(path)?;
        table.remove(path);
        Ok(())
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        self.inner.rmdir(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
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

impl VolatileFile {
    fn state(&self) -> MutexGuard<'_, Unflushed> {
        self.state.lock()
    }

    /// Brings the host's file up to date, without a flush of the device.
    fn write_through(&self, s: &mut Unflushed) -> io::Result<()> {
        assert!(s.valid <= s.len, "what is left of the host's file lies within the file");
        if s.valid < self.inner.stat()?.len {
            self.inner.set_len(s.valid)?;
        }
        for (&page, data) in &s.pages {
            let at = page * PAGE_BYTES;
            let n = s.len.saturating_sub(at).min(PAGE_BYTES) as usize;
            self.inner.write_at(&data[..n], at)?;
        }
        if self.inner.stat()?.len != s.len {
            self.inner.set_len(s.len)?;
        }
        s.pages.clear();
        s.valid = s.len;
        Ok(())
    }

    /// The page as it appears now.
    fn page(&self, s: &Unflushed, page: u64) -> io::Result<Box<[u8; PAGE_BYTES as usize]>> {
        if let Some(p) = s.pages.get(&page) {
            return Ok(p.clone());
        }
        let mut p = Box::new([0; PAGE_BYTES as usize]);
        let n = s.valid.saturating_sub(page * PAGE_BYTES).min(PAGE_BYTES) as usize;
        self.inner.read_at(&mut p[..n], page * PAGE_BYTES)?;
        Ok(p)
    }

    /// Changes bytes `off..off + len` piece by piece; `f` gets a piece of a page and its place in the range.
    fn change(&self, s: &mut Unflushed, off: u64, len: u64, f: impl Fn(&mut [u8], usize)) -> io::Result<()> {
        let mut at = off;
        while at < off + len {
            let (page, skip) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let n = (PAGE_BYTES - skip).min(off + len - at);
            let mut p = self.page(s, page)?;
            f(&mut p[skip as usize..(skip + n) as usize], (at - off) as usize);
            s.pages.insert(page, p);
            at += n;
        }
        Ok(())
    }
}

impl DiskFile for Handle {
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        let s = self.0.state();
        let n = (buf.len() as u64).min(s.len.saturating_sub(off));
        let mut at = off;
        while at < off + n {
            let (page, skip) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let k = (PAGE_BYTES - skip).min(off + n - at);
            let p = self.0.page(&s, page)?;
            buf[(at - off) as usize..(at - off + k) as usize]
                .copy_from_slice(&p[skip as usize..(skip + k) as usize]);
            at += k;
        }
        Ok(n as usize)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<()> {
        let mut s = self.0.state();
        let end =
            off.checked_add(buf.len() as u64).ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))?;
        self.0.change(&mut s, off, buf.len() as u64, |p, i| p.copy_from_slice(&buf[i..i + p.len()]))?;
        s.len = s.len.max(end);
        Ok(())
    }

    fn stat(&self) -> io::Result<FileStat> {
        let s = self.0.state();
        Ok(FileStat { len: s.len, blocks: self.0.inner.stat()?.blocks })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut s = self.0.state();
        if len > s.len && len > self.0.inner.stat()?.len {
            // the host's limit shows now, as it would without this layer
            let kept = self.0.inner.stat()?.len;
            self.0.inner.set_len(len)?;
            self.0.inner.set_len(kept)?;
        }
        if len < s.len {
            let tail = (s.len - len).min(PAGE_BYTES - len % PAGE_BYTES);
            if !len.is_multiple_of(PAGE_BYTES) {
                self.0.change(&mut s, len, tail, |p, _| p.fill(0))?;
            }
            s.pages.retain(|&page, _| page * PAGE_BYTES < len);
            s.valid = s.valid.min(len);
        }
        s.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut s = self.0.state();
        self.0.write_through(&mut s)?;
        self.0.inner.sync_data()
    }

    fn drop_cached(&self) -> io::Result<()> {
        self.0.write_through(&mut self.0.state())?;
        self.0.inner.drop_cached()
    }

    fn allocate(&self, mode: u32, off: u64, len: u64) -> io::Result<()> {
        let mut s = self.0.state();
        if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
            let inside = len.min(s.len.saturating_sub(off));
            self.0.change(&mut s, off, inside, |p, _| p.fill(0))?;
        } else {
            self.0.inner.allocate(KEEP_SIZE, off, len)?;
        }
        if mode & KEEP_SIZE == 0 {
            s.len = s.len.max(off + len);
        }
        Ok(())
    }

    fn seek_data(&self, off: u64) -> io::Result<Option<u64>> {
        self.0.write_through(&mut self.0.state())?;
        self.0.inner.seek_data(off)
    }

    fn seek_hole(&self, off: u64) -> io::Result<Option<u64>> {
        self.0.write_through(&mut self.0.state())?;
        self.0.inner.seek_hole(off)
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.0.inner.try_lock()
    }

    fn unlock(&self) -> io::Result<()> {
        self.0.inner.unlock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::RealDisk;

    #[test]
    fn only_flushed_bytes_reach_the_host() {
        let path = std::env::temp_dir().join(format!("nacre-volatile-{}", std::process::id()));
        let path = path.to_str().expect("utf-8").to_string();
        let host = RealDisk;
        let disk = VolatileDisk::new(Arc::new(RealDisk));
        let f = disk.open(&path, OpenMode { truncate: true, ..OpenMode::CREATE }).unwrap();
        f.write_at(b"kept", 0).unwrap();
        f.sync_data().unwrap();
        f.write_at(b"lost", 2).unwrap();
        f.write_at(b"far", 10_000).unwrap();
        let mut buf = [0; 6];
        assert_eq!(disk.open(&path, OpenMode::READ).unwrap().read_at(&mut buf, 0).unwrap(), 6);
        assert_eq!(&buf, b"kelost");
        let h = host.open(&path, OpenMode::READ).unwrap();
        assert_eq!((h.stat().unwrap().len, h.read_at(&mut buf, 0).unwrap()), (4, 4));
        assert_eq!(&buf[..4], b"kept");
        f.set_len(3).unwrap();
        f.set_len(8000).unwrap();
        f.sync_data().unwrap();
        let mut all = vec![1; 9000];
        assert_eq!(h.read_at(&mut all, 0).unwrap(), 8000);
        assert_eq!(&all[..4], b"kel\0");
        assert!(all[4..8000].iter().all(|&b| b == 0));
        host.unlink(&path).unwrap();
    }
}
