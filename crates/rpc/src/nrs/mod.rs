//! Who begins next: users share a target's attention equally, and each user's jobs share his part. Lustre's
//! network request scheduler (NRS).
//!
//! Requests are tasks here, no threads serve them. One takes one of so many **places** when it begins, and
//! gives it back when it is answered. It loses it before that when all places are taken and nobody was
//! answered for a few milliseconds (`nrs_place_time`), or after [`PLACE_TIMES`] times as long in any case:
//! requests that wait for a lock, a disk or another client keep nobody out for longer than that, so nothing
//! for which requests wait among themselves can end in a circle. (Time alone would not do: a target that has
//! too much to do answers all of them late, and would let in more and more.) While places are free nothing
//! waits, nothing is counted for anybody, and it costs one short lock. When they are taken the others are put
//! in order (`engine`). Rules (`rules`, `bucket`) bound how often something begins.
//!
//! What others may wait for takes no place: see [`goes_ahead`].

mod bucket;
mod engine;
#[cfg(test)]
mod engine_tests;
mod params;
mod report;
mod rules;
#[cfg(test)]
mod rules_tests;

pub use params::{TABLE, declare};
pub use rules::{Account, Subject};

use crate::client_id::ClientId;
use crate::credits::Credits;
use engine::{ClassKey, Next, Queue};
use model::Errno;
use model::mutex::{Mutex, MutexGuard};
use rules::{Policy, Rules, parse_orders};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use wire::msg::read::Read;
use wire::verb::BulkSide;
use wire::{Op, RequestContext, Sender};
use world::sync::oneshot;
use world::{Either, Instant, World, select, sync};

/// Places of a target whose host did not say how many processors it has.
pub const PLACES_DEFAULT: u64 = 16;
/// For each processor of the host: those that wait for a disk for a moment leave it something to do.
const PLACES_PER_PROCESSOR: u64 = 4;
pub const PLACES_MAX: u64 = 4096;
/// `nrs_place_time` unless set otherwise.
pub const PLACE_TIME_DEFAULT_MS: u64 = 20;
/// A place is lost after so many times that, whoever else is answered.
const PLACE_TIMES: u32 = 10;
pub const PLACE_TIME_MAX_MS: u64 = 1000;
/// Somebody may begin to wait for what a client has while the client's own request waits here: it is looked
/// at again after so long.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A request costs 1, and 1 for each of these.
const COST_MESSAGE_BYTES: usize = 512;
const COST_BULK_BYTES: usize = 64 << 10;

/// The order of requests of one target, or of several that share it.
pub struct Nrs {
    /// There once a target is served.
    world: OnceLock<World>,
    state: Mutex<State>,
    /// `nrs_places`; 0: by the host's processors.
    places: AtomicU64,
    host_places: AtomicU64,
    /// `nrs_place_time`, milliseconds.
    place_ms: AtomicU64,
    /// Requests that took a place without waiting, and that took none.
    at_once: AtomicU64,
    ahead: AtomicU64,
    /// Something may begin earlier than was thought.
    sooner: sync::Notify,
    /// How many requests a session may have here at all.
    credits: Credits,
}

#[derive(Default)]
struct State {
    policy: Policy,
    rules: Rules,
    engine: Queue<oneshot::Sender<Place>>,
    /// Who has a place: number and since when, in that order.
    running: VecDeque<(u64, Instant)>,
    begun: u64,
    /// When somebody was answered last, or places were taken away because nobody was.
    progress: Instant,
    /// When the task that lets others begin looks again, if there is one.
    timer: Option<Instant>,
    /// The server stops: nobody waits any more.
    open: bool,
}

/// The right to run before others, until it is dropped or lost.
#[derive(Default)]
pub(crate) struct Place(Option<(Arc<Nrs>, u64)>);

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((nrs, number)) = self.0.take() {
            nrs.give_back(number);
        }
    }
}

/// What is left to do when the lock is free again.
struct Step {
    begin: Vec<(oneshot::Sender<Place>, Place)>,
    /// Somebody has to look again then.
    next: Option<Instant>,
    /// And there is no task yet that does.
    spawn: bool,
}

/// A request that waits; dropped, it waits no more.
struct Waiting {
    nrs: Arc<Nrs>,
    key: ClassKey,
    ticket: u64,
    place: oneshot::Receiver<Place>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // What it was granted meanwhile goes back with the channel.
        let gone = self.nrs.lock().engine.remove(&self.key, self.ticket);
        drop(gone);
    }
}

