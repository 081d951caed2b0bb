//! One object as this mount keeps it: the locks held, the bytes kept under them, and what goes on with the
//! server.

use super::Osc;
use super::ranges::Ranges;
use super::segments::Segments;
use crate::BoxFutureOf;
use crate::base::jobid::JobId;
use model::mutex::{Mutex, MutexGuard};
use model::nodemap::Owner;
use model::planted::{self, Bug};
use model::{Errno, Fid, ObjectAttr, ObjectId, Timestamp};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use wire::RequestContext;
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
    /// The kernel is giving those up: what must be done before it can may rely on the lock though it is
    /// going.
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
pub(crate) struct LockEnqueue {
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
    pub(super) outcome: Mutex<Option<Outcome>>,
}

impl LockEnqueue {
    /// How it ended, if it has.
    pub fn outcome(&self) -> Option<Outcome> {
        *self.outcome.lock()
    }

    pub fn covers(&self, write: bool, start: u64, end: u64) -> bool {
        (self.mode != ExtentMode::Read || !write) && self.start <= start && end <= self.end
    }
}

/// A range that a change is being made to on the server: nothing else is sent for it meanwhile. Ends are
/// exclusive.
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
#[derive(Clone, Default, Debug)]
pub(crate) struct WriteMeta {
    /// To whom it is counted.
    pub owner: Owner,
    pub inode_ctime: Timestamp,
    pub time: Timestamp,
    /// Whoever writes is held by no limits.
    pub exempt: bool,
    /// Whoever writes waits until the server has it (O_DIRECT).
    pub direct: bool,
    /// For which job; whoever wrote last counts for all that goes in one message.
    pub job: JobId,
}

impl WriteMeta {
    /// The time that the server will stamp.
    pub fn stamp(&self) -> Timestamp {
        self.time.max(self.inode_ctime.plus_nanos(1))
    }
}

/// Who has an object open, as the OSC sees it.
pub(crate) trait ObjectHolder: Send + Sync {
    /// Has a kernel give up what it has in pages of these parts of the object; over when it has.
    fn pages_given_up<'a>(&'a self, o: &'a Object, ranges: Vec<(u64, u64)>) -> BoxFutureOf<'a, ()>;
    /// A lock was lost: what a kernel has in pages of these parts is void, and what was stored into them is
    /// lost.
    fn pages_void(self: Arc<Self>, o: &Object, ranges: Vec<(u64, u64)>);
    /// Whether this lock is of a group that open files of this mount belong to.
    fn is_grouped(&self, mode: ExtentMode) -> bool;
}

/// What an object is to remember of its component ([`model::layout::ObjectLabel`], encoded), if anything.
pub(crate) type Label = Option<Arc<[u8]>>;

/// An object that is open here. There is one for each id.
pub(crate) struct Object {
    pub id: ObjectId,
    /// The file that it belongs to.
    pub file: Fid,
    pub osc: Arc<Osc>,
    /// Of the layout that requests for it carry.
    layout_generation: AtomicU32,
    /// Of the same layout.
    label: Mutex<Label>,
    state: Mutex<ObjectState>,
    /// Something happened that somebody may wait for; all objects of a file share it.
    pub changed: Arc<sync::Notify>,
    /// Grows with each use of any object.
    pub used: AtomicU64,
    holder: Mutex<Weak<dyn ObjectHolder>>,
}

