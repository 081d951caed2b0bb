//! The client's end of a session with one target ("import", Lustre's word).

mod call;
mod connect;
mod dial;
mod doubt;
mod kept;
mod prove;
mod replay;
mod session;
mod slow;
mod told;
mod waiting;

use crate::link::Link;
use bytes::Bytes;
use call::{Answer, Request};
use kept::KeptRequests;
use model::debug::HA;
use model::estimate::Estimate;
use model::mutex::{Mutex, MutexGuard};
use model::planted::{self, Bug};
use model::{Errno, HostNid, Nid, TargetId, TargetKind};
pub(crate) use slow::Slow;
pub use slow::{AT_MAX_DEFAULT_S, AT_MIN_DEFAULT_S, AdaptiveLimits, STUCK_DEFAULT_S};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
pub use waiting::{WAITING_MAX, Waiting, WaitsFor};
use wire::msg::connect::FEATURE_EVICTIONS;
use wire::msg::disconnect::Disconnect;
use wire::msg::notify::{Notice, Notify};
use wire::msg::reclaim::{Reclaim, ReclaimReply};
use wire::proof::{Claimant, Key};
use wire::{Bulk, Frame, FrameKind, Header, Message, Op, RequestContext, encode_body};
use world::{BoxFuture, Instant, World, sync};

/// Names as in Lustre's `state` file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImportState {
    New,
    Disconn,
    Connecting,
    /// Reclaiming opens and locks after a restart of the server.
    Recover,
    Full,
    Evicted,
    Closed,
}

pub struct ImportConfig {
    pub target: TargetId,
    pub fsname: String,
    /// Asked in this order, each soon after the one before, round and round.
    pub nids: Vec<Nid>,
    pub port: u16,
    /// Source address of connections.
    pub bind: Option<std::net::IpAddr>,
    /// Which addresses are asked first, or at all.
    pub networks: crate::Networks,
    pub client_uuid: [u8; 16],
    pub client_name: String,
    /// Calls that may be in flight at a time; the server may grant fewer.
    pub slots: u16,
    pub hooks: Arc<dyn ImportHooks>,
    pub adaptive: Arc<AdaptiveLimits>,
}

/// What the owner of an import does when the session asks. Called from the session's task, one at a time,
/// without any lock held.
pub trait ImportHooks: Send + Sync {
    /// The server restarted or forgot this client: everything that is open or locked. Sent in pieces, the
    /// last one with `last: true` (the import adds an empty one if there is none).
    fn reclaim(&self) -> Vec<Reclaim> {
        Vec::new()
    }
    /// What could not be had back.
    fn reclaimed(&self, _lost: ReclaimReply) {}
    fn notify(&self, _n: Notify) {}
    /// A session begins; the target wants so many bytes in one request at most (0: it did not say).
    fn bulk_limit(&self, _bytes: u64) {}
    /// A session begins; the target takes so many ranges in one writelist (0: it does not know that message).
    fn write_ranges(&self, _ranges: u64) {}
    /// A request that was answered but not durable is lost with the server's memory: this client was evicted,
    /// or doing it again failed. `body` and `reply` as they went over the network, the latter without its
    /// context.
    fn request_lost(&self, _op: Op, _body: &Bytes, _reply: &Bytes) {}
    /// False: nothing is kept over a restart of the server, which need not wait for this client then.
    fn keeps_state(&self) -> bool {
        true
    }
    /// What this client is beside a client, and the keys to prove it with.
    fn keys(&self) -> Vec<(Claimant, Key)> {
        Vec::new()
    }
    /// The state changed, for logs and `lctl`.
    fn state(&self, _s: ImportState) {}
    /// So many requests wait for longer than they may without being told of; the oldest of them.
    fn stuck(&self, _count: usize, _oldest: &[Waiting]) {}
}

pub struct NoHooks;
impl ImportHooks for NoHooks {}

/// What a caller asks of a request beside its answer.
#[derive(Clone, Copy, Default, Debug)]
pub struct Terms {
    /// A change is answered when it is on the server's disk. Whether it was is told by [`Response::durable`].
    pub durable: bool,
    /// It tells what was done under something that the server granted: EIO instead of sending it once this
    /// client was evicted after [`Import::life`] said this.
    pub life: Option<u64>,
    /// Others may wait for it, and it waits for none of them: a server that has no memory for requests has
    /// some for it.
    pub waited_for: bool,
}