impl Default for Nrs {
    fn default() -> Nrs {
        Nrs {
            world: OnceLock::new(),
            state: Mutex::default(),
            places: AtomicU64::new(0),
            host_places: AtomicU64::new(PLACES_DEFAULT),
            place_ms: AtomicU64::new(PLACE_TIME_DEFAULT_MS),
            at_once: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
            sooner: sync::Notify::new(),
            credits: Credits::default(),
        }
    }
}

impl State {
    /// Takes places away from those who keep others out: `time` is how long nobody has to be answered.
    fn reap(&mut self, now: Instant, places: usize, time: Duration) {
        while self.running.front().is_some_and(|(_, since)| since.plus(time * PLACE_TIMES) <= now) {
            self.running.pop_front();
        }
        if self.running.len() >= places && self.progress.plus(time) <= now {
            while self.running.front().is_some_and(|(_, since)| since.plus(time) <= now) {
                self.running.pop_front();
                self.progress = now;
            }
        }
    }

    /// When a place is free at the latest, if all are taken.
    fn free_at(&self, places: usize, time: Duration) -> Option<Instant> {
        let (_, since) = self.running.front().filter(|_| self.running.len() >= places)?;
        Some(since.plus(time * PLACE_TIMES).min(self.progress.max(*since).plus(time)))
    }

    fn take_place(&mut self, now: Instant) -> u64 {
        self.begun += 1;
        let since = self.running.back().map_or(now, |(_, last)| now.max(*last));
        self.running.push_back((self.begun, since));
        self.begun
    }

    /// Whether nothing is put in order at all.
    fn is_off(&self) -> bool {
        self.open || self.policy == Policy::Fifo
    }

    fn has_rates(&self) -> bool {
        matches!(self.policy, Policy::Tbf(_)) || !self.rules.all().is_empty()
    }
}

/// One request, as its order asks about it: the cheap questions first.
pub trait Request: Send + Sync {
    /// It takes no place, as what it says of itself shows ([`goes_ahead`]).
    fn goes_ahead(&self) -> bool;
    /// Nor does it, as the target knows: a server sent it, or somebody waits for what its sender has.
    fn unblocks(&self) -> bool;
    /// Somebody waits for what its sender has.
    fn is_awaited(&self) -> bool;
    fn subject(&self) -> Subject;
    /// See [`cost`].
    fn cost(&self) -> u64;
    /// Told when its session ends.
    fn left(&self) -> &sync::Notify;
    fn is_leaving(&self) -> bool;
}

/// What a target knows of its clients.
pub trait Holders: Send + Sync {
    /// Whether somebody waits until this client gives back a lock or lease.
    fn awaited(&self, client: ClientId) -> bool;
    /// Who asks. May take a moment: it is asked only of requests that have to wait, or if there are rules.
    fn account(&self, _op: Op, ctx: &RequestContext, _body: &[u8]) -> Account {
        Account::of(ctx)
    }
}

/// Whether a request takes no place, as what it says of itself shows: it belongs to a recovery, or it came
/// before (`again`); its verb gives something back (a close, a cancel, a good-bye), asks how much space there
/// is, or is a server's; or its sender says that others may wait for it. Of those the ones that carry data or
/// what was executed elsewhere are looked at twice ([`Request::unblocks`]): nearly all that a mount writes it
/// writes under a lock, for which mostly nobody waits.
pub fn goes_ahead(op: Op, again: bool, waited_for: bool) -> bool {
    let verb = op.verb();
    let light = verb.bulk == BulkSide::None && op != Op::Batch;
    again || verb.in_recovery || verb.unlimited || verb.sender > Sender::Client || (waited_for && light)
}

/// What a request costs.
pub fn cost(op: Op, body: &[u8], bulk_bytes: usize) -> u64 {
    let read = (op == Op::Read).then(|| wire::decode_message::<Read>(body).ok()).flatten();
    let answer = read.map_or(0, |r| (r.len as usize).min(model::limits::RPC_BULK_MAX_BYTES));
    (1 + body.len() / COST_MESSAGE_BYTES + (bulk_bytes + answer) / COST_BULK_BYTES) as u64
}

impl Nrs {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A target is served that goes by it.
    pub(crate) fn serve(&self, world: &World) {
        let _ = self.world.set(world.clone());
        self.lock().open = false;
    }

    /// How many slots sessions have.
    pub fn credits(&self) -> &Credits {
        &self.credits
    }

