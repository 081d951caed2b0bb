//! The target's end of its sessions: accept, connect, dispatch, reply slots, eviction.

mod accept;
mod admission;
mod barred;
mod dispatch;
mod evict;
mod evict_client;
mod identity;
mod principal;
pub mod probes;
pub mod recovery;
mod session;
mod slots;

use crate::maintenance::Hold;
use crate::nrs::{Holders, Nrs};
use bytes::Bytes;
use model::mutex::{Mutex, MutexGuard};
use model::nodemap::Nodemap;
use model::{Errno, TargetId, TargetKind, Timestamp};
use session::{Session, Why};
use std::any::Any;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use wire::msg::notify::{Notice, Notify};
use wire::{Bulk, Op, RequestContext, Sender};
use world::inbound::Inbound;
use world::{BoxFuture, Either, Instant, Listener, World, select, sync};

pub use crate::client_id::ClientId;
pub use evict_client::{evict_client_decl, eviction_count_decl};
pub use identity::{Greeting, Identity, Proofs};
pub use principal::{Peer, Principal};
pub use slots::{Arrival, Slot};

/// One request, decoded up to its verb.
#[derive(Clone, Debug)]
pub struct Incoming {
    pub from: Principal,
    pub op: Op,
    pub slot: u16,
    pub xid: u64,
    pub resent: bool,
    /// The answer is to wait until the change is durable, whatever the target's `ack` says.
    pub durable: bool,
    /// The server's wall clock for this request: as it is, or as it was when a replayed one was executed
    /// first.
    pub wall: Timestamp,
    /// The request was answered before the restart and is to be done again, to the same end.
    pub replay: Option<Replay>,
    pub ctx: RequestContext,
    /// The message, without the context: `postcard` of the type that belongs to `op`.
    pub body: Bytes,
    pub bulk: Bytes,
}

impl Incoming {
    /// Its sender is whom `map` makes of him. Called once the request may be executed, before anything looks
    /// at who sent it; whom else the message names passes the same `map`.
    #[must_use]
    pub fn mapped(mut self, map: &Nodemap) -> Incoming {
        self.ctx.cred = map.cred(&self.ctx.cred);
        self
    }
}

/// What a replayed request came to the first time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replay {
    pub transno: u64,
    /// The reply message; empty if the client did not send it.
    pub reply: Bytes,
}

/// What goes back.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub status: Result<(), Errno>,
    /// The reply message without its context; empty with an error.
    pub body: Vec<u8>,
    pub bulk: Bulk,
    pub transno: u64,
    /// Dropped when the answer is on its way.
    pub hold: Option<Arc<dyn Any + Send + Sync>>,
}

impl Outgoing {
    pub fn ok<R: serde::Serialize>(reply: &R, transno: u64) -> Outgoing {
        let body = wire::encode_message(reply);
        Outgoing { status: Ok(()), body, bulk: Bulk::default(), transno, hold: None }
    }

    pub fn err(e: Errno) -> Outgoing {
        Outgoing { status: Err(e), body: Vec::new(), bulk: Bulk::default(), transno: 0, hold: None }
    }
}

/// The last answer of a modifying request in a slot, as stored in the same transaction as its effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredReply {
    pub xid: u64,
    pub transno: u64,
    /// 0 or errno; [`STATUS_UNFINISHED`]: the request was begun and is to go on when it comes again.
    pub status: u16,
    pub body: Vec<u8>,
}