#[derive(Debug)]
pub struct Response<R> {
    pub reply: R,
    pub bulk: Bytes,
    pub transno: u64,
    /// It changed something, and that is on the server's disk with everything that the target executed
    /// before.
    pub durable: bool,
}

/// What the calls and the session's task share.
pub(crate) struct Core {
    pub world: World,
    pub cfg: ImportConfig,
    inner: Mutex<ImportInner>,
    /// Random, never said: [`proof::token`].
    pub secret: Key,
    /// Wakes the session's task: closed, or new addresses.
    pub kick: sync::Notify,
    /// Wakes those who wait for a state.
    changed: sync::Notify,
    /// When the last request went out that was answered, and the server's ping interval; nanoseconds.
    alive: AtomicU64,
    pub interval: AtomicU64,
    /// What the target lies on, as it said last.
    pub disk: AtomicU64,
    /// Compat features that the server said last.
    pub peer_compat: AtomicU64,
    /// Of pings.
    network: Mutex<Estimate>,
    /// Of requests.
    service: Mutex<Estimate>,
}

pub(crate) struct ImportInner {
    pub state: ImportState,
    /// Since when the session is not up.
    pub away: Option<Instant>,
    pub active: bool,
    pub closed: bool,
    started: bool,
    pub nids: Vec<Nid>,
    /// Where `nids` come from, if an administrator named them; looked up before each round.
    pub hosts: Vec<HostNid>,
    pub nid_at: usize,
    pub link: Option<Link>,
    pub session: u64,
    /// Of this connection; `None`: the server asks for no proofs.
    pub nonce: Option<[u8; 32]>,
    pub epoch: u32,
    /// Of the last session that the server granted; 0 before the first.
    pub last_epoch: u32,
    /// Who has the target's index, as the configuration says; `None` before it said so.
    uuid: Option<[u8; 16]>,
    /// `last_epoch`, and the session, are of a target that another one took the place of.
    pub replaced: bool,
    /// Times that this client was evicted.
    pub life: u64,
    pub server_name: String,
    /// By slot number; the first is the session's own.
    pub slots: Vec<Option<call::InFlight>>,
    /// Slots `0..usable` may be used.
    pub usable: u16,
    /// The last of them is kept for urgent requests.
    pub keeps_slot: bool,
    /// Calls that wait for a slot, by ticket.
    pub queue: BTreeMap<u64, Request>,
    pub next_ticket: u64,
    pub next_xid: u64,
    pub last_committed: u64,
    /// Answered and not durable yet.
    pub kept: KeptRequests,
    /// Highest transaction number in a reply.
    pub last_transno: u64,
    /// The answer to the kept request that is being sent again: (slot, xid).
    pub replaying: Option<(u16, u64, Answer)>,
    /// Kept requests that could not be done again to the same end.
    pub replay_failures: u64,
    /// Transaction number of the last request that was done again after a restart of the server.
    pub last_replay: u64,
    /// The server was asked to commit, because too much is kept.
    pub commit_asked: bool,
    pub reclaim_owed: bool,
    /// The server waits for the reclaim, be it empty.
    pub recovering: bool,
    pub ever_full: bool,
    /// Hosts whose names led nowhere at the last round, and why.
    pub unknown: Vec<String>,
    /// Why the server does not want this client, and how many addresses in a row said no.
    pub refused: Option<(Errno, String)>,
    pub refusals: usize,
    /// When something was last heard, sent.
    pub heard: Instant,
    pub sent: Instant,
}

impl ImportInner {
    /// A refusal that no waiting will cure, by every address, before the session ever was up.
    pub fn fatal_refusal(&self) -> Option<Errno> {
        let (e, _) = self.refused.as_ref()?;
        let for_good = matches!(*e, Errno::EPROTONOSUPPORT | Errno::ENOENT | Errno::EACCES | Errno::EPERM);
        (!self.ever_full && for_good && self.refusals >= self.nids.len()).then_some(*e)
    }
}

