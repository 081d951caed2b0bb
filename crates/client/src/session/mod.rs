//! The session with one target: requests and their bounds, addresses, what is counted. It knows nobody above
//! it: whose session it is hears of reclaims, notices and evictions through [`SessionOwner`].

mod checksum;
mod meter;
pub(crate) mod params;
mod turns;

#[cfg(test)]
mod tests;

pub(crate) use checksum::Checksums;
pub(crate) use meter::Meter;
pub(crate) use turns::Turns;

use crate::R;
use crate::base::Context;
use bytes::Bytes;
use model::limits::{RPC_BULK_DEFAULT_BYTES, RPC_BULK_MAX_BYTES, SLOTS_PER_SESSION};
use model::mutex::Mutex;
use model::planted::{self, Bug};
use model::span::Kind;
use model::{Errno, Nid, TargetId, TargetKind};
use rpc::import::ImportHooks;
use rpc::{Import, ImportConfig, ImportState, Response, Terms, Waiting};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use wire::msg::notify::Notify;
use wire::msg::reclaim::{Reclaim, ReclaimReply};
use wire::msg::writelist::RANGES_MAX;
use wire::{Bulk, Message, Op, RequestContext};
use world::span::{self, Span};
use world::{BoxFuture, Instant, sync};

/// `max_rpcs_in_flight` unless set otherwise. Higher than Lustre's 8: requests that are in flight together
/// share a flush of the server's.
pub(crate) const RPCS_IN_FLIGHT_DEFAULT: usize = 32;
pub(crate) const RPCS_IN_FLIGHT_HELP: &str = "Requests to this target that are under way at a time.";
/// `max_pages_per_rpc` counts pages of this size.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Requests to an OST that may wait for locks there, at most, whatever `max_rpcs_in_flight` says.
const UNLOCKED_RPCS_MAX: usize = 32;
/// Opens or locks in one reclaim message.
pub(crate) const RECLAIM_BATCH: usize = 5000;

/// And that objects are lost is said again after so long.
const SAY_LOST_AGAIN: Duration = Duration::from_secs(60);

/// One target and the client's bounds on what it sends there.
pub(crate) struct Target {
    pub id: TargetId,
    pub import: Arc<Import>,
    /// `max_rpcs_in_flight`.
    pub turns: Turns,
    /// `max_mod_rpcs_in_flight`: of those, the ones that change something.
    pub mod_turns: Turns,
    pub meter: Meter,
    cx: Arc<Context>,
    /// Of an OST: turns of requests that may wait for locks there.
    unlocked: sync::Semaphore,
    /// Bytes of data in one message.
    bulk_bytes: AtomicUsize,
    /// What the target wants at most (`brw_size`).
    bulk_limit: AtomicUsize,
    /// Ranges that the target takes in one message; 0 or 1: one.
    write_ranges: AtomicUsize,
    active: AtomicBool,
    /// Addresses last told to the import.
    nids: Mutex<Vec<Nid>>,
    /// Grows each time the server asked for a reclaim: it restarted, or forgot this client.
    pub recoveries: AtomicUsize,
    /// Told each time the session is up again.
    pub up: sync::Notify,
    pub checksums: Checksums,
    /// When it was last said that objects are lost.
    said_lost: Mutex<Option<Instant>>,
    /// Whose session it is.
    owner: Weak<dyn SessionOwner>,
}

