//! Extent locks of this target: who is told what, who waits, whose time is over. The rules are
//! [`ldlm::extent`]'s.
//!
//! A request that names a lock its sender holds never waits here. One without runs under a server lock of its
//! own.

use crate::service::Ost;
use crate::stats::OstCounter;
use ldlm::extent::{Event, Extents, Request, Who};
use model::mutex::{Mutex, MutexGuard};
use model::planted::{self, Bug};
use model::{Errno, ObjectAttr, ObjectId};
use rpc::ClientId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use wire::msg::extent::{ExtentAnswer, ExtentMode, ExtentSpec};
use wire::msg::notify::{KeptAttr, Notify, RELEASED_MAX};
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

#[derive(Default)]
pub(crate) struct Locks {
    table: Mutex<Locked>,
    waiters: Mutex<BTreeMap<u64, Waiter>>,
    asked: Mutex<BTreeMap<u64, Asked>>,
    next_cookie: AtomicU64,
    watching: AtomicBool,
    stopped: AtomicBool,
}

impl Locks {
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
}

/// The right of one request to work on a range; ends when dropped.
pub(crate) struct ServerLock {
    ost: Arc<Ost>,
    object: ObjectId,
    ticket: u64,
}

impl Drop for ServerLock {
    fn drop(&mut self) {
        self.ost.locks.waiters().remove(&self.ticket);
        let now = self.ost.world.now().0;
        let events = self.ost.locks.table().server_unlock(now, self.object, self.ticket);
        self.ost.tell(events);
    }
}