impl Core {
    pub fn lock(&self) -> MutexGuard<'_, ImportInner> {
        self.inner.lock()
    }

    pub fn target_number(&self) -> u32 {
        self.cfg.target.to_u32()
    }

    /// `fsname-OST0000`, for messages.
    pub fn label(&self) -> String {
        self.cfg.target.label(&self.cfg.fsname)
    }

    /// The server answered what was sent at `sent`.
    pub fn heard_since(&self, sent: Instant) {
        self.alive.fetch_max(sent.0, Ordering::Relaxed);
    }

    /// The wall clock jumped after the last request that was answered had gone out: that may be longer ago
    /// than it seems.
    pub fn is_unsure(&self) -> bool {
        !planted::on(Bug::StoppedClockClient) && self.alive.load(Ordering::Relaxed) < self.world.jumped().0
    }

    /// See [`Import::leases_until`].
    pub fn leases_until(&self) -> Instant {
        if self.is_unsure() {
            return Instant(0);
        }
        let interval = Duration::from_nanos(self.interval.load(Ordering::Relaxed));
        Instant(self.alive.load(Ordering::Relaxed)).plus(crate::lease_life(interval))
    }

    /// What the target leased may not be used before it is heard again. Nothing is leased to who never heard
    /// it.
    pub fn has_lapsed(&self) -> bool {
        self.alive.load(Ordering::Relaxed) > 0 && self.leases_until() <= self.world.now()
    }

    /// A ping was answered that went out at `sent`.
    pub fn ponged(&self, sent: Instant) {
        let now = self.world.now();
        self.heard_since(sent);
        self.network.lock().add(now.since(sent), now.seconds());
    }

    /// A request was answered that went out at `sent`.
    pub fn served(&self, sent: Instant) {
        let now = self.world.now();
        self.heard_since(sent);
        self.service.lock().add(now.since(sent), now.seconds());
    }

    pub fn touch_sent(&self) {
        let now = self.world.now();
        self.lock().sent = now;
    }

    pub fn set_state(&self, s: ImportState) {
        {
            let mut g = self.lock();
            if g.state == s || g.state == ImportState::Closed {
                return;
            }
            g.state = s;
            if s == ImportState::Full {
                g.away = None;
            } else {
                g.away.get_or_insert(self.world.now());
            }
        }
        tracing::debug!(target: HA, "{}: the session is {s:?}", self.label());
        self.changed.notify_waiters();
        self.cfg.hooks.state(s);
    }

    /// Starts the session's task, once.
    pub fn start(self: &Arc<Core>) {
        {
            let mut g = self.lock();
            if g.started || g.closed {
                return;
            }
            g.started = true;
        }
        self.world.spawn("rpc-import", connect::drive(self.clone()));
    }

    /// Ends everything: nobody waits any more, nothing is sent any more.
    fn close(&self) {
        let mut waiting = Vec::new();
        let link = {
            let mut g = self.lock();
            g.closed = true;
            g.replaying = None;
            waiting.extend(std::mem::take(&mut g.queue).into_values());
            for s in &mut g.slots {
                waiting.extend(s.take().map(|f| f.req));
            }
            g.link.take()
        };
        self.set_state(ImportState::Closed);
        for mut r in waiting {
            r.finish(Err(Errno::ESHUTDOWN));
        }
        if let Some(l) = link {
            l.close();
        }
        self.kick.notify_one();
    }

    /// Fails the calls that wait for a slot.
    pub fn fail_queue(&self, e: Errno) {
        let queue = std::mem::take(&mut self.lock().queue);
        for mut r in queue.into_values() {
            r.finish(Err(e));
        }
    }
}

/// A session with one target. Dropping it closes the session without a good-bye.
pub struct Import {
    core: Arc<Core>,
}

impl Drop for Import {
    fn drop(&mut self) {
        self.core.close();
    }
}