impl Target {
    /// A session with a target; it connects at its first call.
    pub(crate) fn new(
        cx: &Arc<Context>,
        id: TargetId,
        nids: Vec<Nid>,
        owner: Weak<dyn SessionOwner>,
    ) -> Arc<Target> {
        Arc::new_cyclic(|me: &Weak<Target>| {
            let hooks = Arc::new(Hooks { target: me.clone(), id, owner: owner.clone() });
            let cfg = ImportConfig {
                target: id,
                fsname: cx.opt.fsname.clone(),
                nids: nids.clone(),
                port: cx.opt.port,
                bind: cx.opt.bind,
                networks: cx.opt.networks.clone(),
                client_uuid: cx.uuid,
                client_name: cx.opt.client_name.clone(),
                slots: SLOTS_PER_SESSION,
                hooks,
                adaptive: cx.adaptive.clone(),
            };
            Target {
                id,
                import: Import::new(cx.world.clone(), cfg),
                turns: Turns::new(RPCS_IN_FLIGHT_DEFAULT),
                mod_turns: Turns::new(RPCS_IN_FLIGHT_DEFAULT - 1),
                meter: Meter::new(id.kind, cx.world.wall()),
                cx: cx.clone(),
                unlocked: sync::Semaphore::new(UNLOCKED_RPCS_MAX),
                bulk_bytes: AtomicUsize::new(RPC_BULK_DEFAULT_BYTES),
                bulk_limit: AtomicUsize::new(RPC_BULK_MAX_BYTES),
                write_ranges: AtomicUsize::new(0),
                active: AtomicBool::new(true),
                nids: Mutex::new(nids.clone()),
                recoveries: AtomicUsize::new(0),
                up: sync::Notify::new(),
                checksums: Checksums::new(),
                said_lost: Mutex::default(),
                owner,
            }
        })
    }

    /// Sends a request and waits for its reply; waits for its turn first if `max_rpcs_in_flight` are under
    /// way.
    pub(crate) async fn call<M: Message>(&self, ctx: RequestContext, msg: M) -> R<M::Reply> {
        Ok(self.call_bulk(ctx, msg, Bytes::new()).await?.reply)
    }

    /// Whether `max_mod_rpcs_in_flight` counts these.
    fn is_limited<M: Message>(&self) -> bool {
        let verb = M::OP.verb();
        verb.modifies && !verb.unlimited && self.id.kind == TargetKind::Mdt
    }

    pub(crate) async fn call_bulk<M: Message>(
        &self,
        ctx: RequestContext,
        msg: M,
        bulk: impl Into<Bulk> + Send,
    ) -> R<Response<M::Reply>> {
        // Boxed: most operations come to their end without a request, and are moved about with room for it.
        Box::pin(self.call_in_turn(ctx, msg, bulk.into())).await
    }

    async fn call_in_turn<M: Message>(
        &self,
        ctx: RequestContext,
        msg: M,
        bulk: Bulk,
    ) -> R<Response<M::Reply>> {
        let _mod_turn = match self.is_limited::<M>() {
            true => Some(self.mod_turns.take().await?),
            false => None,
        };
        let _unlocked = match self.id.kind {
            TargetKind::Ost => Some(self.unlocked.acquire().await.map_err(|_| Errno::ESHUTDOWN)?),
            _ => None,
        };
        let _turn = self.turns.take().await?;
        self.call_now(ctx, msg, bulk).await
    }

    /// As [`Target::call_bulk`] for requests that never wait for locks: past the turns of those that may.
    /// Whoever sends data to an OST has one of the turns of its OSC.
    pub(crate) async fn call_now<M: Message>(
        &self,
        ctx: RequestContext,
        msg: M,
        bulk: impl Into<Bulk> + Send,
    ) -> R<Response<M::Reply>> {
        self.send(ctx, msg, bulk, Terms::default()).await
    }

    /// As [`Target::call_now`] for what others may wait for: under a lock of this mount's, or about one. A
    /// server that has no memory left has some for these.
    pub(crate) async fn call_waited_for<M: Message>(&self, ctx: RequestContext, msg: M) -> R<M::Reply> {
        let terms = Terms { waited_for: true, ..Terms::default() };
        Ok(self.send(ctx, msg, Bytes::new(), terms).await?.reply)
    }

