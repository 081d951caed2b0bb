//! Foresees a full disk: a target that could not write its journal would have to stop, so space is kept
//! back for it, and data that would eat into the reserve gets ENOSPC before anything is written.
//!
//! Targets of one process that lie on one file system keep one book: what one of them promised, or is about
//! to write, no other one has. What the books of other processes on this host have, a [`Ledger`] says.

use crate::ledger::{Claim, Ledger};
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
    /// Bytes that other processes had then.
    elsewhere: u64,
    /// Bytes that may be admitted by that sample.
    spare: u64,
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

    fn claim(&self) -> Claim {
        assert!(self.in_flight <= self.since, "what is in flight was taken since the sample");
        Claim { held: self.promises(None).saturating_add(self.in_flight), spare: self.spare }
    }
}

/// What is taken and promised of one file system's room.
#[derive(Default, Debug)]
pub struct DiskBook {
    state: Mutex<SpaceState>,
    /// `None`: no other process has targets there, or nobody can know.
    ledger: Option<Ledger>,
    /// The log says that the ledger cannot be used.
    said_unknown: AtomicBool,
}

impl DiskBook {
    /// Of a process that shares the room with others, which it finds in this folder ([`Ledger`]).
    pub fn shared(world: &World, dir: &str) -> DiskBook {
        let book = DiskBook::default();
        match Ledger::open(world, dir) {
            Ok(l) => DiskBook { ledger: Some(l), ..book },
            Err(e) => {
                tracing::warn!(
                    "cannot use '{dir}': {e}: what servers in other processes promise of the same disk's room is not known here"
                );
                book
            }
        }
    }

    /// What other processes have; `None` if that cannot be found out.
    fn elsewhere(&self, mine: Claim) -> Option<u64> {
        let Some(l) = &self.ledger else { return Some(0) };
        let r = l.publish(mine).and_then(|()| l.others());
        let failed = r.is_err();
        if self.said_unknown.swap(failed, Relaxed) != failed {
            match &r {
                Err(e) => tracing::warn!("cannot find out what other servers promised of this disk: {e}"),
                Ok(_) => tracing::info!("it is known again what other servers promised of this disk"),
            }
        }
        r.ok()
    }

    /// Tells the others what this process has.
    fn publish(&self, mine: Claim) {
        if let Some(l) = &self.ledger
            && let Err(e) = l.publish(mine)
        {
            tracing::debug!("cannot tell other servers what was promised: {e}");
        }
    }
}

/// The books of all file systems that targets of this process lie on.
#[derive(Default)]
pub struct DiskBooks(Mutex<BTreeMap<u64, Weak<DiskBook>>>);