    /// How many processors the host has.
    pub fn set_processors(&self, n: usize) {
        self.host_places.store((n as u64 * PLACES_PER_PROCESSOR).max(PLACES_DEFAULT), Relaxed);
    }

    pub fn places_now(&self) -> usize {
        let n = match self.places.load(Relaxed) {
            0 => self.host_places.load(Relaxed),
            n => n,
        };
        usize::try_from(n).unwrap_or(usize::MAX)
    }

    fn place_time(&self) -> Duration {
        Duration::from_millis(self.place_ms.load(Relaxed))
    }

    /// Waits until a request may begin. It ends in any case: when its session ends, when the server stops.
    pub(crate) async fn enter(self: &Arc<Nrs>, r: &dyn Request) -> Place {
        let Some(world) = self.world.get() else { return Place::default() };
        if r.goes_ahead() {
            return self.ahead();
        }
        match self.take_free(world.now()) {
            Some(place) => place,
            // Few wait, and what that needs is not to lie with every request.
            None => Box::pin(self.wait(r, world)).await,
        }
    }

    async fn wait(self: &Arc<Nrs>, r: &dyn Request, world: &World) -> Place {
        if r.unblocks() {
            return self.ahead();
        }
        let Some(mut waiting) = self.queue(&r.subject(), r.cost(), world) else { return Place::default() };
        loop {
            let mut left = Box::pin(r.left().notified());
            left.as_mut().enable();
            if r.is_leaving() {
                return Place::default();
            }
            let begins = select(&mut waiting.place, left);
            match select(begins, world.sleep(LOOK_AGAIN)).await {
                Either::Left(Either::Left(place)) => return place.unwrap_or_default(),
                Either::Left(Either::Right(())) => return Place::default(),
                Either::Right(()) if r.is_awaited() => return self.ahead(),
                Either::Right(()) => {}
            }
        }
    }

    fn ahead(&self) -> Place {
        self.ahead.fetch_add(1, Relaxed);
        Place::default()
    }

    /// A place, if one is free and nothing has to be looked at.
    fn take_free(self: &Arc<Nrs>, now: Instant) -> Option<Place> {
        let mut s = self.lock();
        if s.is_off() {
            return Some(Place::default());
        }
        if !s.engine.is_empty() || s.has_rates() {
            return None;
        }
        let places = self.places_now();
        if s.running.len() >= places {
            s.reap(now, places, self.place_time());
        }
        let number = (s.running.len() < places).then(|| s.take_place(now))?;
        drop(s);
        self.at_once.fetch_add(1, Relaxed);
        Some(Place(Some((self.clone(), number))))
    }

    /// Puts a request where it belongs; `None`: nothing waits any more.
    fn queue(self: &Arc<Nrs>, subject: &Subject, cost: u64, world: &World) -> Option<Waiting> {
        let (tx, rx) = oneshot::channel();
        let now = world.now();
        let mut s = self.lock();
        if s.is_off() {
            return None;
        }
        let bucket = s.rules.bucket_of(s.policy, subject).map(|k| s.engine.buckets.bounded(k, now));
        let key = ClassKey { party: s.policy.party(subject), job: subject.account.job.clone(), bucket };
        let (key, ticket) = s.engine.push(key, cost, now, tx);
        let step = self.pump_and_tell(&mut s, now);
        drop(s);
        self.finish(step);
        Some(Waiting { nrs: self.clone(), key, ticket, place: rx })
    }

    /// Lets begin who may. Who calls it sees to it that somebody looks again when the next one may.
    fn pump(self: &Arc<Nrs>, s: &mut State, now: Instant) -> Step {
        let (places, time) = (self.places_now(), self.place_time());
        let mut begin = Vec::new();
        let next = loop {
            s.reap(now, places, time);
            if s.engine.is_empty() {
                break None;
            }
            if let Some(at) = s.free_at(places, time) {
                break Some(at);
            }
            let (rules, policy) = (&s.rules, s.policy);
            match s.engine.pop(now, |rule| rules.rate_of(policy, rule)) {
                Next::Begin(tx) => {
                    let number = s.take_place(now);
                    begin.push((tx, Place(Some((self.clone(), number)))));
                }
                Next::At(at) => break Some(at),
                Next::Nothing => break None,
            }
        };
        assert!(next.is_none_or(|at| at > now), "who may begin now has begun");
        Step { begin, next, spawn: false }
    }