/// Status of a stored reply that is none.
pub const STATUS_UNFINISHED: u16 = u16::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectOutcome {
    /// The service had no record of this client.
    pub new_client: bool,
    /// The service restarted and waits for this client's reclaim.
    pub recovering: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departure {
    Disconnected,
    /// Silent for too long, or asked for by an administrator.
    Evicted,
}

/// One target, as the session layer sees it.
pub trait Service: Send + Sync + 'static {
    fn target(&self) -> TargetId;
    /// Clients of another file system are refused; the MGT serves all of them, whatever it says here.
    fn fsname(&self) -> String;
    /// Never 0.
    fn epoch(&self) -> u32;
    fn last_committed(&self) -> u64;
    /// The target's folder, where the session layer notes requests that ended the server. `None`: it has
    /// none.
    fn folder(&self) -> Option<String> {
        None
    }
    /// Whether the client has a durable record: it comes back, and is no stranger.
    fn knows(&self, _client: ClientId) -> bool {
        false
    }
    /// False: somebody else may serve the target by now. Whatever this server said, a ping's answer too,
    /// could let a client rely on locks that the other one gave away. Nor does one speak that is about to end
    /// and be started anew, such as an MDT whose disk failed: its clients ask the next one.
    fn speaks(&self) -> bool {
        true
    }
    /// Most bytes of data that a client should put into one request, or ask for in one.
    fn bulk_bytes(&self) -> usize {
        model::limits::RPC_BULK_MAX_BYTES
    }
    /// Most ranges in one writelist; 0: the service does not know that message.
    fn write_ranges(&self) -> usize {
        0
    }
    /// The client was evicted here: servers of other targets of the file system are told, if the service has
    /// sessions with them. Must not wait.
    fn evicted(&self, _client: ClientId) {}
    /// What the target lies on: targets that say the same share one disk; 0: not known.
    fn disk(&self) -> u64 {
        0
    }
    /// A client says hello; the service makes its record durable before it answers.
    fn connect(self: Arc<Self>, hello: Greeting) -> BoxFuture<Result<ConnectOutcome, (Errno, String)>>;
    /// What somebody may send.
    fn sender(&self, from: &Principal) -> Sender {
        from.role(None)
    }
    /// Whom somebody's users are here: the one gate that everybody named in his messages passes.
    fn nodemap(&self, _from: &Principal) -> Nodemap {
        Nodemap::IDENTITY
    }
    /// Whether the client has things left to do again from before this server's start. Others' replays are
    /// refused.
    fn replays(&self, _client: ClientId) -> bool {
        false
    }
    /// Whether it recovers from a restart: all but reclaims and replays waits until that is over.
    fn recovering(&self) -> bool {
        false
    }
    /// For a client that came back after a restart: what its slots hold. Asked for every slot when the
    /// client connects, before any of its requests.
    fn stored_reply(&self, client: ClientId, slot: u16) -> Option<StoredReply>;
    /// Executes one request. Called once for each (client, slot, xid), never twice at a time for one slot.
    /// Requests that change nothing (`transno` 0) may be executed again when they are resent.
    fn handle(self: Arc<Self>, req: Incoming) -> BoxFuture<Outgoing>;
    /// A client said something that needs no answer. In the order of its frames; must not wait.
    fn notice(&self, _client: ClientId, _n: Notice) {}
    /// The client is about to depart, but its last requests may still run: whoever waits for it, and those
    /// requests where they wait for others, must wait no longer. Must not wait itself.
    fn leaving(&self, _client: ClientId) {}
    /// Makes everything executed so far durable.
    fn commit(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async {})
    }
    /// The client is gone for good: drop its opens, locks and record. None of its requests runs any more,
    /// and it cannot connect again before this ends.
    fn departed(self: Arc<Self>, client: ClientId, how: Departure) -> BoxFuture<()>;
}

/// The program that serves targets, for the messages that are for it ([`wire::verb::Verb::by_host`]).
pub trait Host: Send + Sync {
    /// Does what is asked about a target of a file system. Whoever asks may: that was looked at.
    fn order(&self, target: TargetId, fsname: String, req: Incoming) -> BoxFuture<Outgoing>;
}

/// The living connections of one target, to send notifies on. Made before the service, shared with it.
#[derive(Clone, Default)]
pub struct Peers {
    sessions: Arc<Mutex<BTreeMap<ClientId, Arc<Session>>>>,
    /// The longest that a client was told, once the target is served.
    ping_ms: Arc<AtomicU32>,
    /// Wakes the server's look at who is to be evicted; there once the target is served.
    evictor: Arc<Mutex<Option<Arc<sync::Notify>>>>,
    /// How many clients were evicted.
    evicted: Arc<AtomicU64>,
    nrs: Arc<Nrs>,
    /// What is refused while the file system is maintained.
    maintenance: Arc<Hold>,
    /// Not held: it may have these peers.
    holders: Arc<OnceLock<Weak<dyn Holders>>>,
}

impl Peers {
    pub fn new() -> Peers {
        Peers::default()
    }

    /// Of a target that shares the order of its requests with others.
    pub fn sharing(nrs: &Arc<Nrs>) -> Peers {
        Peers { nrs: nrs.clone(), ..Peers::default() }
    }

    /// What is refused while the file system is maintained.
    pub fn maintenance(&self) -> &Hold {
        &self.maintenance
    }

    /// In which order its requests begin.
    pub fn nrs(&self) -> &Arc<Nrs> {
        &self.nrs
    }

