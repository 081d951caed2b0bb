//! A disk that reads from another one and keeps every change to itself, in memory. On it a target can be
//! opened as its server would (replaying the journal, finishing what a crash left) without a byte of the
//! folder changing.

use model::Errno;
use model::mutex::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use world::{Disk, DiskFile, DiskSpace, FileStat, OpenMode};

const PAGE_BYTES: u64 = 4096;
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

pub struct Overlay {
    lower: Arc<dyn Disk>,
    names: Mutex<Changed>,
}

/// Names that are not as on the lower disk.
#[derive(Default)]
struct Changed {
    /// Files that were opened for writing, made, or renamed here.
    files: BTreeMap<String, Arc<OverlayFile>>,
    /// Folders made here.
    dirs: BTreeSet<String>,
    /// Names of the lower disk that are gone here.
    gone: BTreeSet<String>,
}

struct OverlayFile {
    lower: Option<Arc<dyn DiskFile>>,
    state: Mutex<Content>,
}

struct Content {
    len: u64,
    /// So much of the lower file shows through.
    lower_len: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
    /// Ranges of the lower file that were zeroed here.
    zeroed: Vec<(u64, u64)>,
}

impl Overlay {
    pub fn new(lower: Arc<dyn Disk>) -> Overlay {
        Overlay { lower, names: Mutex::default() }
    }

    /// Lets go of every file of the lower disk, and of their locks.
    pub fn release(&self) {
        self.names().files.clear();
    }

    fn names(&self) -> MutexGuard<'_, Changed> {
        self.names.lock()
    }

    /// The lower disk's file of this name, if it is to be seen here.
    fn lower_has(&self, names: &Changed, path: &str) -> io::Result<bool> {
        Ok(!names.gone.contains(path) && self.lower.exists(path)?)
    }

    fn take_in(&self, names: &mut Changed, path: &str) -> io::Result<Arc<OverlayFile>> {
        let lower = self.lower.open(path, OpenMode::READ)?;
        let len = lower.stat()?.len;
        let f = Arc::new(OverlayFile::new(Some(lower), len));
        let other = names.files.insert(path.to_string(), f.clone());
        assert!(other.is_none(), "a file of the disk below is taken in once");
        Ok(f)
    }
}

impl Disk for Overlay {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut names = self.names();
        let known = names.files.get(path).cloned();
        let lower = known.is_none() && self.lower_has(&names, path)?;
        let there = known.is_some() || lower;
        if there && mode.create && mode.exclusive {
            return Err(Errno::EEXIST.into());
        }
        if !mode.write && lower {
            return self.lower.open(path, OpenMode::READ);
        }
        let file = match known {
            Some(f) => f,
            None if lower => self.take_in(&mut names, path)?,
            None if mode.create => {
                let f = Arc::new(OverlayFile::new(None, 0));
                names.files.insert(path.to_string(), f.clone());
                f
            }
            None => return Err(Errno::ENOENT.into()),
        };
        if mode.truncate {
            file.set_len(0)?;
        }
        Ok(file)
    }

    fn mkdir(&self, path: &str) -> io::Result<()> {
        if self.exists(path)? {
            return Err(Errno::EEXIST.into());
        }
        self.names().dirs.insert(path.to_string());
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut names = self.names();
        let file = match names.files.remove(from) {
            Some(f) => f,
            None if self.lower_has(&names, from)? => {
                self.take_in(&mut names, from)?;
                names.files.remove(from).expect("just taken in")
            }
            None => return Err(Errno::ENOENT.into()),
        };
        names.gone.insert(from.to_string());
        names.gone.insert(to.to_string());
        names.files.insert(to.to_string(), file);
        assert!(from == to || !names.files.contains_key(from), "a file has one name");
        Ok(())
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        let mut names = self.names();
        let here = names.files.remove(path).is_some();
        if !here && !self.lower_has(&names, path)? {
            return Err(Errno::ENOENT.into());
        }
        names.gone.insert(path.to_string());
        Ok(())
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        let mut names = self.names();
        names.dirs.remove(path);
        names.gone.insert(path.to_string());
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let names = self.names();
        let prefix = format!("{}/", dir.trim_end_matches('/'));
        let child = |p: &String| {
            p.strip_prefix(&prefix).filter(|r| !r.is_empty() && !r.contains('/')).map(str::to_string)
        };
        let mut out: BTreeSet<String> =
            names.files.keys().filter_map(child).chain(names.dirs.iter().filter_map(child)).collect();
        if !names.dirs.contains(dir) {
            let lower = self.lower.list(dir)?;
            out.extend(lower.into_iter().filter(|n| !names.gone.contains(&format!("{prefix}{n}"))));
        }
        Ok(out.into_iter().collect())
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        let names = self.names();
        Ok(names.files.contains_key(path) || names.dirs.contains(path) || self.lower_has(&names, path)?)
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn space(&self, path: &str) -> io::Result<DiskSpace> {
        self.lower.space(path)
    }
}

