//! A disk in memory that behaves like the host's, and worse on request.
//!
//! It keeps apart what the page cache holds and what the platter holds. A killed process ([`MemDisk::kill`])
//! loses nothing; when the power fails ([`MemDisk::crash`]) each change that was not flushed is kept, lost or
//! torn at 512-byte sectors, each by itself; of some files all are kept. Names survive one by one too, only
//! never without what they build on. A [`FaultPlan`] adds errors, a full disk, flipped bits and flushes that
//! do nothing. [`MemDisk::record`] keeps an image of every state on the way, for enumeration.

mod file;
mod names;

use crate::rng::Rng;
use crate::{Disk, DiskFile, DiskSpace, FileStat, OpenMode, lock};
use bytes::Bytes;
use file::{DataOp, KEEP_SIZE, PAGE_BYTES, PUNCH_HOLE, ZERO_RANGE};
use model::mutex::Mutex;
use names::State;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Size of a disk without a capacity in its plan.
const DEFAULT_CAPACITY_BYTES: u64 = 1 << 40;
const FILES_MAX: u64 = 1 << 24;
const FILE_MAX_BYTES: u64 = 1 << 44;
/// Images one recording keeps at most; later ones are not taken.
const IMAGES_MAX: usize = 100_000;

/// What happens to changes that were not flushed when the power fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashMode {
    /// Each by itself kept, lost or torn; of some files all are kept.
    Random,
    LoseAll,
    KeepAll,
}

/// Faults to inject; rates are chances in a million calls. The default injects none.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    pub seed: u64,
    /// EIO of reads.
    pub read_error_ppm: u32,
    /// EIO of writes and truncates; a part of the bytes may have been written.
    pub write_error_ppm: u32,
    /// EIO of flushes, as Linux fails: each unflushed change is on disk or not, its bytes stay readable, they
    /// count as flushed (the next flush does nothing for them and succeeds), and go when the power fails.
    pub sync_error_ppm: u32,
    /// One bit of what a read returns is wrong.
    pub bit_flip_ppm: u32,
    /// ENOSPC above so many bytes.
    pub capacity_bytes: Option<u64>,
    /// The host does not know that it has no more: only writes find out.
    pub thin: bool,
    /// Flushes succeed and do nothing: a disk that lies, or a planted bug.
    pub ignore_flush: bool,
    /// Only files whose path starts so are hit.
    pub only_below: Option<String>,
}

/// How often each fault fired, and what crashes did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    pub read_errors: u64,
    pub write_errors: u64,
    pub sync_errors: u64,
    pub bit_flips: u64,
    pub no_space: u64,
    pub ignored_flushes: u64,
    pub crashes: u64,
    pub lost_writes: u64,
    pub kept_writes: u64,
    pub torn_writes: u64,
    pub lost_names: u64,
    pub kept_names: u64,
    /// Pages that a failed flush left in the page cache, and that somebody who wanted to see the disk had
    /// dropped.
    pub phantom_pages: u64,
    /// Not a fault: flushes that did their work.
    pub flushes: u64,
}

impl DiskCounters {
    /// Names and values, in a fixed order.
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("disk_read_eio", self.read_errors),
            ("disk_write_eio", self.write_errors),
            ("disk_sync_eio", self.sync_errors),
            ("disk_bit_flip", self.bit_flips),
            ("disk_enospc", self.no_space),
            ("disk_ignored_flush", self.ignored_flushes),
            ("disk_power_loss", self.crashes),
            ("disk_lost_write", self.lost_writes),
            ("disk_kept_write", self.kept_writes),
            ("disk_torn_write", self.torn_writes),
            ("disk_lost_name", self.lost_names),
            ("disk_kept_name", self.kept_names),
            ("disk_phantom_page", self.phantom_pages),
        ]
    }
}

/// One state of a recorded disk: as it was right after a change.
#[derive(Clone)]
pub struct Image {
    /// What the change was, for a failing test's message.
    pub what: String,
    state: State,
}

impl Image {
    /// A disk of its own in this state, unflushed changes included: `crash` it to see what recovery sees.
    pub fn disk(&self) -> MemDisk {
        let mut state = self.state.clone();
        state.restart(&BTreeMap::new());
        MemDisk::with(state)
    }
}