impl Object {
    pub(crate) fn new(
        (id, file): (ObjectId, Fid),
        (layout_generation, label): (u32, Label),
        osc: Arc<Osc>,
        changed: Arc<sync::Notify>,
        holder: Weak<dyn ObjectHolder>,
    ) -> Arc<Object> {
        Arc::new(Object {
            id,
            file,
            osc,
            layout_generation: AtomicU32::new(layout_generation),
            label: Mutex::new(label),
            state: Mutex::new(ObjectState::new()),
            changed,
            used: AtomicU64::new(0),
            holder: Mutex::new(holder),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ObjectState> {
        self.state.lock()
    }

    /// Brings the totals up to date after a change; `s` is this object's.
    pub(crate) fn account(&self, s: &mut ObjectState) {
        let covered = s.segs.unwritten_bytes() == 0 || s.locks.iter().any(Lock::writes);
        assert!(covered || planted::on(Bug::CancelBeforeFlush), "dirty bytes lie under a lock for writing");
        self.osc.cache.account(self, s);
    }

    pub(super) fn holder(&self) -> Option<Arc<dyn ObjectHolder>> {
        self.holder.lock().upgrade()
    }

    /// The object belongs to a newer layout of its file from now on; everything that is kept stays.
    pub(crate) fn carry_over(
        &self,
        (layout_generation, label): (u32, Label),
        holder: Weak<dyn ObjectHolder>,
    ) {
        *self.holder.lock() = holder;
        *self.label.lock() = label;
        let was = self.layout_generation.swap(layout_generation, Ordering::Relaxed);
        assert!(was <= layout_generation, "layouts of {} go back", self.file);
    }

    pub(crate) fn generation(&self) -> u32 {
        self.layout_generation.load(Ordering::Relaxed)
    }

    /// What a request under a lock says of its sender, and for which job it is.
    pub(crate) fn request(&self, job: &JobId) -> RequestContext {
        let layout_generation = self.generation();
        RequestContext { layout_generation, deadline_ms: 0, ..self.osc.cx.own_for(job) }
    }

    /// As [`Object::request`], for a change: it says what the object is part of.
    pub(crate) fn request_to_change(&self, job: &JobId) -> RequestContext {
        let label = self.label.lock().clone();
        self.request(job).labelled(label.as_deref())
    }

    /// Attributes of the object as far as they are known here without asking: with everything written here.
    pub(crate) fn attr_if_locked(&self) -> Option<ObjectAttr> {
        let s = self.lock();
        (self.osc.is_usable() && s.all_known()).then(|| s.attr_now())
    }

    /// What this mount adds to the object's attributes as the server tells them.
    pub(crate) fn kept(&self) -> Option<KeptAttr> {
        self.lock().kept()
    }

    /// Unwritten bytes of a range, or of a part of it, were lost.
    pub(super) fn write_lost(&self, range: (u64, u64), e: Errno) {
        self.osc.cx.write_lost(self.file, self.id, range, e);
    }
}

/// What is kept of an object: nothing except under a lock.
pub(crate) struct ObjectState {
    pub segs: Segments,
    pub locks: Vec<Lock>,
    pub enqueued: Vec<Arc<LockEnqueue>>,
    pub busy: Vec<Busy>,
    /// Changes that were in `busy` and are answered.
    answered: u64,
    pub fetches: Vec<Fetch>,
    /// As the server told last, with the times of writes that it does not know yet.
    pub attr: ObjectAttr,
    /// Newest (mtime, ctime) that the server told. Of what it does not know yet it may stamp less than is
    /// expected here: it does not believe a clock that is far ahead of its own.
    told: (Timestamp, Timestamp),
    /// Object size with everything written here; what it is worth says [`ObjectState::size_known`].
    pub size: u64,
    /// False: only the server knows the size, because a write was lost, say. It is at least `size`.
    pub size_authoritative: bool,
    pub meta: WriteMeta,
    /// When the oldest dirty byte came.
    pub oldest: Option<Instant>,
    /// A task writes everything up to this number.
    pub flushing: bool,
    pub flush_upto: u64,
    /// So often a message was full, which the task above sends.
    pub full_runs: u64,
    pub contended_until: Instant,
    /// As counted in the totals: unwritten bytes, clean bytes, segments, locks.
    pub counted: (u64, u64, usize, usize),
}

impl ObjectState {
    fn new() -> ObjectState {
        ObjectState {
            segs: Segments::default(),
            locks: Vec::new(),
            enqueued: Vec::new(),
            busy: Vec::new(),
            answered: 0,
            fetches: Vec::new(),
            attr: ObjectAttr::default(),
            told: Default::default(),
            size: 0,
            size_authoritative: false,
            meta: WriteMeta::default(),
            oldest: None,
            flushing: false,
            flush_upto: 0,
            full_runs: 0,
            contended_until: Instant::default(),
            counted: (0, 0, 0, 0),
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
        self.size_authoritative
            && self.locks.iter().any(|l| l.excludes() && l.end == u64::MAX && l.start <= self.size)
    }

    /// Whether everything about the object is known, and nobody else can change it.
    pub fn all_known(&self) -> bool {
        self.size_authoritative
            && self.locks.iter().any(|l| l.excludes() && l.end == u64::MAX && l.start == 0)
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
        if a.ctime > self.told.1 {
            self.told = (a.mtime, a.ctime);
        }
        if self.told.1 > self.attr.ctime || self.busy.is_empty() && self.segs.unwritten_bytes() == 0 {
            (self.attr.mtime, self.attr.ctime) = self.told;
        }
    }

    /// For [`ObjectState::unchanged_since`]. `None`: a change is on its way, and what the server says from
    /// now on may have it or not.
    pub fn moment(&self) -> Option<u64> {
        self.busy.is_empty().then_some(self.answered)
    }

    /// Whether what the server said since then has all that this mount did: a change that is on its way by
    /// now is here until it is answered.
    pub fn unchanged_since(&self, moment: Option<u64>) -> bool {
        moment == Some(self.answered)
    }

    /// A change is answered, and what came of it noted. Whether it was under way.
    pub fn answered(&mut self, token: u64) -> bool {
        let under_way = self.busy.len();
        self.busy.retain(|b| b.token != token);
        self.answered += 1;
        self.busy.len() + 1 == under_way
    }

    /// Only the server knows how large the object is; what is kept is there.
    pub fn size_unsure(&mut self) {
        (self.size, self.size_authoritative) = (self.segs.end(), false);
    }

    /// Whether a lock up to `end` needs to hear of the server what the object is like.
    pub fn wants_attr(&self, end: u64) -> bool {
        self.locks.is_empty() || end == u64::MAX && !self.size_known()
    }

    /// A lock was granted. `complete`: `attr` has all that this mount did to the object.
    pub fn granted(&mut self, p: &LockEnqueue, (start, end): (u64, u64), attr: &ObjectAttr, complete: bool) {
        assert!(start <= p.start && p.end <= end, "a lock covers what was asked for");
        assert!(self.locks.iter().all(|l| l.id != p.id), "a lock is granted once");
        if self.locks.is_empty() {
            (self.attr, self.told) = (*attr, (attr.mtime, attr.ctime));
            (self.size, self.size_authoritative, self.meta) = (0, false, WriteMeta::default());
        }
        self.learn(attr);
        if end == u64::MAX && !self.size_known() {
            self.size_unsure();
            (self.size, self.size_authoritative) = (attr.size.max(self.size), complete);
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
        assert!(start < end, "a write brings bytes");
        self.taint(start, end);
        self.size = self.size.max(end);
        self.meta = WriteMeta { time: self.meta.time.max(meta.time), ..meta };
        let stamp = self.meta.stamp();
        if stamp > self.attr.ctime {
            (self.attr.mtime, self.attr.ctime) = (stamp, stamp);
        }
    }

    /// New times of the file are set: what was not sent yet has nothing to say about them, however far ahead
    /// this host's clock is. Whether that is all there is: no server has stamped a write, or is about to.
    pub fn outdate_unsent(&mut self) -> bool {
        if self.segs.unwritten_bytes() > 0 {
            self.meta.time = self.meta.inode_ctime;
            let stamp = self.meta.stamp();
            if self.busy.is_empty() {
                let newest = if self.told.1 > stamp { self.told } else { (stamp, stamp) };
                (self.attr.mtime, self.attr.ctime) = newest;
            }
        }
        self.all_known() && self.busy.is_empty() && self.told.1 == Timestamp::ZERO
    }

    /// Whether no byte is in two messages.
    pub fn busy_is_disjoint(&self) -> bool {
        let mut ranges: Vec<_> = self.busy.iter().map(|b| (b.start, b.end)).collect();
        ranges.sort_unstable();
        ranges.is_sorted_by(|a, b| a.1 <= b.0)
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
        self.size_unsure();
        self.oldest = None;
        self.meta = WriteMeta::default();
        assert!(self.segs.count() == 0, "nothing is kept without a lock");
        lost
    }

    /// Whether nothing is kept, and nothing goes on with the server.
    pub fn is_idle(&self) -> bool {
        self.locks.is_empty() && self.enqueued.is_empty() && self.segs.count() == 0 && self.busy.is_empty()
    }

    /// The parts of a lock's range that no other lock of this mount covers (for writing, if `write`). Ends
    /// are exclusive; the last byte of all counts as none.
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