impl OverlayFile {
    fn new(lower: Option<Arc<dyn DiskFile>>, len: u64) -> OverlayFile {
        let state = Content { len, lower_len: len, pages: BTreeMap::new(), zeroed: Vec::new() };
        OverlayFile { lower, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, Content> {
        self.state.lock()
    }

    /// Bytes of the lower file at `off`, zeros where it does not reach or was zeroed.
    fn read_lower(&self, c: &Content, buf: &mut [u8], off: u64) -> io::Result<()> {
        buf.fill(0);
        let Some(lower) = &self.lower else { return Ok(()) };
        assert!(c.lower_len <= c.len, "no more of the file below is seen than there is of this one");
        let n = c.lower_len.saturating_sub(off).min(buf.len() as u64) as usize;
        if n > 0 {
            lower.read_at(&mut buf[..n], off)?;
        }
        let end = off + buf.len() as u64;
        for &(from, to) in &c.zeroed {
            let (a, b) = (from.max(off), to.min(end));
            if a < b {
                buf[(a - off) as usize..(b - off) as usize].fill(0);
            }
        }
        Ok(())
    }

    /// The page to be changed.
    fn page<'a>(&self, c: &'a mut Content, n: u64) -> io::Result<&'a mut [u8]> {
        if !c.pages.contains_key(&n) {
            let mut p = vec![0; PAGE_BYTES as usize].into_boxed_slice();
            self.read_lower(c, &mut p, n * PAGE_BYTES)?;
            c.pages.insert(n, p);
        }
        Ok(c.pages.get_mut(&n).expect("just inserted"))
    }

    /// Makes `from..to` zeros without storing them.
    fn zero(&self, c: &mut Content, from: u64, to: u64) {
        assert!(from <= to, "a range ends behind its beginning");
        let Content { pages, zeroed, .. } = c;
        for (&n, p) in pages.range_mut(from / PAGE_BYTES..=to / PAGE_BYTES) {
            let start = n * PAGE_BYTES;
            let (a, b) = (from.max(start), to.min(start + PAGE_BYTES));
            if a < b {
                p[(a - start) as usize..(b - start) as usize].fill(0);
            }
        }
        zeroed.push((from, to));
    }
}

impl DiskFile for OverlayFile {
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        let c = self.state();
        let len = c.len.saturating_sub(off).min(buf.len() as u64) as usize;
        let buf = &mut buf[..len];
        self.read_lower(&c, buf, off)?;
        if len == 0 {
            return Ok(0);
        }
        let end = off + len as u64;
        for (&n, p) in c.pages.range(off / PAGE_BYTES..=(end - 1) / PAGE_BYTES) {
            let start = n * PAGE_BYTES;
            let (a, b) = (off.max(start), end.min(start + PAGE_BYTES));
            buf[(a - off) as usize..(b - off) as usize]
                .copy_from_slice(&p[(a - start) as usize..(b - start) as usize]);
        }
        Ok(len)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<()> {
        let mut c = self.state();
        let end = off.checked_add(buf.len() as u64).ok_or(Errno::EFBIG)?;
        let mut pos = off;
        while pos < end {
            let n = pos / PAGE_BYTES;
            let stop = end.min((n + 1) * PAGE_BYTES);
            let page = self.page(&mut c, n)?;
            let at = (pos - n * PAGE_BYTES) as usize;
            page[at..at + (stop - pos) as usize]
                .copy_from_slice(&buf[(pos - off) as usize..(stop - off) as usize]);
            pos = stop;
        }
        c.len = c.len.max(end);
        Ok(())
    }

    fn stat(&self) -> io::Result<FileStat> {
        let c = self.state();
        let below = match &self.lower {
            Some(f) => f.stat()?.blocks,
            None => 0,
        };
        Ok(FileStat { len: c.len, blocks: below.max(c.pages.len() as u64 * (PAGE_BYTES / 512)) })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut c = self.state();
        if len < c.len {
            let old = c.len;
            self.zero(&mut c, len, old);
            c.lower_len = c.lower_len.min(len);
            c.pages.retain(|n, _| n * PAGE_BYTES < len);
            assert!(c.lower_len <= len, "what was cut off is not seen again");
        }
        c.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    /// Of what is below; what was changed here has no medium.
    fn drop_cached(&self) -> io::Result<()> {
        self.lower.as_ref().map_or(Ok(()), |f| f.drop_cached())
    }

    fn allocate(&self, mode: u32, off: u64, len: u64) -> io::Result<()> {
        let mut c = self.state();
        let end = off.checked_add(len).ok_or(Errno::EFBIG)?;
        if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
            self.zero(&mut c, off, end);
        }
        if mode & (KEEP_SIZE | PUNCH_HOLE) == 0 {
            c.len = c.len.max(end);
        }
        Ok(())
    }

