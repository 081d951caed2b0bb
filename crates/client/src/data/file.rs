//! One file as this mount keeps it: for each object the locks held, the bytes kept under them, and what goes on with
//! the server.

use super::ahead::Streams;
use super::pages::Ranges;
use super::segments::Segments;
use crate::stripe;
use crate::targets::Target;
use model::{Errno, Fid, Layout, ObjectAttr, ObjectId, Timestamp};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use wire::msg::extent::ExtentMode;
use wire::msg::notify::KeptAttr;
use world::{Instant, sync};

/// A lock of this mount on bytes `start..=end` of an object.
pub(crate) struct Lock {
    pub id: u64,
    pub mode: ExtentMode,
    pub start: u64,
    pub end: u64,
    /// Operations that rely on it.
    pub pins: usize,
    /// Operations that ever did.
    pub uses: u64,
    /// Somebody else wants it: a task sees to its return.
    pub wanted: bool,
    /// No new operation may rely on it.
    pub going: bool,
    /// What a kernel may have in pages that were filled under it.
    pub pages: Ranges,
    /// The kernel is giving those up: what must be done before it can may rely on the lock though it is going.
    pub sweeping: bool,
    /// So many writes rely on it that have the kernel give up pages: the same.
    pub clearing: usize,
}

impl Lock {
    pub fn writes(&self) -> bool {
        self.mode != ExtentMode::Read
    }

    /// An operation relies on it from now on.
    pub fn pin(&mut self) {
        self.pins += 1;
        self.uses += 1;
    }

    /// What a kernel may have in pages under it, which is not noted any more: the lock is lost.
    pub fn take_pages(&mut self) -> Vec<(u64, u64)> {
        if self.sweeping {
            self.pages.add(self.start, self.end.saturating_add(1));
        }
        self.pages.take()
    }

    /// Whether nobody else can change what it covers.
    fn excludes(&self) -> bool {
        !matches!(self.mode, ExtentMode::Group(_))
    }

    pub fn covers(&self, write: bool, start: u64, end: u64) -> bool {
        (self.writes() || !write) && self.start <= start && end <= self.end
    }
}

/// How asking for a lock ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Granted,
    Contended,
    Failed(Errno),
}

/// A lock that was asked for.
pub(crate) struct Pending {
    pub id: u64,
    pub mode: ExtentMode,
    pub start: u64,
    pub end: u64,
    /// If it cannot be had at once it is not wanted.
    pub at_once: bool,
    /// The server says that asking again is worth it.
    pub again: sync::Notify,
    /// Wanted back before the grant was known here.
    pub blocked: AtomicBool,
    pub outcome: Mutex<Option<Outcome>>,
}

impl Pending {
    pub fn covers(&self, write: bool, start: u64, end: u64) -> bool {
        (self.mode != ExtentMode::Read || !write) && self.start <= start && end <= self.end
    }
}

/// A range that a change is being made to on the server: nothing else is sent for it meanwhile. Ends are exclusive.
pub(crate) struct Busy {
    pub token: u64,
    pub start: u64,
    pub end: u64,
    pub lock: u64,
}

/// A range that is being read from the server.
pub(crate) struct Fetch {
    pub token: u64,
    pub start: u64,
    pub end: u64,
    /// Changed meanwhile: what comes is of no use.
    pub tainted: bool,
}

/// What writes of an object carry: as it was when the newest bytes were written.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct WriteMeta {
    pub uid: u32,
    pub gid: u32,
    pub projid: u32,
    pub inode_ctime: Timestamp,
    pub time: Timestamp,
}

impl WriteMeta {
    /// The time that the server will stamp.
    pub fn stamp(&self) -> Timestamp {
        self.time.max(self.inode_ctime.plus_nanos(1))
    }
}

/// One object of a file. Nothing is kept of it except under a lock.
pub(crate) struct Obj {
    pub id: ObjectId,
    pub target: Arc<Target>,
    pub segs: Segments,
    pub locks: Vec<Lock>,
    pub pending: Vec<Arc<Pending>>,
    pub busy: Vec<Busy>,
    pub fetches: Vec<Fetch>,
    /// As the server told last, with the times of writes that it does not know yet.
    pub attr: ObjectAttr,
    /// Object size with everything written here; what it is worth says [`Obj::size_known`].
    pub size: u64,
    /// False: a write was lost, only the server knows the size.
    pub sure: bool,
    pub meta: WriteMeta,
    /// When the oldest dirty byte came.
    pub oldest: Option<Instant>,
    /// A task writes everything up to this number.
    pub flushing: bool,
    pub flush_upto: u64,
    /// So often a message was full, which the task above sends.
    pub full_runs: u64,
    pub contended_until: Instant,
    /// As counted in the totals: unwritten bytes, clean bytes, segments.
    pub counted: (u64, u64, usize),
}

