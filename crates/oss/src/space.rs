//! Foresees a full disk: a target that could not write its journal would have to stop, so space is kept
//! back for it, and data that would eat into the reserve gets ENOSPC before anything is written.
//!
//! Targets of one process that lie on one file system keep one book: what one of them promised, or is about
//! to write, no other one has.

use model::mutex::Mutex;
use model::{Errno, TargetId};
use rpc::ClientId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use world::{DiskSpace, Instant, World};

/// The reserve: 2 % of the disk within these bounds, and never more than a quarter of it.
const RESERVE_PERCENT: u64 = 2;
const RESERVE_MIN_BYTES: u64 = 32 << 20;
const RESERVE_MAX_BYTES: u64 = 1 << 30;
/// What one change may add to journal and table besides its data.
const OVERHEAD_BYTES: u64 = 16 << 10;
/// A sample of the disk is used for so long, and for a sixteenth of the room it showed.
const SAMPLE_AGE: Duration = Duration::from_secs(1);
const SAMPLE_SHARE: u64 = 16;
/// A client is promised at most this part of the room that is left, and never more than so many bytes.
const PROMISE_SHARE: u64 = 8;
const PROMISE_MAX_BYTES: u64 = 1 << 30;

/// So much room there must be before a full target has room again, for the log.
const RELIEF_BYTES: u64 = 4 << 20;

/// A client of one of the targets.
type Holder = (u16, ClientId);

#[derive(Default, Debug)]
struct SpaceState {
    sample: Option<(DiskSpace, Instant)>,
    /// Bytes admitted since the sample; starts at what was in flight then.
    since: u64,
    /// Bytes admitted by operations that have not ended.
    in_flight: u64,
    /// Bytes promised to clients for data that they keep ([`wire::msg::grant`]).
    promised: BTreeMap<Holder, u64>,
}

impl SpaceState {
    fn promises(&self, except: Option<Holder>) -> u64 {
        self.promised.iter().filter(|(c, _)| Some(**c) != except).map(|(_, n)| n).sum()
    }
}

/// What is taken and promised of one file system's room.
#[derive(Default, Debug)]
pub struct DiskBook(Mutex<SpaceState>);

/// The books of all file systems that targets of this process lie on.
#[derive(Default)]
pub struct DiskBooks(Mutex<BTreeMap<u64, Weak<DiskBook>>>);

impl DiskBooks {
    /// Of the file system with this number ([`store::format::disk_id`]). 0, which says nothing, has a new one
    /// each time.
    pub fn of(&self, disk: u64) -> Arc<DiskBook> {
        let fresh = Arc::<DiskBook>::default();
        if disk == 0 {
            return fresh;
        }
        let mut books = self.0.lock();
        books.retain(|_, b| b.strong_count() > 0);
        let known = books.get(&disk).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            books.insert(disk, Arc::downgrade(&fresh));
            fresh
        })
    }
}

pub struct Space {
    world: World,
    dir: String,
    index: u16,
    book: Arc<DiskBook>,
    /// Bytes of data of writes that are under way here.
    pending: AtomicU64,
    /// The log says that there is no room.
    said_full: AtomicBool,
}

/// Space promised to one operation; given back when it ends (the disk's own count has it by then).
pub struct Admission {
    space: Arc<Space>,
    bytes: u64,
    /// Of these what is new data.
    data: u64,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.space.lock().in_flight -= self.bytes;
        let was = self.space.pending.fetch_sub(self.data, Relaxed);
        assert!(was >= self.data, "what ends was under way");
    }
}

/// What a change needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// So many bytes of new data.
    Grow(u64),
    /// Journal and table only: data that has its blocks already is written over.
    Overhead,
}

impl Space {
    /// Of the OST with this index.
    pub fn new(world: &World, dir: &str, index: u16, book: Arc<DiskBook>) -> Arc<Space> {
        Arc::new(Space {
            world: world.clone(),
            dir: dir.to_string(),
            index,
            book,
            pending: AtomicU64::new(0),
            said_full: AtomicBool::new(false),
        })
    }

    /// The host's figures as they are now.
    pub fn now(&self) -> Result<DiskSpace, Errno> {
        self.world.disk.space(&self.dir).map_err(Errno::from)
    }

    /// Bytes kept back on a disk of `total` bytes; `set` overrides the rule.
    pub fn reserve(total: u64, set: Option<u64>) -> u64 {
        let rule = (total / 100 * RESERVE_PERCENT).clamp(RESERVE_MIN_BYTES, RESERVE_MAX_BYTES);
        set.unwrap_or(rule).min(total / 4)
    }

    /// `ENOSPC` if the change would leave less than the reserve; changes that need no new blocks, and data
    /// for which the space was promised, may use half of the reserve.
    pub fn admit(self: &Arc<Self>, need: Need, set_reserve: Option<u64>) -> Result<Admission, Errno> {
        self.admit_for(need, set_reserve, None)
    }