impl Ost {
    fn tell(self: &Arc<Self>, events: Vec<Event<ObjectId, ClientId>>) {
        for e in events {
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
                    if let Some(w) = self.locks.waiters().remove(&ticket) {
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
            let mut t = self.locks.table();
            if !t.covers(client, object, lock, write, start, end) {
                return Err(Errno::ENOLCK);
            }
            t.touch(now, client, object, lock);
            return Ok(None);
        }
        let (granted, wait) = oneshot::channel();
        let (held, at_once) = self.server_lock(object, write, (start, end), Some(Waiter { client, granted }));
        if self.locks.stopped.load(Ordering::SeqCst) {
            return Err(Errno::ESHUTDOWN);
        }
        if !at_once {
            wait.await.map_err(|_| Errno::ESHUTDOWN)?;
        }
        Ok(Some(held))
    }

    /// As [`Ost::guard`] for what a client has done again after a restart, without waiting. While clients are
    /// awaited nobody else is served and the order is that of the first time, whatever became of the lock
    /// since. A client that comes back later must not change what others rely on by now: `ENOLCK`.
    pub(crate) fn guard_replayed(
        self: &Arc<Self>,
        client: ClientId,
        object: ObjectId,
        lock: u64,
        write: bool,
        (start, end): (u64, u64),
    ) -> Result<Option<ServerLock>, Errno> {
        let holds = lock != 0 && self.locks.table().covers(client, object, lock, write, start, end);
        if holds || self.recovering() {
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
            let mut t = self.locks.table();
            let (ticket, at_once, events) = t.server_lock(self.world.now().0, object, mode, start, end);
            if !at_once && let Some(w) = waiter {
                let other = self.locks.waiters().insert(ticket, w);
                assert!(other.is_none(), "a ticket is one request's");
            }
            (ServerLock { ost: self.clone(), object, ticket }, at_once, events)
        };
        self.tell(events);
        (held, at_once)
    }

    /// A client asks for a lock. What the object is like is the caller's to find out, after this.
    pub(crate) fn enqueue_extent(
        self: &Arc<Self>,
        client: ClientId,
        l: &ExtentSpec,
        force: bool,
    ) -> Result<ExtentAnswer, Errno> {
        use ldlm::extent::Answer;
        let now = self.world.now().0;
        let (answer, events) = self.locks.table().enqueue(now, &request(client, l, force));
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

    /// Takes a lock back that the client had before this target's restart. False: it is lost.
    pub(crate) fn reclaim_extent(&self, client: ClientId, l: &ExtentSpec) -> bool {
        self.locks.table().reclaim(&request(client, l, true))
    }

    /// A client uses these locks no more.
    pub(crate) fn released(self: &Arc<Self>, client: ClientId, locks: &[(ObjectId, u64)]) {
        let now = self.world.now().0;
        for &(object, id) in locks.iter().take(RELEASED_MAX) {
            let events = self.locks.table().cancel(now, client, object, id);
            // What it kept is written by now.
            self.locks.asked().retain(|_, a| (a.client, a.object, a.id) != (client, object, id));
            self.tell(events);
        }
    }

    /// A client says what it keeps of an object.
    pub(crate) fn kept(&self, client: ClientId, cookie: u64, kept: Option<KeptAttr>) {
        let mut asked = self.locks.asked();
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
            let writers = self.locks.table().writers(object, client);
            for (holder, id) in writers {
                assert_ne!(holder, client, "nobody is asked for what he keeps himself");
                let (answer, kept) = oneshot::channel();
                let cookie = self.locks.next_cookie.fetch_add(1, Ordering::Relaxed);
                let since = self.world.now().0;
                let asked = Asked { client: holder, object, id, since, answer };
                let other = self.locks.asked().insert(cookie, asked);
                assert!(other.is_none(), "each question has a cookie of its own");
                // Released between the look and the question: nobody would answer for it.
                if !self.locks.table().knows(holder, object, id) {
                    self.locks.asked().remove(&cookie);
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

    /// An object is gone: whoever keeps parts of it may forget them.
    pub(crate) fn block_holders(self: &Arc<Self>, object: ObjectId) {
        let now = self.world.now().0;
        let events = self.locks.table().block_all(now, object);
        self.tell(events);
    }

    /// The client departs: its requests and whoever asked it wait no longer.
    pub(crate) fn client_leaves(&self, client: ClientId) {
        self.locks.waiters().retain(|_, w| w.client != client);
        self.locks.asked().retain(|_, a| a.client != client);
    }

    /// The client is gone, and none of its requests runs any more.
    pub(crate) fn client_left(self: &Arc<Self>, client: ClientId) {
        self.client_leaves(client);
        let now = self.world.now().0;
        if !planted::on(Bug::EvictionForgetsLock) {
            let events = self.locks.table().client_gone(now, client);
            self.tell(events);
        }
        self.space.forget(client);
    }

    /// The client has a new connection: what it was told on the old one is said again, and its time starts
    /// anew.
    pub(crate) fn client_back(self: &Arc<Self>, client: ClientId) {
        let now = self.world.now().0;
        if !self.locks.table().outstanding(now, client).is_empty() {
            self.watch_callbacks();
        }
        for a in self.locks.asked().values_mut().filter(|a| a.client == client) {
            a.since = now;
        }
    }

    /// Says callbacks again and loses patience, for as long as any is unanswered.
    fn watch_callbacks(self: &Arc<Self>) {
        if self.locks.watching.swap(true, Ordering::SeqCst) {
            return;
        }
        let weak = Arc::downgrade(self);
        let world = self.world.clone();
        self.world.spawn("ost-callbacks", async move {
            let mut last = world.now();
            loop {
                world.sleep(SAY_AGAIN).await;
                let Some(ost) = weak.upgrade() else { return };
                let now = ost.world.now();
                // Nobody was heard while this server was stopped or starved: that is nobody's fault.
                let overslept = now.since(last) > SAY_AGAIN * 2;
                last = now;
                if ost.locks.stopped.load(Ordering::SeqCst) || !ost.look_after_callbacks(now.0, overslept) {
                    return;
                }
            }
        });
    }

    /// False: nothing is unanswered, and the watch is over.
    fn look_after_callbacks(self: &Arc<Self>, now: u64, overslept: bool) -> bool {
        let patience = self.peers.lease_life() * PATIENCE_LEASES_X10 / 10;
        let limit = now.saturating_sub(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX));
        let mut late = if overslept {
            self.locks.table().excuse(now);
            std::collections::BTreeSet::new()
        } else {
            self.locks.table().overdue(limit)
        };
        let mut again = Vec::new();
        for (cookie, a) in self.locks.asked().iter_mut() {
            if overslept {
                a.since = now;
            } else if a.since < limit {
                late.insert(a.client);
            }
            again.push((a.client, Notify::GlimpseExtent { object: a.object, id: a.id, cookie: *cookie }));
        }
        for client in late {
            tracing::warn!("{}: client {client} does not answer to a lock callback", self.label());
            if !self.peers.condemn(client) {
                self.client_left(client);
            }
        }
        if !planted::on(Bug::LostBlockingCallback) {
            let blocked = self.locks.table().blocked();
            again.extend(blocked.into_iter().map(|(c, object, id)| (c, Notify::BlockExtent { object, id })));
        }
        for (client, n) in again {
            self.peers.notify(client, n);
        }
        let busy = || self.locks.table().any_blocked() || !self.locks.asked().is_empty();
        if busy() {
            return true;
        }
        self.locks.watching.store(false, Ordering::SeqCst);
        // A callback between the look and the store found somebody watching.
        busy() && !self.locks.watching.swap(true, Ordering::SeqCst)
    }
}

fn request(client: ClientId, l: &ExtentSpec, force: bool) -> Request<ObjectId, ClientId> {
    Request { client, object: l.object, id: l.id, mode: l.mode, start: l.start, end: l.end, force }
}