impl Obj {
    fn new(id: ObjectId, target: Arc<Target>) -> Obj {
        Obj {
            id,
            target,
            segs: Segments::default(),
            locks: Vec::new(),
            pending: Vec::new(),
            busy: Vec::new(),
            fetches: Vec::new(),
            attr: ObjectAttr::default(),
            size: 0,
            sure: false,
            meta: WriteMeta::default(),
            oldest: None,
            flushing: false,
            flush_upto: 0,
            full_runs: 0,
            contended_until: Instant::default(),
            counted: (0, 0, 0),
        }
    }

    /// The parts of a range that are neither here nor on their way.
    pub fn unfetched(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut coming: Vec<_> = self.fetches.iter().map(|f| (f.start, f.end)).collect();
        coming.sort_unstable();
        let mut out = Vec::new();
        for (mut at, end) in self.segs.gaps(start, end) {
            for &(from, to) in coming.iter().filter(|(from, to)| *from < end && start < *to) {
                if from > at {
                    out.push((at, from));
                }
                at = at.max(to);
            }
            if at < end {
                out.push((at, end));
            }
        }
        out
    }

    pub fn lock_mut(&mut self, id: u64) -> Option<&mut Lock> {
        self.locks.iter_mut().find(|l| l.id == id)
    }

    /// Whether `size` is the object's, and nobody else can change it.
    pub fn size_known(&self) -> bool {
        self.sure && self.locks.iter().any(|l| l.excludes() && l.end == u64::MAX && l.start <= self.size)
    }

    /// Whether everything about the object is known, and nobody else can change it.
    pub fn all_known(&self) -> bool {
        self.sure && self.locks.iter().any(|l| l.excludes() && l.end == u64::MAX && l.start == 0)
    }

    /// The size is at least this: under a lock nobody else can have cut these bytes off.
    pub fn size_at_least(&self) -> u64 {
        if self.size_known() { self.size } else { self.segs.end() }
    }

    /// Its attributes with what was written here.
    pub fn attr_now(&self) -> ObjectAttr {
        let unwritten = self.segs.unwritten_bytes();
        ObjectAttr {
            size: self.size,
            blocks: self.attr.blocks.max(self.attr.blocks + unwritten.div_ceil(512)),
            data_version: self.attr.data_version + u64::from(unwritten > 0),
            ..self.attr
        }
    }

    /// What others must add to what the server knows; `None`: nothing.
    pub fn kept(&self) -> Option<KeptAttr> {
        let writes = self.locks.iter().any(Lock::writes);
        let size = if self.size_known() { self.size } else { self.segs.dirty_end() };
        (writes && self.meta.time != Timestamp::ZERO).then_some(KeptAttr {
            size: if self.segs.unwritten_bytes() > 0 { size } else { 0 },
            mtime: self.attr.mtime,
            ctime: self.attr.ctime,
        })
    }

    /// Newer knowledge of the server's about everything but the size.
    pub fn learn(&mut self, a: &ObjectAttr) {
        self.attr.blocks = a.blocks;
        self.attr.data_version = self.attr.data_version.max(a.data_version);
        if a.ctime > self.attr.ctime {
            (self.attr.mtime, self.attr.ctime) = (a.mtime, a.ctime);
        }
    }

    /// A lock was granted.
    pub fn granted(&mut self, p: &Pending, start: u64, end: u64, attr: &ObjectAttr) {
        if self.locks.is_empty() {
            self.attr = *attr;
            (self.size, self.sure, self.meta) = (0, false, WriteMeta::default());
        }
        self.learn(attr);
        if end == u64::MAX && !(self.size_known()) {
            (self.size, self.sure) = (attr.size.max(self.segs.end()), true);
        }
        let (id, mode) = (p.id, p.mode);
        self.locks.push(Lock {
            id,
            mode,
            start,
            end,
            pins: 0,
            uses: 0,
            wanted: false,
            going: false,
            pages: Ranges::default(),
            sweeping: false,
            clearing: 0,
        });
    }

    /// Something was changed in a range: what is being read there comes too late. Ends are exclusive.
    pub fn taint(&mut self, start: u64, end: u64) {
        for f in self.fetches.iter_mut().filter(|f| f.start < end && start < f.end) {
            f.tainted = true;
        }
    }