/// A disk in memory. Copies are handles of the same disk; [`MemDisk::fork`] makes another one.
#[derive(Clone)]
pub struct MemDisk {
    inner: Arc<Mutex<MemDiskState>>,
    /// The machine that it is reached from.
    host: usize,
}

struct MemDiskState {
    state: State,
    /// Of each host: handles of earlier lives are dead.
    lives: Vec<u64>,
    next_handle: u64,
    /// Living handles: whose, and of which file.
    handles: BTreeMap<u64, (usize, u64)>,
    /// By host and file: a kernel's locks hold within it.
    locks: BTreeMap<(usize, u64), u64>,
    plan: FaultPlan,
    rng: Rng,
    count: DiskCounters,
    recording: Option<Vec<Image>>,
}

fn errno(e: i32) -> io::Error {
    io::Error::from_raw_os_error(e)
}

impl Default for MemDisk {
    fn default() -> MemDisk {
        MemDisk::new()
    }
}

impl MemDisk {
    /// Empty: a root directory and nothing else.
    pub fn new() -> MemDisk {
        MemDisk::with(State::new())
    }

    fn with(state: State) -> MemDisk {
        let inner = MemDiskState {
            state,
            lives: vec![0],
            next_handle: 0,
            handles: BTreeMap::new(),
            locks: BTreeMap::new(),
            plan: FaultPlan::default(),
            rng: Rng::new(0),
            count: DiskCounters::default(),
            recording: None,
        };
        MemDisk { inner: Arc::new(Mutex::new(inner)), host: 0 }
    }

    /// The same disk as another host reaches it: one cache of pages, handles and locks of its own.
    #[must_use]
    pub fn from_other_host(&self) -> MemDisk {
        let mut i = lock(&self.inner);
        i.lives.push(0);
        MemDisk { inner: self.inner.clone(), host: i.lives.len() - 1 }
    }

    /// Another disk with the same content, unflushed changes included. Handles and faults stay behind.
    pub fn fork(&self) -> MemDisk {
        let mut state = lock(&self.inner).state.clone();
        state.restart(&BTreeMap::new());
        MemDisk::with(state)
    }

    /// The power fails, for this host and for the disk. Open handles are dead (EIO) and locks gone; those of
    /// other hosts live.
    pub fn crash(&self, rng: &mut Rng) {
        self.crash_with(CrashMode::Random, rng);
    }

    pub fn crash_with(&self, mode: CrashMode, rng: &mut Rng) {
        let mut i = lock(&self.inner);
        let i = &mut *i;
        let open = i.end_life(self.host);
        i.state.power_loss(mode, rng, &mut i.count, &open);
        i.count.crashes += 1;
    }

    /// The process dies, the machine lives: handles and locks go, the page cache stays.
    pub fn kill(&self) {
        let mut i = lock(&self.inner);
        let open = i.end_life(self.host);
        i.state.restart(&open);
    }

    pub fn set_faults(&self, plan: FaultPlan) {
        let mut i = lock(&self.inner);
        i.rng = Rng::new(plan.seed);
        i.plan = plan;
    }

    pub fn faults(&self) -> FaultPlan {
        lock(&self.inner).plan.clone()
    }

    pub fn counters(&self) -> DiskCounters {
        lock(&self.inner).count
    }

    /// From now on an image of each state is kept, the present one first.
    pub fn record(&self) {
        let mut i = lock(&self.inner);
        let state = i.state.clone();
        i.recording = Some(vec![Image { what: "start".into(), state }]);
    }

    /// What was recorded; recording ends.
    pub fn images(&self) -> Vec<Image> {
        lock(&self.inner).recording.take().unwrap_or_default()
    }

    /// Damage at rest: flips bits of one byte, in page cache and on disk.
    pub fn corrupt(&self, path: &str, off: u64, mask: u8) -> io::Result<()> {
        let mut i = lock(&self.inner);
        let ino = i.state.resolve(path)?;
        i.state.with_file(ino, |f| f.flip(off, mask))
    }

    pub fn used_bytes(&self) -> u64 {
        lock(&self.inner).state.used_pages * PAGE_BYTES
    }
}