    /// As [`Space::admit`]; data of a client that was promised the space uses up its promise, and gets at
    /// what is promised to nobody. What is promised to others is never touched.
    pub fn admit_for(
        self: &Arc<Self>,
        need: Need,
        set_reserve: Option<u64>,
        client: Option<ClientId>,
    ) -> Result<Admission, Errno> {
        let (data, share) = match need {
            Need::Grow(n) => (n, 1),
            Need::Overhead => (0, 2),
        };
        let bytes = data.saturating_add(OVERHEAD_BYTES);
        let holder = client.map(|c| (self.index, c));
        let now = self.world.now();
        let mut fresh = None;
        for attempt in 0..2 {
            let mut s = self.lock();
            if let Some(sample) = fresh.take() {
                s.sample = Some((sample, now));
                s.since = s.in_flight;
            }
            if let Some((sample, at)) = s.sample {
                // What journal and table have taken since it was promised is theirs to take, out of the
                // reserve.
                let kept_word = matches!(need, Need::Grow(n) if n > 0 && holder.and_then(|h| s.promised.get(&h)) >= Some(&n));
                let keep = Space::reserve(sample.total, set_reserve) / if kept_word { 2 } else { share };
                let others = if share == 1 { s.promises(holder) } else { 0 };
                let room = sample.available.saturating_sub(keep).saturating_sub(others);
                let used = s.since.saturating_add(bytes);
                let trusted = now.since(at) < SAMPLE_AGE && used <= room / SAMPLE_SHARE;
                if used <= room && (trusted || attempt == 1) {
                    s.since = used;
                    s.in_flight += bytes;
                    assert!(s.in_flight <= s.since, "what is in flight was taken since the sample");
                    if let (Need::Grow(n), Some(p)) = (need, holder.and_then(|h| s.promised.get_mut(&h))) {
                        *p = p.saturating_sub(n);
                    }
                    // For whoever comes, not only for one who was promised it.
                    let relieved = data > 0 && self.said_full.load(Relaxed) && {
                        let kept = Space::reserve(sample.total, set_reserve).saturating_add(s.promises(None));
                        sample.available.saturating_sub(kept).saturating_sub(used) >= RELIEF_BYTES
                    };
                    drop(s);
                    self.pending.fetch_add(data, Relaxed);
                    if relieved {
                        self.say_full(None);
                    }
                    return Ok(Admission { space: self.clone(), bytes, data });
                }
            }
            drop(s);
            if attempt == 0 {
                fresh = Some(self.now()?);
            }
        }
        if data > 0 {
            self.say_full(Some(data));
        }
        Err(Errno::ENOSPC)
    }

    /// Says once that there was no room for so many bytes, and once that there is some again.
    fn say_full(&self, refused: Option<u64>) {
        if self.said_full.swap(refused.is_some(), Relaxed) == refused.is_some() {
            return;
        }
        let (target, dir) = (TargetId::ost(self.index), &self.dir);
        match refused {
            Some(bytes) => tracing::warn!(
                "{target} in '{dir}' is full: there is no room for {bytes} bytes beside what is kept back and promised; writers get ENOSPC (remove files, or move some elsewhere: lfs migrate)"
            ),
            None => tracing::info!("{target} in '{dir}' has room again"),
        }
    }

    /// Bytes that clients of this OST were promised, as they count on them.
    pub fn granted(&self) -> u64 {
        self.lock().promised.iter().filter(|((index, _), _)| *index == self.index).map(|(_, n)| n).sum()
    }

    /// Bytes of data of writes that are under way.
    pub fn pending(&self) -> u64 {
        self.pending.load(Relaxed)
    }

    /// Promises a client space: it says what it still has of earlier promises and what it wants altogether;
    /// returns what it has from now on. All promises together never exceed the room there is.
    pub fn promise(
        &self,
        client: ClientId,
        have: u64,
        want: u64,
        set_reserve: Option<u64>,
    ) -> Result<u64, Errno> {
        let holder = (self.index, client);
        let (now, sample) = (self.world.now(), self.now()?);
        let mut s = self.lock();
        s.sample = Some((sample, now));
        s.since = s.in_flight;
        let keep = Space::reserve(sample.total, set_reserve);
        let others = s.promises(Some(holder));
        let room = sample.available.saturating_sub(keep).saturating_sub(s.since).saturating_sub(others);
        let share = room / PROMISE_SHARE;
        let promised = have.max(want.min(share)).min(room).min(PROMISE_MAX_BYTES);
        if promised == 0 {
            s.promised.remove(&holder);
        } else {
            s.promised.insert(holder, promised);
            let all = s.promises(None).saturating_add(s.since).saturating_add(keep);
            assert!(all <= sample.available, "no more is promised than there is room for");
        }
        Ok(promised)
    }

    /// The client is gone, and its promise with it.
    pub fn forget(&self, client: ClientId) {
        self.lock().promised.remove(&(self.index, client));
    }

    /// The target ends: nobody is promised anything by it.
    pub fn close(&self) {
        self.lock().promised.retain(|(index, _), _| *index != self.index);
    }

    fn lock(&self) -> model::mutex::MutexGuard<'_, SpaceState> {
        self.book.0.lock()
    }
}
