//! Extent locks of this target: who is told what, who waits, whose time is over. The rules are
//! [`ldlm::extent`]'s.
//!
//! A request that names a lock its sender holds never waits here. One without runs under a server lock of its
//! own.

use crate::space::Space;
use crate::stats::OstCounter;
use ldlm::extent::{Event, Extents, Request, Who};
use model::counters::Counters;
use model::debug::DLMTRACE;
use model::mutex::{Mutex, MutexGuard};
use model::planted::{self, Bug};
use model::{Errno, ObjectAttr, ObjectId};
use rpc::nrs::Holders;
use rpc::server::recovery::Recovery;
use rpc::{ClientId, Peers};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use wire::msg::extent::{ExtentAnswer, ExtentMode, ExtentSpec};
use wire::msg::notify::{KeptAttr, Notify, RELEASED_MAX};
use world::World;
use world::future::join_all;
use world::sync::oneshot;

/// A callback that is not answered is said again so often.
const SAY_AGAIN: Duration = Duration::from_secs(2);
/// A client that was told to give a lock back, and shows no sign of doing so, is evicted after so many times
/// the life of what was leased to it (20 s with default pings).
const PATIENCE_LEASES_X10: u32 = 16;

type Locked = Extents<ObjectId, ClientId>;

/// A request that waits for its server lock.
struct Waiter {
    client: ClientId,
    granted: oneshot::Sender<()>,
}

/// A question to a holder that is not answered.
struct Asked {
    client: ClientId,
    object: ObjectId,
    id: u64,
    since: u64,
    answer: oneshot::Sender<Option<KeptAttr>>,
}

/// Who holds which ranges, who waits for one, and whom it is asked back from.
pub(crate) struct Locks {
    world: World,
    /// `FSNAME-OST0000`.
    label: String,
    peers: Peers,
    recovery: Arc<Recovery>,
    /// What a client was promised goes with its locks.
    space: Arc<Space>,
    stats: Arc<Counters<OstCounter>>,
    table: Mutex<Locked>,
    waiters: Mutex<BTreeMap<u64, Waiter>>,
    asked: Mutex<BTreeMap<u64, Asked>>,
    next_cookie: AtomicU64,
    watching: AtomicBool,
    stopped: AtomicBool,
    /// `lock_callback_timeout`, seconds; 0: as long as leases let it.
    pub(crate) callback_timeout_s: AtomicU64,
}

/// The right of one request to work on a range; ends when dropped.
pub(crate) struct ServerLock {
    locks: Arc<Locks>,
    object: ObjectId,
    ticket: u64,
}

impl Drop for ServerLock {
    fn drop(&mut self) {
        self.locks.waiters().remove(&self.ticket);
        let now = self.locks.world.now().0;
        let events = self.locks.table().server_unlock(now, self.object, self.ticket);
        self.locks.tell(events);
    }
}

impl Holders for Locks {
    fn awaited(&self, client: ClientId) -> bool {
        self.table().is_blocked(client)
    }
}

impl Locks {
    pub(crate) fn new(
        world: &World,
        label: String,
        peers: &Peers,
        recovery: &Arc<Recovery>,
        space: &Arc<Space>,
        stats: &Arc<Counters<OstCounter>>,
    ) -> Arc<Locks> {
        Arc::new(Locks {
            world: world.clone(),
            label,
            peers: peers.clone(),
            recovery: recovery.clone(),
            space: space.clone(),
            stats: stats.clone(),
            table: Mutex::default(),
            waiters: Mutex::default(),
            asked: Mutex::default(),
            next_cookie: AtomicU64::new(0),
            watching: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            callback_timeout_s: AtomicU64::new(0),
        })
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Locked> {
        self.table.lock()
    }

    fn waiters(&self) -> MutexGuard<'_, BTreeMap<u64, Waiter>> {
        self.waiters.lock()
    }