    /// Who knows for which clients others wait, and who asks.
    pub fn set_holders<H: Holders + 'static>(&self, holders: &Arc<H>) {
        let weak: Weak<H> = Arc::downgrade(holders);
        let _ = self.holders.set(weak);
    }

    fn holders(&self) -> Option<Arc<dyn Holders>> {
        self.holders.get()?.upgrade()
    }

    fn map(&self) -> MutexGuard<'_, BTreeMap<ClientId, Arc<Session>>> {
        self.sessions.lock()
    }

    fn all(&self) -> Vec<Arc<Session>> {
        self.map().values().cloned().collect()
    }

    fn get(&self, client: ClientId) -> Option<Arc<Session>> {
        self.map().get(&client).cloned()
    }

    /// The client does not do what it must: it is evicted as if it were silent, at once.
    /// False if it has no session.
    pub fn condemn(&self, client: ClientId) -> bool {
        let condemned = self.get(client).map(|s| s.condemn(Why::Callback)).is_some();
        self.look_now(condemned);
        condemned
    }

    /// Another target has evicted the client. If it is as silent here it is evicted as soon as it cannot rely
    /// on anything any more; if it is heard from, nothing happens: it may be cut off from one server only.
    pub fn doubt(&self, client: ClientId, now: Instant) {
        let known = self.get(client).map(|s| s.doubt(now)).is_some();
        self.look_now(known);
    }

    fn look_now(&self, wanted: bool) {
        let evictor = self.evictor.lock();
        evictor.iter().filter(|_| wanted).for_each(|e| e.notify_one());
    }

    /// The server tells clients this time from now on, in milliseconds: nobody was told of a longer one than
    /// those who have sessions.
    fn look_at_told(&self, ms: u32) {
        let longest = self.all().iter().map(|s| s.ping_ms()).fold(ms, u32::max);
        self.ping_ms.store(longest, Ordering::Relaxed);
    }

    /// Whether the client has a session, connected or not.
    pub fn has(&self, client: ClientId) -> bool {
        self.get(client).is_some()
    }

    /// How long clients of this target use what was leased to them without word from it.
    pub fn lease_life(&self) -> Duration {
        let ms = match self.ping_ms.load(Ordering::Relaxed) {
            0 => PING_DEFAULT_MS,
            ms => ms,
        };
        crate::lease_life(Duration::from_millis(u64::from(ms)))
    }

    /// Best effort: nothing happens if the client is not connected.
    pub fn notify(&self, client: ClientId, n: Notify) {
        if let Some(s) = self.get(client) {
            s.notify(&n);
        }
    }

    pub fn notify_all(&self, n: Notify) {
        for s in self.all() {
            s.notify(&n);
        }
    }

    /// The fewest slots that a session from this address had free.
    pub fn slots_low(&self, from: IpAddr) -> u64 {
        let here = self.all().into_iter().filter(|s| s.principal().address == from);
        let low = here.filter_map(|s| s.slots_low()).min();
        low.unwrap_or(model::limits::SLOTS_PER_SESSION - 1).into()
    }

    /// Every session, for `lctl` and exports.
    pub fn list(&self) -> Vec<Peer> {
        self.all().iter().map(|s| s.describe()).collect()
    }

    /// Clients with a session, connected or expected back.
    pub fn count(&self) -> usize {
        self.map().len()
    }
}

/// A service and its sessions.
pub(crate) struct Target {
    service: Arc<dyn Service>,
    peers: Peers,
    /// `fsname-OST0000`, for messages.
    label: String,
    barred: barred::Barred,
}

/// A server node: one endpoint, any number of targets behind it.
pub struct Server {
    world: World,
    name: String,
    targets: Mutex<Vec<Arc<Target>>>,
    ping_ms: AtomicU32,
    next_session: AtomicU64,
    admission: Arc<admission::Admission>,
    connections_max: AtomicUsize,
    inbound: Arc<Inbound>,
    abort_on_panic: AtomicBool,
    /// Only ports below [`world::RESERVED_PORTS`] are let in.
    secure: AtomicBool,
    stopping: AtomicBool,
    stopped: sync::Notify,
    /// Somebody is to be evicted, or may be.
    evictor: Arc<sync::Notify>,
    complaints: Mutex<BTreeMap<(IpAddr, &'static str), u64>>,
    /// When it was last said that there is no memory for requests.
    said_full: Mutex<Option<Instant>>,
    /// `None`: nobody does what is asked of the program.
    host: OnceLock<Arc<dyn Host>>,
}

/// Connections of one endpoint, clients that did not say hello yet included.
const CONNECTIONS_MAX: usize = 65_536;
/// (peer, reason) pairs remembered, so that a peer that goes on does not fill the log.
const COMPLAINTS_MAX: usize = 1024;
/// Of [`Server::set_ping_interval`].
pub const PING_DEFAULT_MS: u32 = 5000;
/// Between two clients that are to connect anew.
const TELL_PAUSE: Duration = Duration::from_millis(2);
/// That there is no memory for requests is said again after so long.
const SAY_FULL_AGAIN: Duration = Duration::from_secs(60);
/// A client silent for so many ping intervals is evicted.
pub const EVICT_INTERVALS: u32 = 6;
/// As many suffice when another target has evicted it: more than the 2.5 for which it relies on what was
/// leased to it, and it missed three pings.
const EVICT_DOUBTED_INTERVALS: u32 = 3;

impl Server {
    pub fn new(world: World, name: String) -> Arc<Server> {
        Arc::new(Server {
            world,
            name,
            targets: Mutex::default(),
            ping_ms: AtomicU32::new(PING_DEFAULT_MS),
            next_session: AtomicU64::new(1),
            admission: Arc::default(),
            connections_max: AtomicUsize::new(CONNECTIONS_MAX),
            inbound: Inbound::new(model::limits::INBOUND_MIN_BYTES),
            abort_on_panic: AtomicBool::new(true),
            secure: AtomicBool::new(true),
            stopping: AtomicBool::new(false),
            stopped: sync::Notify::new(),
            evictor: Arc::new(sync::Notify::new()),
            complaints: Mutex::default(),
            said_full: Mutex::default(),
            host: OnceLock::new(),
        })
    }