impl Import {
    /// Starts connecting in the background at the first call.
    pub fn new(world: World, cfg: ImportConfig) -> Arc<Import> {
        let slots = cfg.slots.clamp(1, model::limits::SLOTS_PER_SESSION - 1) + 1;
        // Grows over restarts of a process that keeps its uuid; the server's word is above the clock's.
        let next_xid = u64::try_from(world.wall().as_nanos()).unwrap_or(0);
        let inner = ImportInner {
            state: ImportState::New,
            away: Some(world.now()),
            active: true,
            closed: false,
            started: false,
            nids: cfg.networks.order(cfg.nids.clone()),
            hosts: Vec::new(),
            nid_at: 0,
            link: None,
            session: 0,
            nonce: None,
            epoch: 0,
            last_epoch: 0,
            uuid: None,
            replaced: false,
            life: 0,
            server_name: String::new(),
            slots: (0..slots).map(|_| None).collect(),
            usable: slots,
            keeps_slot: cfg.target.kind == TargetKind::Mdt,
            queue: BTreeMap::new(),
            next_ticket: 0,
            next_xid,
            last_committed: 0,
            kept: KeptRequests::default(),
            last_transno: 0,
            replaying: None,
            replay_failures: 0,
            last_replay: 0,
            commit_asked: false,
            reclaim_owed: false,
            recovering: false,
            ever_full: false,
            unknown: Vec::new(),
            refused: None,
            refusals: 0,
            heard: world.now(),
            sent: world.now(),
        };
        let core = Core {
            secret: world.random_key(),
            world,
            cfg,
            inner: Mutex::new(inner),
            kick: sync::Notify::new(),
            changed: sync::Notify::new(),
            alive: AtomicU64::new(0),
            interval: AtomicU64::new(0),
            disk: AtomicU64::new(0),
            peer_compat: AtomicU64::new(0),
            network: Mutex::new(Estimate::default()),
            service: Mutex::new(Estimate::default()),
        };
        Arc::new(Import { core: Arc::new(core) })
    }

    /// Sends a request and waits for its reply, through any number of reconnects: resent requests keep slot
    /// and xid, so the server executes them once. Dropping the future gives up waiting, not the request: it
    /// goes on in the background until it is answered (one that still waits for its slot, or for the first
    /// connection, is given up). Waits for a free slot first (bounded by `slots`).
    ///
    /// Errors: the server's errno; EIO if the target is deactivated or this client was evicted while the
    /// request may have been executed; ESHUTDOWN after [`Import::disconnect`]; EMSGSIZE over the limits;
    /// the server's refusal if it never let this client in.
    pub fn call<M: Message>(
        self: &Arc<Self>,
        ctx: RequestContext,
        msg: M,
        bulk: impl Into<Bulk>,
    ) -> BoxFuture<Result<Response<M::Reply>, Errno>> {
        self.call_with(ctx, msg, bulk, Terms::default())
    }

    /// As [`Import::call`].
    pub fn call_with<M: Message>(
        self: &Arc<Self>,
        ctx: RequestContext,
        msg: M,
        bulk: impl Into<Bulk>,
        terms: Terms,
    ) -> BoxFuture<Result<Response<M::Reply>, Errno>> {
        let (core, bulk) = (self.core.clone(), bulk.into());
        Box::pin(async move {
            let body = encode_body(&ctx, &msg);
            let raw = core.call_raw(M::OP, M::OP.verb().modifies, terms, body, bulk).await?;
            let reply = wire::decode_message(&raw.body).map_err(|e| {
                tracing::warn!(target = %core.label(), op = ?M::OP, "reply does not decode: {e}");
                Errno::EPROTO
            })?;
            Ok(Response { reply, bulk: raw.bulk, transno: raw.transno, durable: raw.durable })
        })
    }

    /// The target is sought at these hosts from the next round on, instead of where it was before; their
    /// names are looked up each time.
    pub fn seek(&self, hosts: Vec<HostNid>) {
        let started = {
            let mut g = self.core.lock();
            // Those with an address are known before anybody was asked.
            let known = hosts.iter().filter_map(HostNid::address).collect();
            g.nids = self.core.cfg.networks.order(known);
            g.nid_at = 0;
            g.hosts = hosts;
            g.started
        };
        // Else the first round would be given up for it, with a hello on its way.
        if started {
            self.core.kick.notify_one();
        }
    }

    /// Why names of its hosts, or some of them, led to no address at the last round.
    pub fn unknown_hosts(&self) -> Option<String> {
        let g = self.core.lock();
        (!g.unknown.is_empty()).then(|| g.unknown.join("; "))
    }