    fn asked(&self) -> MutexGuard<'_, BTreeMap<u64, Asked>> {
        self.asked.lock()
    }

    /// Whether no request waits for a lock.
    pub(crate) fn nobody_waits(&self) -> bool {
        self.waiters().is_empty()
    }

    /// Nobody waits any more: the target stops.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.waiters().clear();
        self.asked().clear();
    }

    fn tell(self: &Arc<Self>, events: Vec<Event<ObjectId, ClientId>>) {
        for e in events {
            tracing::debug!(target: DLMTRACE, "{}: {e:?}", self.label);
            match e {
                Event::Block { client, object, id } => {
                    self.stats.add(OstCounter::LockCallback, 1);
                    if !planted::on(Bug::LostBlockingCallback) {
                        self.peers.notify(client, Notify::BlockExtent { object, id });
                    }
                    self.watch_callbacks();
                }
                Event::Granted { who: Who::Client(client, id), object } => {
                    self.peers.notify(client, Notify::ExtentGranted { object, id });
                }
                Event::Granted { who: Who::Server(ticket), .. } => {
                    if let Some(w) = self.waiters().remove(&ticket) {
                        let _ = w.granted.send(());
                    }
                }
            }
        }
    }

    /// The right to work on `start..=end` of an object: the sender's own lock, or one made for the request.
    /// `ENOLCK` if it names a lock that it does not hold (any more).
    pub(crate) async fn guard(
        self: &Arc<Self>,
        client: ClientId,
        object: ObjectId,
        lock: u64,
        write: bool,
        (start, end): (u64, u64),
    ) -> Result<Option<ServerLock>, Errno> {
        let now = self.world.now().0;
        if lock != 0 {
            let mut t = self.table();
            if !t.covers(client, object, lock, write, start, end) {
                return Err(Errno::ENOLCK);
            }
            t.touch(now, client, object, lock);
            return Ok(None);
        }
        let (granted, wait) = oneshot::channel();
        let (held, at_once) = self.server_lock(object, write, (start, end), Some(Waiter { client, granted }));
        if self.stopped.load(Ordering::SeqCst) {
            return Err(Errno::ESHUTDOWN);
        }
        if !at_once {
            wait.await.map_err(|_| Errno::ESHUTDOWN)?;
        }
        Ok(Some(held))
    }

    /// As [`Locks::guard`] for what a client has done again after a restart, without waiting. While clients
    /// are awaited nobody else is served and the order is that of the first time, whatever became of the lock
    /// since. A client that comes back later must not change what others rely on by now: `ENOLCK`.
    pub(crate) fn guard_replayed(
        self: &Arc<Self>,
        client: ClientId,
        object: ObjectId,
        lock: u64,
        write: bool,
        (start, end): (u64, u64),
    ) -> Result<Option<ServerLock>, Errno> {
        let holds = lock != 0 && self.table().covers(client, object, lock, write, start, end);
        if holds || self.recovery.recovering() {
            return Ok(None);
        }
        let (held, at_once) = self.server_lock(object, write, (start, end), None);
        if at_once { Ok(Some(held)) } else { Err(Errno::ENOLCK) }
    }

    /// A lock for one request; false: it must wait, and `waiter` is told.
    fn server_lock(
        self: &Arc<Self>,
        object: ObjectId,
        write: bool,
        (start, end): (u64, u64),
        waiter: Option<Waiter>,
    ) -> (ServerLock, bool) {
        let mode = if write { ExtentMode::Write } else { ExtentMode::Read };
        let (held, at_once, events) = {
            let mut t = self.table();
            let (ticket, at_once, events) = t.server_lock(self.world.now().0, object, mode, start, end);
            if !at_once && let Some(w) = waiter {
                let other = self.waiters().insert(ticket, w);
                assert!(other.is_none(), "a ticket is one request's");
            }
            (ServerLock { locks: self.clone(), object, ticket }, at_once, events)
        };
        self.tell(events);
        (held, at_once)
    }

    /// A client asks for a lock. What the object is like is the caller's to find out, after this.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        client: ClientId,
        l: &ExtentSpec,
        force: bool,
    ) -> Result<ExtentAnswer, Errno> {
        use ldlm::extent::Answer;
        let now = self.world.now().0;
        let (answer, events) = self.table().enqueue(now, &request(client, l, force));
        self.tell(events);
        match answer {
            Answer::Granted { start, end } => {
                Ok(ExtentAnswer::Granted { start, end, attr: ObjectAttr::default() })
            }
            Answer::Waits => Ok(ExtentAnswer::Waits),
            Answer::Contended => Ok(ExtentAnswer::Contended),
            Answer::Refused => Err(Errno::ENOLCK),
        }
    }

    /// Takes locks back that a client had before this target's restart; returns the ids of those that others
    /// hold by now.
    pub(crate) fn reclaim(&self, client: ClientId, locks: &[ExtentSpec]) -> Vec<u64> {
        // Only who was a client before the restart can have had any then.
        let member = self.recovery.is_member(client);
        let back = |l: &ExtentSpec| member && self.table().reclaim(&request(client, l, true));
        locks.iter().filter(|l| !back(l)).map(|l| l.id).collect()
    }

    /// A client uses these locks no more.
    pub(crate) fn released(self: &Arc<Self>, client: ClientId, locks: &[(ObjectId, u64)]) {
        let now = self.world.now().0;
        for &(object, id) in locks.iter().take(RELEASED_MAX) {
            let events = self.table().cancel(now, client, object, id);
            // What it kept is written by now.
            self.asked().retain(|_, a| (a.client, a.object, a.id) != (client, object, id));
            self.tell(events);
        }
    }

    /// A client says what it keeps of an object.
    pub(crate) fn kept(&self, client: ClientId, cookie: u64, kept: Option<KeptAttr>) {
        let mut asked = self.asked();
        if asked.get(&cookie).is_some_and(|a| a.client == client)
            && let Some(a) = asked.remove(&cookie)
        {
            let _ = a.answer.send(kept);
        }
    }

    /// What other clients keep of an object: its size and times will be at least these. Read the object's own
    /// attributes after this: what was written meanwhile is not in the answers.
    pub(crate) async fn ask_holders(
        self: &Arc<Self>,
        client: ClientId,
        objects: &[ObjectId],
    ) -> BTreeMap<ObjectId, Vec<KeptAttr>> {
        let mut waits = Vec::new();
        for &object in objects {
            let writers: Vec<_> = self.table().writers(object, client).collect();
            for (holder, id) in writers {
                assert_ne!(holder, client, "nobody is asked for what he keeps himself");
                let (answer, kept) = oneshot::channel();
                let cookie = self.next_cookie.fetch_add(1, Ordering::Relaxed);
                let since = self.world.now().0;
                let asked = Asked { client: holder, object, id, since, answer };
                let other = self.asked().insert(cookie, asked);
                assert!(other.is_none(), "each question has a cookie of its own");
                // Released between the look and the question: nobody would answer for it.
                if !self.table().knows(holder, object, id) {
                    self.asked().remove(&cookie);
                    continue;
                }
                self.peers.notify(holder, Notify::GlimpseExtent { object, id, cookie });
                waits.push((object, kept));
            }
        }
        let mut out: BTreeMap<ObjectId, Vec<KeptAttr>> = BTreeMap::new();
        if waits.is_empty() {
            return out;
        }
        self.watch_callbacks();
        let answers = waits
            .into_iter()
            .map(|(object, kept)| {
                Box::pin(async move { (object, kept.await.ok().flatten()) })
                    as world::BoxFuture<(ObjectId, Option<KeptAttr>)>
            })
            .collect();
        for (object, kept) in join_all(answers).await {
            out.entry(object).or_default().extend(kept);
        }
        out
    }

    /// Of each object whether another client may keep changes of it. Read the object's own attributes after
    /// this: what is kept from then on is as if it came later.
    pub(crate) fn kept_elsewhere(
        &self,
        client: ClientId,
        objects: impl Iterator<Item = ObjectId>,
    ) -> Vec<bool> {
        let table = self.table();
        objects.map(|o| table.writers(o, client).next().is_some()).collect()
    }

    /// An object is gone: whoever keeps parts of it may forget them.
    pub(crate) fn block_holders(self: &Arc<Self>, object: ObjectId) {
        let now = self.world.now().0;
        let events = self.table().block_all(now, object);
        self.tell(events);
    }

    /// The client departs: its requests and whoever asked it wait no longer.
    pub(crate) fn client_leaves(&self, client: ClientId) {
        self.waiters().retain(|_, w| w.client != client);
        self.asked().retain(|_, a| a.client != client);
    }

    /// The client is gone, and none of its requests runs any more.
    pub(crate) fn client_left(self: &Arc<Self>, client: ClientId) {
        self.client_leaves(client);
        let now = self.world.now().0;
        if !planted::on(Bug::EvictionForgetsLock) {
            let events = self.table().client_gone(now, client);
            self.tell(events);
        }
        self.space.forget(client);
    }

    /// The client has a new connection: what it was told on the old one is said again, and its time starts
    /// anew.
    pub(crate) fn client_back(self: &Arc<Self>, client: ClientId) {
        let now = self.world.now().0;
        if !self.table().outstanding(now, client).is_empty() {
            self.watch_callbacks();
        }
        for a in self.asked().values_mut().filter(|a| a.client == client) {
            a.since = now;
        }
    }

    /// Says callbacks again and loses patience, for as long as any is unanswered.
    fn watch_callbacks(self: &Arc<Self>) {
        if self.watching.swap(true, Ordering::SeqCst) {
            return;
        }
        let weak = Arc::downgrade(self);
        let world = self.world.clone();
        self.world.spawn("ost-callbacks", async move {
            let mut last = world.now();
            loop {
                world.sleep(SAY_AGAIN).await;
                let Some(locks) = weak.upgrade() else { return };
                let now = locks.world.now();
                // Nobody was heard while this server was stopped or starved: that is nobody's fault.
                let overslept = now.since(last) > SAY_AGAIN * 2;
                last = now;
                if locks.stopped.load(Ordering::SeqCst) || !locks.look_after_callbacks(now.0, overslept) {
                    return;
                }
            }
        });
    }

    /// False: nothing is unanswered, and the watch is over.
    fn look_after_callbacks(self: &Arc<Self>, now: u64, overslept: bool) -> bool {
        let wanted = Duration::from_secs(self.callback_timeout_s.load(Ordering::Relaxed));
        let patience = wanted.max(self.peers.lease_life() * PATIENCE_LEASES_X10 / 10);
        let limit = now.saturating_sub(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX));
        let mut late = if overslept {
            self.table().excuse(now);
            std::collections::BTreeSet::new()
        } else {
            self.table().overdue(limit)
        };
        let mut again = Vec::new();
        for (cookie, a) in self.asked().iter_mut() {
            if overslept {
                a.since = now;
            } else if a.since < limit {
                late.insert(a.client);
            }
            again.push((a.client, Notify::GlimpseExtent { object: a.object, id: a.id, cookie: *cookie }));
        }
        for client in late {
            model::event!(
                WARN,
                NoAnswerToCallback,
                self.label,
                "{}: client {client} does not answer to a lock callback",
                self.label
            );
            if !self.peers.condemn(client) {
                self.client_left(client);
            }
        }
        if !planted::on(Bug::LostBlockingCallback) {
            let blocked = self.table().blocked();
            again.extend(blocked.into_iter().map(|(c, object, id)| (c, Notify::BlockExtent { object, id })));
        }
        for (client, n) in again {
            self.peers.notify(client, n);
        }
        let busy = || self.table().any_blocked() || !self.asked().is_empty();
        if busy() {
            return true;
        }
        self.watching.store(false, Ordering::SeqCst);
        // A callback between the look and the store found somebody watching.
        busy() && !self.watching.swap(true, Ordering::SeqCst)
    }
}

fn request(client: ClientId, l: &ExtentSpec, force: bool) -> Request<ObjectId, ClientId> {
    Request { client, object: l.object, id: l.id, mode: l.mode, start: l.start, end: l.end, force }
}