    fn seek_data(&self, off: u64) -> io::Result<Option<u64>> {
        Ok((off < self.state().len).then_some(off))
    }

    fn seek_hole(&self, off: u64) -> io::Result<Option<u64>> {
        let len = self.state().len;
        Ok((off < len).then_some(len))
    }

    /// The lower file's lock: a living server keeps us out, and we it.
    fn try_lock(&self) -> io::Result<bool> {
        self.lower.as_ref().map_or(Ok(true), |f| f.try_lock())
    }

    fn unlock(&self) -> io::Result<()> {
        self.lower.as_ref().map_or(Ok(()), |f| f.unlock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::mem::MemDisk;

    fn below() -> Arc<MemDisk> {
        let d = Arc::new(MemDisk::new());
        d.mkdir("/d").unwrap();
        let f = d.open("/d/a", OpenMode::CREATE).unwrap();
        f.write_at(&[7; 10_000], 0).unwrap();
        d.open("/d/b", OpenMode::CREATE).unwrap().write_at(b"b", 0).unwrap();
        d
    }

    fn read(f: &dyn DiskFile, off: u64, len: usize) -> Vec<u8> {
        let mut b = vec![9; len];
        let n = f.read_at(&mut b, off).unwrap();
        b.truncate(n);
        b
    }

    #[test]
    fn changes_are_seen_above_and_not_below() {
        let lower = below();
        let o = Overlay::new(lower.clone());
        let f = o.open("/d/a", OpenMode::WRITE).unwrap();
        f.write_at(&[1; 3], 4095).unwrap();
        assert_eq!(read(&*f, 4094, 5), [7, 1, 1, 1, 7]);
        f.set_len(5000).unwrap();
        f.set_len(6000).unwrap();
        assert_eq!(read(&*f, 4999, 3), [7, 0, 0]);
        f.allocate(PUNCH_HOLE | KEEP_SIZE, 0, 4096).unwrap();
        assert_eq!(read(&*f, 4095, 2), [0, 1]);
        f.write_at(&[5; 2], 20_000).unwrap();
        assert_eq!(f.stat().unwrap().len, 20_002);
        assert_eq!(read(&*o.open("/d/a", OpenMode::READ).unwrap(), 20_000, 9), [5, 5]);
        o.rename("/d/a", "/d/c").unwrap();
        o.unlink("/d/b").unwrap();
        o.mkdir("/d/new").unwrap();
        assert_eq!(o.list("/d").unwrap(), ["c", "new"]);
        assert!(o.open("/d/b", OpenMode::READ).is_err() && !o.exists("/d/a").unwrap());
        assert_eq!(lower.list("/d").unwrap(), ["a", "b"]);
        assert_eq!(read(&*lower.open("/d/a", OpenMode::READ).unwrap(), 0, 20_000), vec![7; 10_000]);
    }

    #[test]
    fn random_changes_agree_with_a_byte_array() {
        let lower = below();
        let o = Overlay::new(lower);
        let f = o.open("/d/a", OpenMode::WRITE).unwrap();
        let mut model = vec![7u8; 10_000];
        let mut x = 12345u64;
        let mut next = |n: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) % n
        };
        for i in 0..3000u32 {
            let (off, len) = (next(30_000), next(9000) + 1);
            match next(4) {
                0 => {
                    f.set_len(off).unwrap();
                    model.resize(off as usize, 0);
                }
                1 => {
                    f.allocate(PUNCH_HOLE | KEEP_SIZE, off, len).unwrap();
                    let end = ((off + len) as usize).min(model.len());
                    let start = (off as usize).min(end);
                    model[start..end].fill(0);
                }
                _ => {
                    let data = vec![i as u8; len as usize];
                    f.write_at(&data, off).unwrap();
                    let end = (off + len) as usize;
                    if model.len() < end {
                        model.resize(end, 0);
                    }
                    model[off as usize..end].copy_from_slice(&data);
                }
            }
            assert_eq!(f.stat().unwrap().len, model.len() as u64);
            if i % 50 == 0 {
                assert_eq!(read(&*f, 0, model.len() + 5), model, "after {i}");
            }
        }
    }
}