    /// Idle time after which clients ping, in milliseconds; a client silent for six times as long is evicted.
    /// Default 5 s. Clients learn of it when they connect; those that are connected do so anew, one after the
    /// other. Who was told of a longer time has that until its session ends.
    pub fn set_ping_interval(self: &Arc<Self>, ms: u32) {
        self.ping_ms.store(ms.max(1), Ordering::Relaxed);
        let targets = self.lock_targets().clone();
        targets.iter().for_each(|t| t.peers.look_at_told(ms.max(1)));
        let sessions: Vec<_> = targets.iter().flat_map(|t| t.peers.all()).collect();
        if sessions.is_empty() {
            return;
        }
        let me = self.clone();
        self.world.spawn("rpc-tell", async move {
            for s in sessions {
                s.close_link();
                me.world.sleep(TELL_PAUSE).await;
                if me.stopping.load(Ordering::Acquire) {
                    return;
                }
            }
        });
    }

    /// Idle time after which clients ping.
    pub fn ping_interval(&self) -> Duration {
        Duration::from_millis(u64::from(self.ping_ms.load(Ordering::Relaxed)))
    }

    /// Connections accepted at a time; more are closed at once. Default 65,536.
    pub fn set_connection_limit(&self, n: usize) {
        self.connections_max.store(n, Ordering::Relaxed);
    }

    /// Memory of the requests that were received and are not done. Default: the least that a server has.
    pub fn inbound(&self) -> &Arc<Inbound> {
        &self.inbound
    }

    /// `accept=secure` (the default) lets in only peers with a port below 1024, which on their hosts only a
    /// privileged process can have; `accept=all` lets in everybody.
    pub fn set_secure(&self, on: bool) {
        self.secure.store(on, Ordering::Relaxed);
    }

    pub fn is_secure(&self) -> bool {
        self.secure.load(Ordering::Relaxed)
    }

    /// A panic in a request leaves state that nobody may trust: by default it aborts the process. The
    /// simulator, where a panic ends the run by itself, turns that off.
    pub fn set_abort_on_panic(&self, on: bool) {
        self.abort_on_panic.store(on, Ordering::Relaxed);
    }

    fn lock_targets(&self) -> MutexGuard<'_, Vec<Arc<Target>>> {
        self.targets.lock()
    }

    /// Serves a target from now on. One with the same name is replaced (its sessions end, see `remove`).
    pub fn add(&self, service: Arc<dyn Service>, peers: Peers) {
        assert!(service.epoch() > 0, "a target's epoch is never 0");
        let (id, fsname) = (service.target(), service.fsname());
        peers.ping_ms.store(self.ping_ms.load(Ordering::Relaxed), Ordering::Relaxed);
        *peers.evictor.lock() = Some(self.evictor.clone());
        // Whoever asks for the configuration waits for nobody.
        if id.kind != TargetKind::Mgt {
            peers.nrs.serve(&self.world);
        }
        let barred = barred::Barred::load(&self.world, service.folder());
        let target = Arc::new(Target { label: id.label(&fsname), service, peers, barred });
        let old = {
            let mut g = self.lock_targets();
            let old = g.iter().position(|t| t.service.target() == id && t.service.fsname() == fsname);
            let old = old.map(|i| g.remove(i));
            let again = g.iter().any(|t| t.service.target() == id && t.service.fsname() == fsname);
            assert!(!again, "a target is served once");
            g.push(target);
            old
        };
        if let Some(t) = old {
            t.hang_up();
        }
    }

