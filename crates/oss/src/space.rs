//! Foresees a full disk: a target that could not write its journal would have to stop, so space is kept
//! back for it, and data that would eat into the reserve gets ENOSPC before anything is written.

use model::Errno;
use rpc::ClientId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
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

#[derive(Default)]
struct State {
    sample: Option<(DiskSpace, Instant)>,
    /// Bytes admitted since the sample; starts at what was in flight then.
    since: u64,
    /// Bytes admitted by operations that have not ended.
    in_flight: u64,
    /// Bytes promised to clients for data that they keep ([`wire::msg::grant`]).
    promised: BTreeMap<ClientId, u64>,
}

impl State {
    fn promises(&self, except: Option<ClientId>) -> u64 {
        self.promised.iter().filter(|(c, _)| Some(**c) != except).map(|(_, n)| n).sum()
    }
}

pub struct Space {
    world: World,
    dir: String,
    state: Mutex<State>,
}

/// Space promised to one operation; given back when it ends (the disk's own count has it by then).
pub struct Admission {
    space: Arc<Space>,
    bytes: u64,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.space.lock().in_flight -= self.bytes;
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
    pub fn new(world: &World, dir: &str) -> Arc<Space> {
        Arc::new(Space { world: world.clone(), dir: dir.to_string(), state: Mutex::default() })
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

    /// `ENOSPC` if the change would leave less than the reserve; changes that need no new blocks may use
    /// half of the reserve.
    pub fn admit(self: &Arc<Self>, need: Need, set_reserve: Option<u64>) -> Result<Admission, Errno> {
        self.admit_for(need, set_reserve, None)
    }

    /// As [`Space::admit`]; data of a client that was promised the space uses up its promise, and gets at what is
    /// promised to nobody. What is promised to others is never touched.
    pub fn admit_for(
        self: &Arc<Self>,
        need: Need,
        set_reserve: Option<u64>,
        client: Option<ClientId>,
    ) -> Result<Admission, Errno> {
        let (bytes, share) = match need {
            Need::Grow(n) => (n.saturating_add(OVERHEAD_BYTES), 1),
            Need::Overhead => (OVERHEAD_BYTES, 2),
        };
        let now = self.world.now();
        let mut fresh = None;
        for attempt in 0..2 {
            let mut s = self.lock();
            if let Some(sample) = fresh.take() {
                s.sample = Some((sample, now));
                s.since = s.in_flight;
            }
            if let Some((sample, at)) = s.sample {
                let keep = Space::reserve(sample.total, set_reserve) / share;
                let others = if share == 1 { s.promises(client) } else { 0 };
                let room = sample.available.saturating_sub(keep).saturating_sub(others);
                let used = s.since.saturating_add(bytes);
                let trusted = now.since(at) < SAMPLE_AGE && used <= room / SAMPLE_SHARE;
                if used <= room && (trusted || attempt == 1) {
                    s.since = used;
                    s.in_flight += bytes;
                    if let (Need::Grow(n), Some(p)) = (need, client.and_then(|c| s.promised.get_mut(&c))) {
                        *p = p.saturating_sub(n);
                    }
                    return Ok(Admission { space: self.clone(), bytes });
                }
            }
            drop(s);
            if attempt == 0 {
                fresh = Some(self.now()?);
            }
        }
        Err(Errno::ENOSPC)
    }

    /// Promises a client space: it says what it still has of earlier promises and what it wants altogether; returns
    /// what it has from now on. All promises together never exceed the room there is.
    pub fn promise(
        &self,
        client: ClientId,
        have: u64,
        want: u64,
        set_reserve: Option<u64>,
    ) -> Result<u64, Errno> {
        let (now, sample) = (self.world.now(), self.now()?);
        let mut s = self.lock();
        s.sample = Some((sample, now));
        s.since = s.in_flight;
        let keep = Space::reserve(sample.total, set_reserve);
        let others = s.promises(Some(client));
        let room = sample.available.saturating_sub(keep).saturating_sub(s.since).saturating_sub(others);
        let share = room / PROMISE_SHARE;
        let promised = have.max(want.min(share)).min(room).min(PROMISE_MAX_BYTES);
        if promised == 0 {
            s.promised.remove(&client);
        } else {
            s.promised.insert(client, promised);
        }
        Ok(promised)
    }

    /// The client is gone, and its promise with it.
    pub fn forget(&self, client: ClientId) {
        self.lock().promised.remove(&client);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
}