    /// As `pump`, from anywhere but the task that keeps time, which is told or made.
    fn pump_and_tell(self: &Arc<Nrs>, s: &mut State, now: Instant) -> Step {
        let mut step = self.pump(s, now);
        match (step.next, s.timer) {
            (Some(at), None) => {
                s.timer = Some(at);
                step.spawn = true;
            }
            (Some(at), Some(planned)) if at < planned => {
                s.timer = Some(at);
                self.sooner.notify_one();
            }
            _ => {}
        }
        step
    }

    fn finish(self: &Arc<Nrs>, step: Step) {
        for (tx, place) in step.begin {
            // Who does not wait any more gives it back by dropping it.
            drop(tx.send(place));
        }
        if let (true, Some(world)) = (step.spawn, self.world.get()) {
            world.spawn("rpc-nrs", self.clone().keep_time(world.clone()));
        }
    }

    /// While somebody waits: looks when the next one may begin.
    async fn keep_time(self: Arc<Nrs>, world: World) {
        loop {
            let now = world.now();
            let (step, next) = {
                let mut s = self.lock();
                let step = self.pump(&mut s, now);
                s.timer = step.next;
                (step, s.timer)
            };
            self.finish(step);
            let Some(at) = next else { return };
            select(self.sooner.notified(), world.sleep(at.since(now))).await;
        }
    }

    fn give_back(self: &Arc<Nrs>, number: u64) {
        let Some(world) = self.world.get() else { return };
        let now = world.now();
        let mut s = self.lock();
        s.progress = s.progress.max(now);
        if let Ok(at) = s.running.binary_search_by_key(&number, |(n, _)| *n) {
            s.running.remove(at);
        }
        if s.engine.is_empty() {
            return;
        }
        let step = self.pump_and_tell(&mut s, now);
        drop(s);
        self.finish(step);
    }

    /// Everybody who waits begins, and nobody waits from now on: the server stops.
    pub(crate) fn open(self: &Arc<Nrs>) {
        let mut s = self.lock();
        s.open = true;
        let all = s.engine.drain();
        drop(s);
        all.into_iter().for_each(|tx| drop(tx.send(Place::default())));
    }

    /// What was set may let somebody begin.
    fn changed(self: &Arc<Nrs>, mut s: MutexGuard<'_, State>) {
        if s.is_off() {
            let all = s.engine.drain();
            drop(s);
            all.into_iter().for_each(|tx| drop(tx.send(Place::default())));
            return;
        }
        let step = self.world.get().map(|w| self.pump_and_tell(&mut s, w.now()));
        drop(s);
        if let Some(step) = step {
            self.finish(step);
        }
    }

    /// `nrs_policies`.
    pub fn set_policy(self: &Arc<Nrs>, text: &str) -> Result<(), Errno> {
        let policy = Policy::parse(text)?;
        let mut s = self.lock();
        if s.policy != policy {
            s.policy = policy;
            // The default rule counts by other things, or not at all.
            s.engine.forget_rule(rules::DEFAULT_NUMBER);
        }
        self.changed(s);
        Ok(())
    }

    /// `nrs_tbf_rule`.
    pub fn order(self: &Arc<Nrs>, text: &str) -> Result<(), Errno> {
        let orders = parse_orders(text)?;
        let mut s = self.lock();
        let anew = s.rules.apply(&orders)?;
        anew.into_iter().for_each(|rule| s.engine.forget_rule(rule));
        self.changed(s);
        Ok(())
    }

    /// `nrs_places`.
    pub fn set_places(self: &Arc<Nrs>, n: u64) {
        self.places.store(n, Relaxed);
        self.changed(self.lock());
    }

    /// Requests that have a place.
    pub fn running_now(&self) -> usize {
        self.lock().running.len()
    }

    /// `nrs_place_time`.
    pub fn set_place_ms(self: &Arc<Nrs>, ms: u64) {
        assert!(ms > 0, "a place is kept for a while");
        self.place_ms.store(ms, Relaxed);
        self.changed(self.lock());
    }

    pub fn places_set(&self) -> u64 {
        self.places.load(Relaxed)
    }

    pub fn place_ms(&self) -> u64 {
        self.place_ms.load(Relaxed)
    }

    /// `nrs_tbf_rate`.
    pub fn default_rate(&self) -> u64 {
        self.lock().rules.default_rate.per_second()
    }

    /// Who waits, and who has a place.
    pub fn depth(&self) -> (usize, usize) {
        let s = self.lock();
        (s.engine.len(), s.running.len())
    }
}