    /// Bytes were written here, with or without the server's knowledge.
    pub fn wrote(&mut self, start: u64, end: u64, meta: WriteMeta) {
        self.taint(start, end);
        self.size = self.size.max(end);
        self.meta = WriteMeta { time: self.meta.time.max(meta.time), ..meta };
        let stamp = self.meta.stamp();
        if stamp > self.attr.ctime {
            (self.attr.mtime, self.attr.ctime) = (stamp, stamp);
        }
    }

    pub fn is_busy(&self, start: u64, end: u64) -> bool {
        self.busy.iter().any(|b| b.start < end && start < b.end)
    }

    /// Everything kept is void: the locks are gone. Returns the ranges that were not written.
    pub fn forget_all(&mut self) -> Vec<(u64, u64)> {
        let mut lost = Vec::new();
        let mut at = 0;
        while let Some((start, end)) = self.segs.next_unwritten(at) {
            lost.push((start, end));
            at = end;
        }
        self.segs.cut(0, u64::MAX);
        self.locks.clear();
        self.taint(0, u64::MAX);
        (self.sure, self.size, self.oldest) = (false, 0, None);
        self.meta = WriteMeta::default();
        lost
    }

    /// The parts of a lock's range that no other lock of this mount covers (for writing, if `write`). Ends are
    /// exclusive; the last byte of all counts as none.
    pub fn alone(&self, id: u64, write: bool) -> Vec<(u64, u64)> {
        let Some(l) = self.locks.iter().find(|l| l.id == id) else { return Vec::new() };
        let mut parts = vec![(l.start, l.end.saturating_add(1))];
        for o in self.locks.iter().filter(|o| o.id != id && (o.writes() || !write)) {
            let (a, b) = (o.start, o.end.saturating_add(1));
            parts = parts
                .into_iter()
                .flat_map(|(s, e)| [(s, e.min(a)), (s.max(b), e)])
                .filter(|(s, e)| s < e)
                .collect();
        }
        parts
    }
}

/// A file of which something is, or may be, kept.
pub(crate) struct File {
    pub fid: Fid,
    pub layout: Arc<Layout>,
    objs: Mutex<Vec<Obj>>,
    /// Something happened that somebody may wait for.
    pub changed: sync::Notify,
    /// Appends through this mount come one after the other.
    pub appends: Arc<sync::Mutex<()>>,
    pub streams: Mutex<Streams>,
    /// The group whose lock this mount has or asks for, and how many open files have it.
    pub group: Mutex<Option<(u64, usize)>>,
    /// Grows with each use of any file.
    pub used: AtomicU64,
    /// Pages filled under locks that were lost are being given up: so often at the moment.
    pub void: AtomicUsize,
    /// Pages are being given up because a server was not heard from.
    pub unsure: AtomicBool,
}

impl File {
    pub fn new(fid: Fid, layout: Arc<Layout>, targets: Vec<Arc<Target>>) -> File {
        let objs = layout.objects().zip(targets).map(|(o, t)| Obj::new(o.id, t)).collect();
        File {
            fid,
            layout,
            objs: Mutex::new(objs),
            changed: sync::Notify::new(),
            appends: Arc::default(),
            streams: Mutex::default(),
            group: Mutex::new(None),
            used: AtomicU64::new(0),
            void: AtomicUsize::new(0),
            unsure: AtomicBool::new(false),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Vec<Obj>> {
        self.objs.lock().expect("no panic while locked")
    }

    pub fn touch(&self, tick: u64) {
        self.used.store(tick, Ordering::Relaxed);
    }

    /// Size of the file, if it is known here and nobody else can change it.
    pub fn size_known(&self, objs: &[Obj]) -> Option<u64> {
        let c = stripe::component(&self.layout).ok()?;
        let mut size = 0;
        for (i, o) in objs.iter().enumerate() {
            if !o.size_known() {
                return None;
            }
            size = size.max(stripe::file_size_of(c, i, o.size).ok()?);
        }
        Some(size)
    }

    /// The file has at least this size.
    pub fn size_at_least(&self, objs: &[Obj]) -> u64 {
        let Ok(c) = stripe::component(&self.layout) else { return 0 };
        let of = |(i, o): (usize, &Obj)| stripe::file_size_of(c, i, o.size_at_least()).unwrap_or(0);
        objs.iter().enumerate().map(of).max().unwrap_or(0)
    }

    /// Whether this lock is of a group that open files of this mount belong to.
    pub fn is_grouped(&self, mode: ExtentMode) -> bool {
        let group = self.group.lock().expect("no panic while locked");
        matches!((mode, *group), (ExtentMode::Group(a), Some((b, _))) if a == b)
    }
}