    /// As [`Target::call_now`].
    pub(crate) async fn send<M: Message>(
        &self,
        ctx: RequestContext,
        msg: M,
        bulk: impl Into<Bulk> + Send,
        terms: Terms,
    ) -> R<Response<M::Reply>> {
        let is_past =
            M::OP.verb().past_barrier || (M::OP == Op::Readdir && planted::on(Bug::BarrierForgotten));
        if !is_past
            && let Some(owner) = self.owner.upgrade()
            && owner.has_barrier()
        {
            owner.pass_barrier().await;
        }
        let bulk = bulk.into();
        let sent = self.meter.begin(&msg, bulk.len() as u64, self.is_limited::<M>(), self.cx.world.now());
        let world = &self.cx.world;
        let name = || format!("{:?} to {}", M::OP, self.id.label(&self.cx.opt.fsname));
        let span = span::current().map(|at| Span::part(world, at, Kind::Rpc, name()));
        let ctx = match &span {
            Some(s) => ctx.traced(s.at.trace, s.at.span),
            None => ctx,
        };
        let r = self.import.call_with(ctx, msg, bulk, terms).await;
        if let Some(s) = span {
            s.end(world, r.as_ref().err().map_or("ok", |e| e.text()));
        }
        match &r {
            Ok(r) => sent.answered(r.bulk.len() as u64, self.cx.world.now()),
            Err(Errno::ELOST) => self.say_lost(),
            Err(_) => {}
        }
        r
    }

    /// Says, once in a while, why files cannot be read.
    fn say_lost(&self) {
        let now = self.cx.world.now();
        let mut said = self.said_lost.lock();
        if said.is_none_or(|at| now.since(at) >= SAY_LOST_AGAIN) {
            *said = Some(now);
            tracing::error!(
                "{}: files have objects that were lost with the target which this one replaced: EIO until they are removed, \
                 truncated to nothing or written anew. 'lfs find DIR --ost {}' names what may be concerned.",
                self.id.label(&self.cx.opt.fsname),
                self.id.index
            );
        }
    }

    /// Most data in one request: what this mount is set to, and what the target wants.
    pub(crate) fn bulk_bytes(&self) -> usize {
        self.bulk_bytes.load(Ordering::Relaxed).min(self.bulk_limit())
    }

    pub(crate) fn bulk_limit(&self) -> usize {
        self.bulk_limit.load(Ordering::Relaxed)
    }

    /// The target said what it wants at most.
    fn set_bulk_limit(&self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).clamp(PAGE_BYTES, RPC_BULK_MAX_BYTES);
        self.bulk_limit.store(bytes / PAGE_BYTES * PAGE_BYTES, Ordering::Relaxed);
    }

    /// Most ranges of an object in one message of writes.
    pub(crate) fn write_ranges(&self) -> usize {
        self.write_ranges.load(Ordering::Relaxed).clamp(1, RANGES_MAX)
    }

    pub(crate) fn set_bulk_bytes(&self, n: usize) {
        assert!((PAGE_BYTES..=RPC_BULK_MAX_BYTES).contains(&n), "checked by the parameter's range");
        self.bulk_bytes.store(n, Ordering::Relaxed);
    }

    /// Whether what was granted here can be relied on: the target was heard from lately, so nobody can have
    /// been given what that covers ([`rpc::lease_life`]).
    pub(crate) fn is_leased(&self) -> bool {
        self.cx.world.now() < self.import.leases_until()
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    pub(crate) fn set_active(&self, active: bool) {
        if self.active.swap(active, Ordering::Relaxed) != active {
            tracing::warn!(
                "{} is {} from now on",
                self.id,
                if active { "active" } else { "inactive: calls to it fail" }
            );
            self.import.set_active(active);
        }
    }

    pub(crate) fn nids(&self) -> Vec<Nid> {
        self.nids.lock().clone()
    }

    pub(crate) fn set_home(&self, nids: &[Nid], epoch: u32, uuid: [u8; 16]) {
        if !nids.is_empty() {
            *self.nids.lock() = nids.to_vec();
            self.import.set_home(nids.to_vec(), epoch, uuid);
        }
    }
}