    /// The target's addresses, the one where it lives by now first, its epoch there, and who it is (nobody
    /// yet: zeros). A connection to an earlier life of it ends: the server may be a host that does not answer
    /// any more. Any other stays. Another target than before (`mkfs.nacre --replace`) counts its epochs anew,
    /// and has nothing of what this client had there.
    pub fn set_home(&self, nids: Vec<Nid>, epoch: u32, uuid: [u8; 16]) {
        let nids = self.core.reachable(nids);
        let old = {
            let mut g = self.core.lock();
            let replaced = uuid != [0; 16] && g.uuid.is_some_and(|u| u != uuid);
            if uuid != [0; 16] {
                g.uuid = Some(uuid);
            }
            g.replaced |= replaced && g.last_epoch != 0;
            let outlived = replaced || g.last_epoch != 0 && g.last_epoch < epoch;
            if g.nids == nids && !outlived {
                return;
            }
            g.nids = nids;
            g.hosts.clear();
            g.nid_at = 0;
            if outlived { g.link.clone() } else { None }
        };
        self.give_up(old);
    }

    /// `lctl recover`: gives the connection up, if there is one, and connects anew at once.
    pub fn reconnect(&self) {
        let link = self.core.lock().link.clone();
        self.give_up(link);
    }

    /// Closes a connection, and wakes whoever makes the next one.
    fn give_up(&self, link: Option<Link>) {
        if let Some(l) = link {
            l.close();
        }
        self.core.kick.notify_one();
    }

    /// `lctl deactivate`: calls fail with EIO at once. `activate` takes it back. A request that was sent
    /// already goes on in the background.
    pub fn set_active(&self, active: bool) {
        let mut told = Vec::new();
        {
            let mut g = self.core.lock();
            g.active = active;
            if !active {
                for s in g.slots.iter_mut().skip(1).flatten() {
                    told.extend(s.req.answer.take());
                }
            }
        }
        if !active {
            for t in told {
                let _ = t.send(Err(Errno::EIO));
            }
            self.core.fail_queue(Errno::EIO);
        }
    }

    pub fn is_active(&self) -> bool {
        self.core.lock().active
    }

    /// Grows with each eviction, before [`ImportHooks::state`] is told and before anything is sent in the new
    /// session.
    pub fn life(&self) -> u64 {
        self.core.lock().life
    }

    pub fn state(&self) -> ImportState {
        self.core.lock().state
    }

    pub fn target(&self) -> TargetId {
        self.core.cfg.target
    }

    /// The NID in use, or the next to be tried; `0.0.0.0@tcp` if none is known.
    pub fn current_nid(&self) -> Nid {
        let g = self.core.lock();
        let nowhere = Nid { addr: std::net::Ipv4Addr::UNSPECIFIED.into(), net: 0 };
        g.nids.get(g.nid_at % g.nids.len().max(1)).copied().unwrap_or(nowhere)
    }

    /// Why the server did not let this client in, if it said so at the last attempt.
    pub fn refusal(&self) -> Option<(Errno, String)> {
        self.core.lock().refused.clone()
    }

    /// Until when what the target leased may be used ([`crate::lease_life`]), if it says nothing more. Over,
    /// if this host's clocks may have stood still since the target was heard: it is asked first.
    pub fn leases_until(&self) -> Instant {
        self.core.leases_until()
    }

    /// How long pings take.
    pub fn network(&self) -> Estimate {
        self.core.network.lock().clone()
    }

    /// How long requests take, from sending to the reply.
    pub fn service(&self) -> Estimate {
        self.core.service.lock().clone()
    }

    /// When the server said something last.
    pub fn heard(&self) -> Instant {
        self.core.lock().heard
    }

    /// Since when the session is not up; `None`: it is.
    pub fn away_since(&self) -> Option<Instant> {
        self.core.lock().away
    }

    /// Tells the server something that needs no answer, if the session has a connection. After everything
    /// that was sent before on it.
    pub fn notice(&self, n: &Notice) {
        let mut h = Header::new(FrameKind::Notify);
        h.target = self.core.target_number();
        let link = {
            let g = self.core.lock();
            (h.session, h.epoch) = (g.session, g.epoch);
            g.link.clone()
        };
        if let Some(link) = link {
            let body = postcard::to_stdvec(n).expect("plain data encodes");
            link.post(Frame::new(h, body, Bytes::new()));
        }
    }

    /// What the server knows beside what every one does ([`wire::msg::connect`]), as it said when it was
    /// connected to last.
    pub fn peer_features(&self) -> u64 {
        self.core.peer_compat.load(Ordering::Relaxed)
    }

    /// Tells another server of the file system that a client was evicted here, if it knows that message.
    pub fn tell_evicted(&self, client: [u8; 16]) {
        if self.peer_features() & FEATURE_EVICTIONS != 0 {
            self.notice(&Notice::ClientEvicted { client });
        }
    }