    /// Ends the sessions with a target without a word to its service (the clients come back elsewhere or
    /// later).
    pub fn remove(&self, target: TargetId) {
        let mut gone = Vec::new();
        self.lock_targets().retain(|t| {
            let keep = t.service.target() != target;
            if !keep {
                gone.push(t.clone());
            }
            keep
        });
        for t in gone {
            t.hang_up();
        }
    }

    /// Who does what the program is asked to do, and not its targets. Said once.
    pub fn set_host(&self, host: Arc<dyn Host>) {
        let first = self.host.set(host);
        assert!(first.is_ok(), "a program is one");
    }

    /// Accepts until `stop`.
    pub fn run(self: &Arc<Self>, listener: Arc<dyn Listener>) -> BoxFuture<()> {
        let evictor = self.clone();
        self.world.spawn("rpc-evict", async move { evict::watch(evictor).await });
        self.run_also(listener)
    }

    /// Of a server that runs: accepts at one more address, until `stop`.
    pub fn run_also(self: &Arc<Self>, listener: Arc<dyn Listener>) -> BoxFuture<()> {
        let me = self.clone();
        Box::pin(async move {
            loop {
                let mut stop = Box::pin(me.stopped.notified());
                stop.as_mut().enable();
                if me.stopping.load(Ordering::Acquire) {
                    return;
                }
                match select(stop, listener.accept()).await {
                    Either::Left(()) => return,
                    Either::Right(Ok(conn)) => me.admit(conn),
                    Either::Right(Err(e)) => {
                        tracing::warn!("accept on {} failed: {e}", listener.local_addr());
                        me.world.sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        })
    }

    /// Drops a client from a target as if it had been silent for too long. False if it is not known.
    pub fn evict(self: &Arc<Self>, target: TargetId, client: ClientId) -> bool {
        let targets = self.lock_targets().clone();
        let mut found = false;
        for t in targets.into_iter().filter(|t| t.service.target() == target) {
            if let Some(s) = t.peers.get(client) {
                found = true;
                self.world.spawn("rpc-depart", evict::depart(self.clone(), t, s, Departure::Evicted));
            }
        }
        found
    }

    /// Tells the clients, lets running requests finish (at most 5 s), closes the connections. Requests that
    /// arrive meanwhile are not executed: their clients send them again after the restart.
    pub fn stop(&self) -> BoxFuture<()> {
        self.stopping.store(true, Ordering::Release);
        self.stopped.notify_waiters();
        let targets = std::mem::take(&mut *self.lock_targets());
        let world = self.world.clone();
        Box::pin(async move {
            for t in &targets {
                t.peers.notify_all(Notify::Stopping);
                t.peers.nrs.open();
            }
            let quiet = async {
                for t in &targets {
                    for s in t.peers.all() {
                        s.idle().await;
                    }
                }
            };
            if world.timeout(Duration::from_secs(5), quiet).await.is_none() {
                tracing::warn!("requests still running after 5 s: stopped without them");
            }
            for t in targets {
                t.hang_up();
            }
        })
    }

    /// Logs that requests are put off, once in a while.
    fn say_full(&self) {
        let now = self.world.now();
        let mut said = self.said_full.lock();
        if said.is_none_or(|at| now.since(at) >= SAY_FULL_AGAIN) {
            *said = Some(now);
            let (used, max) = (self.inbound.used_bytes() >> 20, self.inbound.max_bytes() >> 20);
            tracing::warn!(
                "requests have {used} MiB of memory, of {max} at most: clients are told to send others again later, {} times so far \
                 (lctl set_param req_memory_max_mb=N gives them more)",
                self.inbound.refused()
            );
        }
    }

    /// Logs what a peer did wrong, the first time.
    fn complain(&self, peer: IpAddr, kind: &'static str, text: &str) {
        let first = {
            let mut g = self.complaints.lock();
            if g.len() >= COMPLAINTS_MAX && !g.contains_key(&(peer, kind)) {
                g.clear();
            }
            let n = g.entry((peer, kind)).or_default();
            *n += 1;
            let first = *n == 1;
            assert!(g.len() <= COMPLAINTS_MAX, "what is remembered of peers is bounded");
            first
        };
        if first {
            tracing::warn!("{peer}: {text} (refused; said once)");
        }
    }
}

impl Target {
    /// Closes every connection; nothing of these sessions runs on.
    fn hang_up(&self) {
        for s in self.peers.all() {
            s.abandon();
        }
        self.peers.map().clear();
    }
}