impl MemDiskState {
    /// Handles and locks of a host end; how often other hosts have each file open.
    fn end_life(&mut self, host: usize) -> BTreeMap<u64, u32> {
        self.lives[host] += 1;
        self.locks.retain(|(h, _), _| *h != host);
        self.handles.retain(|_, (h, _)| *h != host);
        let mut open = BTreeMap::new();
        for (_, ino) in self.handles.values() {
            *open.entry(*ino).or_insert(0) += 1;
        }
        open
    }

    /// Nobody else's.
    fn unlock(&mut self, host: usize, ino: u64, handle: u64) {
        if self.locks.get(&(host, ino)) == Some(&handle) {
            self.locks.remove(&(host, ino));
        }
    }

    fn fires(&mut self, ppm: u32, path: &str) -> bool {
        ppm > 0 && self.hits(path) && self.rng.chance(ppm)
    }

    fn hits(&self, path: &str) -> bool {
        self.plan.only_below.as_ref().is_none_or(|p| path.starts_with(p.as_str()))
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(images) = &mut self.recording
            && images.len() < IMAGES_MAX
        {
            images.push(Image { what: what(), state: self.state.clone() });
        }
    }

    fn capacity_pages(&self) -> u64 {
        self.plan.capacity_bytes.unwrap_or(DEFAULT_CAPACITY_BYTES) / PAGE_BYTES
    }

    fn free_pages(&self) -> u64 {
        self.capacity_pages().saturating_sub(self.state.used_pages)
    }

    /// How many of the bytes a write may write before the disk is full.
    fn room_for(&self, ino: u64, off: u64, len: u64, path: &str) -> io::Result<u64> {
        if self.plan.capacity_bytes.is_none() || !self.hits(path) {
            return Ok(len);
        }
        let now = &self.state.file(ino)?.now;
        let free = self.free_pages();
        if now.missing_pages(off, len) <= free {
            return Ok(len);
        }
        let mut fits = 0;
        while fits < len {
            let next = ((off + fits) / PAGE_BYTES + 1) * PAGE_BYTES - off;
            if now.missing_pages(off, next.min(len)) > free {
                break;
            }
            fits = next.min(len);
        }
        assert!(fits < len, "what does not find room as a whole is cut");
        Ok(fits)
    }
}

impl Disk for MemDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut i = lock(&self.inner);
        let (dir, name) = i.state.parent(path)?;
        let ino = match i.state.lookup(dir, name)? {
            Some(_) if mode.create && mode.exclusive => return Err(errno(libc::EEXIST)),
            Some(ino) => {
                i.state.file(ino)?;
                if mode.truncate && mode.write && i.state.file(ino)?.now.len > 0 {
                    i.state.with_file(ino, |f| f.change(DataOp::SetLen(0)))?;
                    i.note(|| format!("truncate {path}"));
                }
                ino
            }
            None if mode.create => {
                let ino = i.state.create(dir, name, false);
                i.note(|| format!("create {path}"));
                ino
            }
            None => return Err(errno(libc::ENOENT)),
        };
        i.state.opened(ino);
        i.next_handle += 1;
        let handle = i.next_handle;
        let other = i.handles.insert(handle, (self.host, ino));
        assert!(other.is_none(), "numbers of handles are never reused");
        let file = MemFile {
            inner: self.inner.clone(),
            ino,
            host: self.host,
            life: i.lives[self.host],
            handle,
            write: mode.write,
            path: path.into(),
        };
        Ok(Arc::new(file))
    }

    fn mkdir(&self, path: &str) -> io::Result<()> {
        let mut i = lock(&self.inner);
        let (dir, name) = i.state.parent(path)?;
        if i.state.lookup(dir, name)?.is_some() {
            return Err(errno(libc::EEXIST));
        }
        i.state.create(dir, name, true);
        i.note(|| format!("mkdir {path}"));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut i = lock(&self.inner);
        i.state.rename(from, to)?;
        i.note(|| format!("rename {from} {to}"));
        Ok(())
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        let mut i = lock(&self.inner);
        i.state.unlink(path)?;
        i.note(|| format!("unlink {path}"));
        Ok(())
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        let mut i = lock(&self.inner);
        i.state.rmdir(path)?;
        i.note(|| format!("rmdir {path}"));
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let i = lock(&self.inner);
        let ino = i.state.resolve(dir)?;
        Ok(i.state.entries(ino)?.keys().cloned().collect())
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        match lock(&self.inner).state.resolve(path) {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut i = lock(&self.inner);
        let ino = i.state.resolve(dir)?;
        i.state.entries(ino)?;
        let ppm = i.plan.sync_error_ppm;
        if i.fires(ppm, dir) {
            i.count.sync_errors += 1;
            return Err(errno(libc::EIO));
        }
        if i.plan.ignore_flush && i.hits(dir) {
            i.count.ignored_flushes += 1;
            return Ok(());
        }
        i.state.sync_dir(ino);
        i.count.flushes += 1;
        i.note(|| format!("sync_dir {dir}"));
        Ok(())
    }

    fn clone_file(&self, from: &str, to: &str) -> io::Result<()> {
        let mut i = lock(&self.inner);
        let source = i.state.resolve(from)?;
        let content = i.state.file(source)?.now.clone();
        let (dir, name) = i.state.parent(to)?;
        if i.state.lookup(dir, name)?.is_some() {
            return Err(errno(libc::EEXIST));
        }
        let ppm = i.plan.write_error_ppm;
        if i.fires(ppm, to) {
            i.count.write_errors += 1;
            return Err(errno(libc::EIO));
        }
        if i.plan.capacity_bytes.is_some() && i.hits(to) && content.allocated_pages() > i.free_pages() {
            i.count.no_space += 1;
            return Err(errno(libc::ENOSPC));
        }
        let ino = i.state.create(dir, name, false);
        i.state.with_file(ino, |f| content.as_changes().for_each(|op| f.change(op)))?;
        i.note(|| format!("clone {from} {to}"));
        Ok(())
    }

    fn space(&self, path: &str) -> io::Result<DiskSpace> {
        let i = lock(&self.inner);
        i.state.resolve(path)?;
        let total = if i.plan.thin { DEFAULT_CAPACITY_BYTES } else { i.capacity_pages() * PAGE_BYTES };
        let free = if i.plan.thin { total } else { i.free_pages() * PAGE_BYTES };
        Ok(DiskSpace {
            total,
            free,
            available: free,
            files: FILES_MAX,
            files_free: FILES_MAX.saturating_sub(i.state.count()),
        })
    }
}