impl DiskBooks {
    /// Of the file system with this number ([`store::format::disk_id`]), made by `fresh` if it has none yet.
    /// 0, which says nothing, has a new one each time.
    pub fn of(&self, disk: u64, fresh: impl FnOnce() -> DiskBook) -> Arc<DiskBook> {
        if disk == 0 {
            return Arc::default();
        }
        let mut books = self.0.lock();
        books.retain(|_, b| b.strong_count() > 0);
        let known = books.get(&disk).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let fresh = Arc::new(fresh());
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
        let mut s = self.lock();
        for attempt in 0..2 {
            if attempt == 1 {
                self.look(&mut s, |_| bytes)?;
            }
            if let Some((sample, at)) = s.sample {
                // What journal and table have taken since it was promised is theirs to take, out of the
                // reserve.
                let kept_word = matches!(need, Need::Grow(n) if n > 0 && holder.and_then(|h| s.promised.get(&h)) >= Some(&n));
                let keep = Space::reserve(sample.total, set_reserve) / if kept_word { 2 } else { share };
                // Who has this room by a promise has it, whatever others have not told yet.
                let elsewhere = if share == 1 && !kept_word { s.elsewhere } else { 0 };
                let others = if share == 1 { s.promises(holder).saturating_add(elsewhere) } else { 0 };
                let room = sample.available.saturating_sub(keep).saturating_sub(others);
                let used = s.since.saturating_add(bytes);
                // Only what is neither promised nor out of the reserve needs what others left for it.
                let spare = if share == 1 && !kept_word { s.spare } else { u64::MAX };
                let trusted = now.since(at) < SAMPLE_AGE && used <= spare.min(room / SAMPLE_SHARE);
                if used <= room && (trusted || attempt == 1) {
                    s.since = used;
                    s.in_flight += bytes;
                    assert!(s.in_flight <= s.since, "what is in flight was taken since the sample");
                    if let (Need::Grow(n), Some(p)) = (need, holder.and_then(|h| s.promised.get_mut(&h))) {
                        *p = p.saturating_sub(n);
                    }
                    if attempt == 1 {
                        s.spare = room / SAMPLE_SHARE;
                        self.book.publish(s.claim());
                    }
                    // For whoever comes, not only for one who was promised it.
                    let relieved = data > 0 && self.said_full.load(Relaxed) && {
                        let promised = s.promises(None).saturating_add(s.elsewhere);
                        let kept = Space::reserve(sample.total, set_reserve).saturating_add(promised);
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
        }
        s.spare = 0;
        self.book.publish(s.claim());
        drop(s);
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
            Some(bytes) => model::event!(
                WARN,
                TargetFull,
                target,
                "{target} in '{dir}' is full: there is no room for {bytes} bytes beside what is kept back and promised; writers get ENOSPC (remove files, or move some elsewhere: lfs migrate)"
            ),
            None => model::event!(INFO, TargetHasRoom, target, "{target} in '{dir}' has room again"),
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
        let mut s = self.lock();
        let sample = self.look(&mut s, |room| have.max(want.min(room / PROMISE_SHARE)))?;
        let keep = Space::reserve(sample.total, set_reserve);
        let others = s.promises(Some(holder)).saturating_add(s.elsewhere);
        let room = sample.available.saturating_sub(keep).saturating_sub(s.since).saturating_sub(others);
        let share = room / PROMISE_SHARE;
        let promised = have.max(want.min(share)).min(room).min(PROMISE_MAX_BYTES);
        if promised == 0 {
            s.promised.remove(&holder);
        } else {
            s.promised.insert(holder, promised);
            let all = s.promises(None).saturating_add(s.elsewhere).saturating_add(s.since);
            assert!(
                all.saturating_add(keep) <= sample.available,
                "no more is promised than there is room for"
            );
        }
        s.spare = room / SAMPLE_SHARE;
        self.book.publish(s.claim());
        Ok(promised)
    }

    /// Looks at the disk, and at what other processes have of it, when they can see that `more` bytes beside
    /// what is held are wanted here: that depends on what the disk has.
    fn look(&self, s: &mut SpaceState, more: impl FnOnce(u64) -> u64) -> Result<DiskSpace, Errno> {
        if self.book.ledger.is_some() {
            let room = self.now()?.available;
            s.spare = room / SAMPLE_SHARE;
            let mine = s.claim();
            let wanted = Claim { held: mine.held.saturating_add(more(room)), ..mine };
            s.elsewhere = self.book.elsewhere(wanted).unwrap_or(s.elsewhere);
        }
        // After that: what others wrote meanwhile, and have no more, is seen here.
        let sample = self.now()?;
        s.sample = Some((sample, self.world.now()));
        s.since = s.in_flight;
        Ok(sample)
    }

    /// The client is gone, and its promise with it.
    pub fn forget(&self, client: ClientId) {
        let mut s = self.lock();
        s.promised.remove(&(self.index, client));
        self.book.publish(s.claim());
    }

    /// The target ends: nobody is promised anything by it.
    pub fn close(&self) {
        let mut s = self.lock();
        s.promised.retain(|(index, _), _| *index != self.index);
        self.book.publish(s.claim());
    }

    fn lock(&self) -> model::mutex::MutexGuard<'_, SpaceState> {
        self.book.state.lock()
    }
}
