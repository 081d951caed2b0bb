//! In which order requests begin that have to wait: a pure structure without clock, threads or I/O.
//!
//! Parties (users, or else mounts) share equally, and within a party its jobs do: whoever has had least
//! begins next, measured by what requests cost ("start-time fair queueing", Goyal, Vin and Cheng, IEEE/ACM
//! Transactions on Networking 5, 1997, in two levels). Against deficit round robin it needs no rounds: a
//! request that costs much takes no longer to choose. Whoever comes after a pause begins where the others
//! are; he saves nothing up. Requests of one class stay in their order.

use super::bucket::{BucketKey, Buckets, Rate};
use crate::client_id::ClientId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use world::Instant;

/// Classes that are remembered; those that wait for nothing go, the one first that was idle for longest.
pub const CLASSES_MAX: usize = 1024;
/// Classes that others share when all of those have requests that wait.
const SHARED: u8 = 64;
/// What one request costs at most, so that nobody is thrown back for ever.
pub const COST_MAX: u64 = 4096;

/// Who shares equally with others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Party {
    User(u32),
    /// What a mount does on its own account, and root's processes there without a job.
    Mount(ClientId),
    /// Everybody at one address (`crrn`).
    Address(IpAddr),
    /// Several, as there are too many.
    Shared(u8),
}

/// What is kept in order, and apart from others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClassKey {
    pub party: Party,
    pub job: Arc<str>,
    /// What limits it.
    pub bucket: Option<BucketKey>,
}

/// How long requests of a class waited, microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Waits {
    pub samples: u64,
    pub max: u64,
    pub sum: u64,
}

impl Waits {
    fn add(&mut self, waited: Duration) {
        let us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.samples += 1;
        self.max = self.max.max(us);
        self.sum = self.sum.saturating_add(us);
    }
}

struct Item<T> {
    ticket: u64,
    cost: u64,
    since: Instant,
    what: T,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Idle,
    /// Its first request may begin.
    Ready,
    /// It waits for a token.
    Parked,
}

struct Class<T> {
    fifo: VecDeque<Item<T>>,
    state: State,
    /// What it has had, on its party's clock.
    start: u64,
    used: Instant,
    waits: Waits,
}

#[derive(Default)]
struct Lane {
    /// What the party has had, on the clock of all.
    start: u64,
    /// As far as its classes have come.
    clock: u64,
    ready: BTreeSet<(u64, ClassKey)>,
    /// Classes of it that are remembered.
    classes: usize,
}

/// What is next.
#[derive(PartialEq, Eq, Debug)]
pub enum Next<T> {
    Begin(T),
    /// Nothing before this time.
    At(Instant),
    Nothing,
}

/// A class as it is shown.
pub struct Shown<'a> {
    pub key: &'a ClassKey,
    pub queued: usize,
    pub waits: Waits,
}

pub struct Queue<T> {
    classes: BTreeMap<ClassKey, Class<T>>,
    lanes: BTreeMap<Party, Lane>,
    ready: BTreeSet<(u64, Party)>,
    clock: u64,
    pub buckets: Buckets,
    queued: usize,
    tickets: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue {
            classes: BTreeMap::new(),
            lanes: BTreeMap::new(),
            ready: BTreeSet::new(),
            clock: 0,
            buckets: Buckets::default(),
            queued: 0,
            tickets: 0,
        }
    }
}

impl<T> Queue<T> {
    pub fn is_empty(&self) -> bool {
        self.queued == 0
    }

    pub fn len(&self) -> usize {
        self.queued
    }