/// As Lustre's `state` file has it.
pub(crate) fn state_name(s: ImportState) -> &'static str {
    match s {
        ImportState::New => "NEW",
        ImportState::Disconn => "DISCONN",
        ImportState::Connecting => "CONNECTING",
        ImportState::Recover => "RECOVER",
        ImportState::Full => "FULL",
        ImportState::Evicted => "EVICTED",
        ImportState::Closed => "CLOSED",
    }
}

/// Whose session it is: the one way up from here.
pub(crate) trait SessionOwner: Send + Sync {
    /// What a restarted server is told, or one that forgot this client.
    fn reclaim(&self) -> Vec<Reclaim>;
    /// What could not be had back.
    fn reclaimed(&self, lost: &ReclaimReply);
    /// A server lost what it had answered, and it could not be done again.
    fn request_lost(&self, op: Op, body: &Bytes, reply: &Bytes);
    /// A word of the server's. Those about the session itself do not come here.
    fn notice(self: Arc<Self>, n: Notify);
    /// The session is up.
    fn is_up(&self) {}
    /// The server gave this client up.
    fn evicted(&self);
    /// Whether something was executed here that the server must be told before the next request.
    fn has_barrier(&self) -> bool {
        false
    }
    /// Waits until the server was told.
    fn pass_barrier(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async {})
    }
}

/// Between the import and the owner of its session. Weak: sessions do not keep a mount alive.
struct Hooks {
    target: Weak<Target>,
    id: TargetId,
    owner: Weak<dyn SessionOwner>,
}

impl ImportHooks for Hooks {
    fn reclaim(&self) -> Vec<Reclaim> {
        let Some(owner) = self.owner.upgrade() else { return Vec::new() };
        if let Some(t) = self.target.upgrade() {
            t.recoveries.fetch_add(1, Ordering::SeqCst);
        }
        owner.reclaim()
    }

    fn reclaimed(&self, lost: ReclaimReply) {
        if let Some(owner) = self.owner.upgrade() {
            owner.reclaimed(&lost);
        }
    }

    fn request_lost(&self, op: Op, body: &Bytes, reply: &Bytes) {
        if let Some(owner) = self.owner.upgrade() {
            owner.request_lost(op, body, reply);
        }
    }

    fn notify(&self, n: Notify) {
        match n {
            Notify::BulkLimit { bytes } => self.bulk_limit(bytes),
            Notify::Stopping => tracing::info!("{} is being stopped", self.id),
            n => {
                if let Some(owner) = self.owner.upgrade() {
                    owner.notice(n);
                }
            }
        }
    }

    fn bulk_limit(&self, bytes: u64) {
        if let (Some(t), true) = (self.target.upgrade(), bytes > 0) {
            t.set_bulk_limit(bytes);
        }
    }

    fn write_ranges(&self, ranges: u64) {
        if let Some(t) = self.target.upgrade() {
            t.write_ranges.store(usize::try_from(ranges).unwrap_or(usize::MAX), Ordering::Relaxed);
        }
    }

    fn stuck(&self, count: usize, oldest: &[Waiting]) {
        let (Some(t), Some(first)) = (self.target.upgrade(), oldest.first()) else { return };
        model::event!(
            WARN,
            RequestStuck,
            t.id.label(&t.cx.opt.fsname),
            "{count} requests to {} at {} ({}) wait for too long, the oldest: {}",
            t.id.label(&t.cx.opt.fsname),
            t.import.current_nid(),
            state_name(t.import.state()),
            params::waiting_line(first)
        );
    }

    fn state(&self, s: ImportState) {
        match s {
            ImportState::Full => {
                if let Some(t) = self.target.upgrade() {
                    t.up.notify_waiters();
                }
                if let Some(owner) = self.owner.upgrade() {
                    owner.is_up();
                }
            }
            ImportState::Evicted => {
                if let Some(owner) = self.owner.upgrade() {
                    owner.evicted();
                }
            }
            _ => {}
        }
    }
}