struct MemFile {
    inner: Arc<Mutex<MemDiskState>>,
    ino: u64,
    host: usize,
    life: u64,
    handle: u64,
    write: bool,
    path: Arc<str>,
}

impl MemFile {
    fn enter(&self, to_write: bool) -> io::Result<model::mutex::MutexGuard<'_, MemDiskState>> {
        let i = lock(&self.inner);
        if i.lives[self.host] != self.life {
            return Err(errno(libc::EIO));
        }
        if to_write && !self.write {
            return Err(errno(libc::EBADF));
        }
        Ok(i)
    }

    fn write_fault(&self, i: &mut MemDiskState) -> bool {
        let ppm = i.plan.write_error_ppm;
        let fires = i.fires(ppm, &self.path);
        i.count.write_errors += u64::from(fires);
        fires
    }
}

/// `off + len` as a file's end, if files can be so long.
fn end_of(off: u64, len: u64) -> io::Result<u64> {
    off.checked_add(len).filter(|e| *e <= FILE_MAX_BYTES).ok_or_else(|| errno(libc::EFBIG))
}

impl DiskFile for MemFile {
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        let mut i = self.enter(false)?;
        let (error, flip) = (i.plan.read_error_ppm, i.plan.bit_flip_ppm);
        if i.fires(error, &self.path) {
            i.count.read_errors += 1;
            return Err(errno(libc::EIO));
        }
        let n = i.state.file(self.ino)?.now.read(buf, off);
        if n > 0 && i.fires(flip, &self.path) {
            let bit = i.rng.below(n as u64 * 8);
            buf[(bit / 8) as usize] ^= 1 << (bit % 8);
            i.count.bit_flips += 1;
        }
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<()> {
        let mut i = self.enter(true)?;
        end_of(off, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(());
        }
        let (mut data, mut result) = (buf, Ok(()));
        let room = i.room_for(self.ino, off, buf.len() as u64, &self.path)?;
        if self.write_fault(&mut i) {
            data = &data[..i.rng.index(buf.len())];
            result = Err(errno(libc::EIO));
        } else if room < buf.len() as u64 {
            i.count.no_space += 1;
            data = &data[..room as usize];
            result = Err(errno(libc::ENOSPC));
        }
        if !data.is_empty() {
            let data = Bytes::copy_from_slice(data);
            let len = data.len();
            i.state.with_file(self.ino, |f| f.change(DataOp::Write { off, data }))?;
            i.note(|| format!("write {} {off}+{len}", self.path));
        }
        result
    }