    /// Every class that is remembered.
    pub fn classes(&self) -> impl Iterator<Item = Shown<'_>> {
        self.classes.iter().map(|(key, c)| Shown { key, queued: c.fifo.len(), waits: c.waits })
    }

    /// Puts a request behind those of its class. With what it is taken back: the class as it counts, and a
    /// ticket.
    pub fn push(&mut self, key: ClassKey, cost: u64, now: Instant, what: T) -> (ClassKey, u64) {
        let key = self.bounded(key);
        self.tickets += 1;
        let item = Item { ticket: self.tickets, cost: cost.clamp(1, COST_MAX), since: now, what };
        self.queued += 1;
        if !self.classes.contains_key(&key) {
            let class = Class {
                fifo: VecDeque::new(),
                state: State::Idle,
                start: 0,
                used: now,
                waits: Waits::default(),
            };
            self.classes.insert(key.clone(), class);
            self.lanes.entry(key.party).or_default().classes += 1;
        }
        let class = self.classes.get_mut(&key).expect("it was made");
        class.used = class.used.max(now);
        class.fifo.push_back(item);
        if class.state == State::Idle {
            self.make_ready(&key);
        }
        (key, self.tickets)
    }

    /// Takes a request out again. `None`: it has begun.
    pub fn remove(&mut self, key: &ClassKey, ticket: u64) -> Option<T> {
        let class = self.classes.get_mut(key)?;
        let at = class.fifo.binary_search_by_key(&ticket, |i| i.ticket).ok()?;
        let item = class.fifo.remove(at)?;
        self.queued -= 1;
        if class.fifo.is_empty() && class.state == State::Ready {
            class.state = State::Idle;
            let start = class.start;
            self.unready(key, start);
        }
        Some(item.what)
    }

    /// Takes everything out, in no order.
    pub fn drain(&mut self) -> Vec<T> {
        let keys: Vec<ClassKey> = self.classes.keys().cloned().collect();
        let mut out = Vec::new();
        for key in keys {
            while let Some(ticket) = self.classes[&key].fifo.front().map(|i| i.ticket) {
                out.extend(self.remove(&key, ticket));
            }
        }
        assert!(self.queued == 0 && self.ready.is_empty(), "nothing is left");
        out
    }

    /// The next request that may begin, of who has had least. `rate_of`: how often a rule lets requests
    /// begin; `None`: the rule is gone.
    pub fn pop(&mut self, now: Instant, rate_of: impl Fn(u64) -> Option<Rate>) -> Next<T> {
        for key in self.buckets.due(now, &rate_of) {
            self.unpark(&key);
        }
        // Each turn takes a class out of what is ready, or is the last one.
        while let Some((start, party)) = self.ready.first().copied() {
            let (mine, key) =
                self.lanes[&party].ready.first().cloned().expect("a party is ready with a class");
            let limit = key.bucket.as_ref().and_then(|b| Some((b, rate_of(b.rule)?)));
            if let Some((bucket, rate)) = limit
                && !self.buckets.take(bucket, rate, now)
            {
                self.unready(&key, mine);
                self.classes.get_mut(&key).expect("what is ready is known").state = State::Parked;
                self.buckets.park(bucket, rate, key.clone());
                continue;
            }
            return Next::Begin(self.begin(start, mine, &key, now));
        }
        match self.buckets.next_due() {
            Some(at) if self.queued > 0 => Next::At(at),
            _ => {
                assert_eq!(self.queued, 0, "what waits is ready, or waits for a token");
                Next::Nothing
            }
        }
    }

    /// A rule is gone or has changed: who waited because of it is looked at again.
    pub fn forget_rule(&mut self, rule: u64) {
        for key in self.buckets.forget(rule) {
            self.unpark(&key);
        }
    }

    fn begin(&mut self, start: u64, mine: u64, key: &ClassKey, now: Instant) -> T {
        self.unready(key, mine);
        self.ready.remove(&(start, key.party));
        let class = self.classes.get_mut(key).expect("what is ready is known");
        let item = class.fifo.pop_front().expect("what is ready has a request");
        let lane = self.lanes.get_mut(&key.party).expect("a class has its party");
        class.waits.add(now.since(item.since));
        class.used = class.used.max(now);
        class.state = State::Idle;
        assert!(start >= self.clock && mine >= lane.clock, "nobody is behind who has begun");
        (self.clock, lane.clock) = (start, mine);
        (lane.start, class.start) = (start + item.cost, mine + item.cost);
        if !lane.ready.is_empty() {
            self.ready.insert((lane.start, key.party));
        }
        self.queued -= 1;
        let more = !class.fifo.is_empty();
        if more {
            self.make_ready(key);
        }
        item.what
    }

    fn make_ready(&mut self, key: &ClassKey) {
        let class = self.classes.get_mut(key).expect("it is known");
        let lane = self.lanes.get_mut(&key.party).expect("a class has its party");
        assert!(class.state != State::Ready && !class.fifo.is_empty(), "it has a request, and was not ready");
        class.state = State::Ready;
        class.start = class.start.max(lane.clock);
        if lane.ready.is_empty() {
            lane.start = lane.start.max(self.clock);
            self.ready.insert((lane.start, key.party));
        }
        lane.ready.insert((class.start, key.clone()));
    }

    /// Takes a class out of what is ready.
    fn unready(&mut self, key: &ClassKey, start: u64) {
        let lane = self.lanes.get_mut(&key.party).expect("a class has its party");
        let was = lane.ready.remove(&(start, key.clone()));
        assert!(was, "it was ready");
        if lane.ready.is_empty() {
            self.ready.remove(&(lane.start, key.party));
        }
    }

    /// It need not wait for a token any more, or at least may look for one again.
    fn unpark(&mut self, key: &ClassKey) {
        let class = self.classes.get_mut(key).expect("who waits is known");
        assert_eq!(class.state, State::Parked, "it waited for a token");
        class.state = State::Idle;
        if !class.fifo.is_empty() {
            self.make_ready(key);
        }
    }

    /// The class as it counts: an idle one makes room, or it is one that several share.
    fn bounded(&mut self, key: ClassKey) -> ClassKey {
        if self.classes.len() < CLASSES_MAX || self.classes.contains_key(&key) {
            return key;
        }
        let idle = self.classes.iter().filter(|(_, c)| c.state == State::Idle);
        if let Some(oldest) = idle.min_by_key(|(_, c)| c.used).map(|(k, _)| k.clone()) {
            self.classes.remove(&oldest);
            let lane = self.lanes.get_mut(&oldest.party).expect("a class has its party");
            lane.classes -= 1;
            if lane.classes == 0 {
                self.lanes.remove(&oldest.party);
            }
            return key;
        }
        let known = self.classes.len();
        let place = match (&key.bucket, key.party) {
            (Some(_), _) => 0,
            (None, Party::User(uid)) => (uid % u32::from(SHARED)) as u8,
            (None, Party::Mount(c)) => c.0[0] % SHARED,
            (None, Party::Address(IpAddr::V4(a))) => a.octets()[3] % SHARED,
            (None, Party::Address(IpAddr::V6(a))) => a.octets()[15] % SHARED,
            (None, Party::Shared(n)) => n % SHARED,
        };
        // One for each rule; more than there can be at a time are of rules that are gone.
        let bucket =
            key.bucket.map(BucketKey::shared).filter(|_| known < 2 * CLASSES_MAX - usize::from(SHARED));
        assert!(known <= 2 * CLASSES_MAX, "classes are bounded: {known}");
        ClassKey { party: Party::Shared(place), job: "".into(), bucket }
    }
}