    /// Proves anew what this client is: a key came, or went.
    pub fn prove(&self) {
        let link = self.core.lock().link.clone();
        if let Some(l) = link {
            self.core.prove(&l);
        }
    }

    /// Waits until every request that is under way now has been answered, or will never be.
    pub fn drained(&self) -> BoxFuture<()> {
        self.none_left(|_| true)
    }

    /// As [`Import::drained`], of requests that change something: also those whose callers went.
    pub fn changes_drained(&self) -> BoxFuture<()> {
        self.none_left(|f| f.req.modifies)
    }

    fn none_left(&self, of: fn(&call::InFlight) -> bool) -> BoxFuture<()> {
        const LOOK_AGAIN: Duration = Duration::from_millis(20);
        let core = self.core.clone();
        let last = core.lock().next_xid;
        Box::pin(async move {
            while core.lock().slots.iter().flatten().any(|f| f.xid <= last && of(f)) {
                core.world.sleep(LOOK_AGAIN).await;
            }
        })
    }

    /// Epoch of the target; 0 before the first connection.
    pub fn epoch(&self) -> u32 {
        self.core.lock().epoch
    }

    /// The disk that the target lies on, as it said when it was last connected; targets with the same number
    /// share one. 0: not known.
    pub fn disk(&self) -> u64 {
        self.core.disk.load(Ordering::Relaxed)
    }

    /// Every operation of the target up to this transno is durable, as far as replies told.
    pub fn last_committed(&self) -> u64 {
        self.core.lock().last_committed
    }

    /// Requests kept until the server has them on disk, and their bytes.
    pub fn uncommitted(&self) -> (usize, usize) {
        let g = self.core.lock();
        (g.kept.len(), g.kept.bytes())
    }

    /// Highest transaction number that any reply named: when [`Import::last_committed`] reaches it,
    /// everything answered so far is durable.
    pub fn last_transno(&self) -> u64 {
        self.core.lock().last_transno
    }

    /// Answered requests that could not be done again to the same end after a restart of the server.
    pub fn replay_failures(&self) -> u64 {
        self.core.lock().replay_failures
    }

    /// Transaction number of the last request that was done again after a restart of the server; 0: none was.
    pub fn last_replay(&self) -> u64 {
        self.core.lock().last_replay
    }

    /// What the server called itself at connect.
    pub fn server_name(&self) -> String {
        self.core.lock().server_name.clone()
    }

    /// Requests sent and not answered, and calls that wait for a slot.
    pub fn load(&self) -> (usize, usize) {
        let g = self.core.lock();
        (g.in_flight(), g.queue.len())
    }

    /// Waits until the session is up. Fails if the server refuses this client for a reason that no waiting
    /// cures ([`Import::refusal`] has the words), and with ESHUTDOWN after a disconnect.
    pub fn connected(self: &Arc<Self>) -> BoxFuture<Result<(), Errno>> {
        let core = self.core.clone();
        Box::pin(async move {
            core.start();
            loop {
                let mut change = Box::pin(core.changed.notified());
                change.as_mut().enable();
                {
                    let g = core.lock();
                    if g.closed {
                        return Err(Errno::ESHUTDOWN);
                    }
                    if g.state == ImportState::Full {
                        return Ok(());
                    }
                    if let Some(e) = g.fatal_refusal() {
                        return Err(e);
                    }
                }
                change.await;
            }
        })
    }

    /// Says good-bye (best effort, at most a second), then fails everything with ESHUTDOWN.
    pub fn disconnect(self: &Arc<Self>) -> BoxFuture<()> {
        let core = self.core.clone();
        Box::pin(async move {
            let up = {
                let g = core.lock();
                !g.closed && g.link.is_some()
            };
            if up {
                let bye = core.control(Disconnect { reason: 0 });
                let _ = core.world.timeout(Duration::from_secs(1), bye).await;
            }
            core.close();
        })
    }
}

impl Core {
    /// Half the time for certain, half by chance, so that clients do not come back in step.
    pub fn at_most(&self, d: Duration) -> Duration {
        let half = d / 2;
        half + Duration::from_nanos(self.world.random_u64() % (half.as_nanos() as u64 + 1))
    }

    /// Wakes those who wait for a state without a change of state (a refusal).
    pub fn announce(&self) {
        self.changed.notify_waiters();
    }
}