    fn stat(&self) -> io::Result<FileStat> {
        let i = self.enter(false)?;
        let now = &i.state.file(self.ino)?.now;
        Ok(FileStat { len: now.len, blocks: now.allocated_pages() * (PAGE_BYTES / 512) })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut i = self.enter(true)?;
        end_of(len, 0)?;
        if self.write_fault(&mut i) {
            return Err(errno(libc::EIO));
        }
        i.state.with_file(self.ino, |f| f.change(DataOp::SetLen(len)))?;
        i.note(|| format!("set_len {} {len}", self.path));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut i = self.enter(false)?;
        let i = &mut *i;
        if i.fires(i.plan.sync_error_ppm, &self.path) {
            i.count.sync_errors += 1;
            let (rng, count) = (&mut i.rng, &mut i.count);
            i.state.with_file(self.ino, |f| f.lose_pending(CrashMode::Random, rng, count))?;
            return Err(errno(libc::EIO));
        }
        if i.plan.ignore_flush && i.hits(&self.path) {
            i.count.ignored_flushes += 1;
            return Ok(());
        }
        i.count.flushes += 1;
        if i.state.file(self.ino)?.dirty() {
            i.state.with_file(self.ino, file::FileNode::flush)?;
            i.note(|| format!("sync {}", self.path));
        }
        Ok(())
    }

    fn drop_cached(&self) -> io::Result<()> {
        // As on a host: a flush that fails leaves the pages clean, and then they go.
        let _ = self.sync_data();
        let mut i = self.enter(false)?;
        let i = &mut *i;
        i.count.phantom_pages += i.state.with_file(self.ino, file::FileNode::drop_clean)?;
        Ok(())
    }

    fn allocate(&self, mode: u32, off: u64, len: u64) -> io::Result<()> {
        let mut i = self.enter(true)?;
        if len == 0 {
            return Err(errno(libc::EINVAL));
        }
        if mode & !(KEEP_SIZE | PUNCH_HOLE | ZERO_RANGE) != 0
            || mode & (PUNCH_HOLE | ZERO_RANGE) == PUNCH_HOLE | ZERO_RANGE
            || mode & (PUNCH_HOLE | KEEP_SIZE) == PUNCH_HOLE
        {
            return Err(errno(libc::EOPNOTSUPP));
        }
        end_of(off, len)?;
        if self.write_fault(&mut i) {
            return Err(errno(libc::EIO));
        }
        if mode & PUNCH_HOLE == 0 && i.room_for(self.ino, off, len, &self.path)? < len {
            i.count.no_space += 1;
            return Err(errno(libc::ENOSPC));
        }
        i.state.with_file(self.ino, |f| f.change(DataOp::Allocate { mode, off, len }))?;
        i.note(|| format!("allocate {} mode {mode:#x} {off}+{len}", self.path));
        Ok(())
    }

    fn seek_data(&self, off: u64) -> io::Result<Option<u64>> {
        Ok(self.enter(false)?.state.file(self.ino)?.now.seek_data(off))
    }

    fn seek_hole(&self, off: u64) -> io::Result<Option<u64>> {
        Ok(self.enter(false)?.state.file(self.ino)?.now.seek_hole(off))
    }

    fn try_lock(&self) -> io::Result<bool> {
        let mut i = self.enter(false)?;
        let holder = *i.locks.entry((self.host, self.ino)).or_insert(self.handle);
        Ok(holder == self.handle)
    }

    fn unlock(&self) -> io::Result<()> {
        let mut i = self.enter(false)?;
        i.unlock(self.host, self.ino, self.handle);
        Ok(())
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        let mut i = lock(&self.inner);
        if i.lives[self.host] != self.life {
            return;
        }
        let ino = i.handles.remove(&self.handle).map(|(_, ino)| ino);
        assert_eq!(ino, Some(self.ino), "a handle that lives is listed");
        i.unlock(self.host, self.ino, self.handle);
        i.state.released(self.ino);
    }
}
