//! The sessions of a mount: one import for each target of the target map, kept up to date with it.

use crate::checksum::Checksums;
use crate::data::{OstSpace, UNLOCKED_RPCS_MAX};
use crate::meter::Meter;
use crate::{Fs, R, TargetState};
use bytes::Bytes;
use model::limits::{RPC_BULK_DEFAULT_BYTES, RPC_BULK_MAX_BYTES, SLOTS_PER_SESSION};
use model::planted::{self, Bug};
use model::{Errno, Fid, Nid, TargetId, TargetKind};
use rpc::import::ImportHooks;
use rpc::{Import, ImportConfig, ImportState, Response, Terms};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use wire::msg::config::{ConfigReply, TargetEntry};
use wire::msg::notify::Notify;
use wire::msg::reclaim::{Reclaim, ReclaimReply};
use wire::msg::writelist::RANGES_MAX;
use wire::{Bulk, Message, Op, RequestContext};
use world::{Instant, World, sync};

/// `max_rpcs_in_flight` unless set otherwise. Higher than Lustre's 8: every change waits for a flush of the
/// server's, and requests that are in flight together share one.
pub(crate) const RPCS_IN_FLIGHT_DEFAULT: usize = 32;
/// `max_pages_per_rpc` counts pages of this size.
pub(crate) const PAGE_BYTES: usize = 4096;
/// How long an operation waits for a fresh target map when a layout names a target that is not in this one.
const REFETCH_PATIENCE: Duration = Duration::from_secs(5);

/// So many at a time, as an administrator may change it.
#[derive(Clone)]
pub(crate) struct Turns(Arc<TurnsInner>);

struct TurnsInner {
    free: sync::Semaphore,
    limit: Mutex<usize>,
}

impl Turns {
    fn new(limit: usize) -> Turns {
        Turns(Arc::new(TurnsInner { free: sync::Semaphore::new(limit), limit: Mutex::new(limit) }))
    }

    async fn take(&self) -> R<sync::SemaphorePermit<'_>> {
        self.0.free.acquire().await.map_err(|_| Errno::ESHUTDOWN)
    }

    pub(crate) fn limit(&self) -> usize {
        *self.0.limit.lock().expect("no panic while locked")
    }

    /// Holds for new requests at once; fewer than are under way now are reached as those end.
    pub(crate) fn set_limit(&self, n: usize, world: &World) {
        let mut limit = self.0.limit.lock().expect("no panic while locked");
        if n > *limit {
            self.0.free.add_permits(n - *limit);
        } else if n < *limit {
            let excess = *limit - n;
            let owed = excess - self.0.free.forget_permits(excess);
            if owed > 0 {
                let me = self.0.clone();
                world.spawn("client-rpcs-in-flight", async move {
                    if let Ok(p) = me.free.acquire_many(owed as u32).await {
                        p.forget();
                    }
                });
            }
        }
        *limit = n;
    }
}

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
    world: World,
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
    /// Of an OST: what this mount keeps for it.
    pub data: OstSpace,
    /// Of an MDT: what was executed here goes before its requests.
    mount: Weak<Fs>,
}

impl Target {
    /// Sends a request and waits for its reply; waits for its turn first if `max_rpcs_in_flight` are under way.
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

    /// As [`Target::call_bulk`] for requests that never wait for locks: past the turns of those that may. Whoever
    /// sends data has one of [`OstSpace::turns`].
    pub(crate) async fn call_now<M: Message>(
        &self,
        ctx: RequestContext,
        msg: M,
        bulk: impl Into<Bulk> + Send,
    ) -> R<Response<M::Reply>> {
        self.send(ctx, msg, bulk, Terms::default()).await
    }

    /// As [`Target::call_now`].
    pub(crate) async fn send<M: Message>(
        &self,
        ctx: RequestContext,
        msg: M,
        bulk: impl Into<Bulk> + Send,
        terms: Terms,
    ) -> R<Response<M::Reply>> {
        if self.id.kind == TargetKind::Mdt
            && !M::OP.verb().past_barrier
            && !(M::OP == Op::Readdir && planted::on(Bug::BarrierForgotten))
            && let Some(fs) = self.mount.upgrade()
        {
            fs.tell_pending().await;
        }
        let bulk = bulk.into();
        let sent = self.meter.begin(&msg, bulk.len() as u64, self.is_limited::<M>(), self.world.now());
        let r = self.import.call_with(ctx, msg, bulk, terms).await;
        match &r {
            Ok(r) => sent.answered(r.bulk.len() as u64, self.world.now()),
            Err(Errno::ELOST) => self.say_lost(),
            Err(_) => {}
        }
        r
    }

    /// Says, once in a while, why files cannot be read.
    fn say_lost(&self) {
        let now = self.world.now();
        let mut said = self.said_lost.lock().expect("no panic while locked");
        if said.is_none_or(|at| now.since(at) >= SAY_LOST_AGAIN) {
            *said = Some(now);
            let fsname = self.mount.upgrade().map_or(String::new(), |fs| fs.fsname());
            tracing::error!(
                "{}: files have objects that were lost with the target which this one replaced: EIO until they are removed, \
                 truncated to nothing or written anew. 'lfs find DIR --ost {}' names what may be concerned.",
                self.id.label(&fsname),
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
        self.nids.lock().expect("no panic while locked").clone()
    }

    fn set_home(&self, nids: &[Nid], epoch: u32) {
        if !nids.is_empty() {
            *self.nids.lock().expect("no panic while locked") = nids.to_vec();
            self.import.set_home(nids.to_vec(), epoch);
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

/// The target map and the sessions made from it.
#[derive(Default)]
pub(crate) struct Targets {
    config: Mutex<Option<ConfigReply>>,
    map: Mutex<BTreeMap<TargetId, Arc<Target>>>,
}

impl Targets {
    pub(crate) fn config(&self) -> Option<ConfigReply> {
        self.config.lock().expect("no panic while locked").clone()
    }

    pub(crate) fn get(&self, id: TargetId) -> Option<Arc<Target>> {
        self.map.lock().expect("no panic while locked").get(&id).cloned()
    }

    /// In the order of kinds and indices.
    pub(crate) fn all(&self) -> Vec<Arc<Target>> {
        self.map.lock().expect("no panic while locked").values().cloned().collect()
    }

    pub(crate) fn of_kind(&self, kind: TargetKind) -> Vec<Arc<Target>> {
        self.all().into_iter().filter(|t| t.id.kind == kind).collect()
    }
}

/// What the session of one target asks its mount. Weak: sessions do not keep a mount alive.
struct Hooks {
    fs: Weak<Fs>,
    target: TargetId,
}

impl ImportHooks for Hooks {
    fn reclaim(&self) -> Vec<Reclaim> {
        let Some(fs) = self.fs.upgrade() else { return Vec::new() };
        if let Some(t) = fs.targets.get(self.target) {
            t.recoveries.fetch_add(1, Ordering::SeqCst);
        }
        match self.target.kind {
            TargetKind::Ost => return fs.reclaim_of_ost(self.target.index),
            TargetKind::Mgt => return Vec::new(),
            TargetKind::Mdt => {}
        }
        // Leases of the target's former life.
        let mut owned = Vec::new();
        if !planted::on(Bug::CacheKeptOverRestart) {
            owned = fs.meta.clear_for_reclaim();
        }
        if planted::on(Bug::PendingNotReclaimed) {
            owned.clear();
        }
        fs.reclaim_of(self.target.index, &owned)
    }

    fn reclaimed(&self, lost: ReclaimReply) {
        if let Some(fs) = self.fs.upgrade() {
            fs.reclaim_lost(self.target, &lost);
        }
    }

    fn request_lost(&self, op: Op, body: &Bytes, reply: &Bytes) {
        if let Some(fs) = self.fs.upgrade() {
            fs.request_lost(op, body, reply);
        }
    }

    fn notify(&self, n: Notify) {
        let Some(fs) = self.fs.upgrade() else { return };
        match n {
            Notify::LockGranted { id, errno } => fs.lock_granted(id, errno),
            Notify::ConfigChanged { .. } => fs.config_changed.notify_one(),
            Notify::BlockExtent { .. } | Notify::ExtentGranted { .. } | Notify::GlimpseExtent { .. } => {
                fs.extent_notice(self.target, &n);
            }
            Notify::BulkLimit { bytes } => self.bulk_limit(bytes),
            Notify::Stopping => tracing::info!("{} is being stopped", self.target),
            Notify::Revoke { items } => fs.leases_revoked(self.target, &items),
            // Between servers.
            Notify::ClientEvicted { .. } => {}
        }
    }

    fn bulk_limit(&self, bytes: u64) {
        let target = self.fs.upgrade().and_then(|fs| fs.targets.get(self.target));
        if let (Some(t), true) = (target, bytes > 0) {
            t.set_bulk_limit(bytes);
        }
    }

    fn write_ranges(&self, ranges: u64) {
        if let Some(t) = self.fs.upgrade().and_then(|fs| fs.targets.get(self.target)) {
            t.write_ranges.store(usize::try_from(ranges).unwrap_or(usize::MAX), Ordering::Relaxed);
        }
    }

    fn state(&self, s: ImportState) {
        let Some(fs) = self.fs.upgrade() else { return };
        match s {
            ImportState::Full if self.target == TargetId::MGT => fs.config_changed.notify_one(),
            ImportState::Full => {
                if let Some(t) = fs.targets.get(self.target) {
                    t.up.notify_waiters();
                }
            }
            ImportState::Evicted if self.target.kind == TargetKind::Mdt => {
                tracing::error!("{} evicted this client: calls that were under way fail", self.target);
                // Before: nothing may be made here with a FID that is not this client's any more.
                fs.fids.forget(self.target.index);
                fs.all_pending_lost(Errno::EIO);
            }
            ImportState::Evicted if self.target.kind == TargetKind::Ost => fs.data_evicted(self.target.index),
            _ => {}
        }
    }
}

impl Fs {
    /// A session with `target`; it connects at its first call.
    pub(crate) fn new_target(self: &Arc<Self>, id: TargetId, nids: Vec<Nid>) -> Arc<Target> {
        let hooks = Arc::new(Hooks { fs: Arc::downgrade(self), target: id });
        let cfg = ImportConfig {
            target: id,
            fsname: self.opt.fsname.clone(),
            nids: nids.clone(),
            port: self.opt.port,
            bind: self.opt.bind,
            client_uuid: self.uuid,
            client_name: self.opt.client_name.clone(),
            slots: SLOTS_PER_SESSION,
            hooks,
            adaptive: self.params.adaptive.clone(),
        };
        Arc::new(Target {
            id,
            import: Import::new(self.world.clone(), cfg),
            turns: Turns::new(RPCS_IN_FLIGHT_DEFAULT),
            mod_turns: Turns::new(RPCS_IN_FLIGHT_DEFAULT - 1),
            meter: Meter::new(id.kind, self.world.wall()),
            world: self.world.clone(),
            unlocked: sync::Semaphore::new(UNLOCKED_RPCS_MAX),
            bulk_bytes: AtomicUsize::new(RPC_BULK_DEFAULT_BYTES),
            bulk_limit: AtomicUsize::new(RPC_BULK_MAX_BYTES),
            write_ranges: AtomicUsize::new(0),
            active: AtomicBool::new(true),
            nids: Mutex::new(nids),
            recoveries: AtomicUsize::new(0),
            up: sync::Notify::new(),
            checksums: Checksums::new(),
            said_lost: Mutex::default(),
            data: OstSpace::default(),
            mount: Arc::downgrade(self),
        })
    }

    /// Takes a target map over: new targets get sessions, moved ones new addresses.
    pub(crate) fn apply_config(self: &Arc<Self>, new: ConfigReply) {
        let old = {
            let mut config = self.targets.config.lock().expect("no panic while locked");
            if config.as_ref().is_some_and(|c| c.version > new.version) {
                return; // an older answer that was overtaken
            }
            config.replace(new.clone())
        };
        // What did not change there is left as `lctl set_param` on this node may have set it.
        let mut added = Vec::new();
        for e in new.targets.iter().filter(|e| e.target.kind != TargetKind::Mgt) {
            let was = old.as_ref().and_then(|c| c.targets.iter().find(|o| o.target == e.target));
            if self.apply_target(e, was.map(|o| o.active)) {
                added.push(e.target);
            }
        }
        for (name, value) in &new.params {
            let same = old.as_ref().is_some_and(|c| c.params.iter().any(|p| p.0 == *name && p.1 == *value));
            self.apply_permanent_param(name, value, same.then_some(&added));
        }
    }

    /// Returns whether it is new.
    fn apply_target(self: &Arc<Self>, e: &TargetEntry, was_active: Option<bool>) -> bool {
        match self.targets.get(e.target) {
            Some(t) => {
                t.set_home(&e.nids, e.epoch);
                if was_active != Some(e.active) {
                    t.set_active(e.active);
                }
                false
            }
            None if e.nids.is_empty() => false, // known by name only: it never ran
            None => {
                let t = self.new_target(e.target, e.nids.clone());
                self.targets.map.lock().expect("no panic while locked").insert(e.target, t.clone());
                // Connected before the first call needs it, and so that `lfs check` tells something.
                let import = t.import.clone();
                self.world.spawn("client-connect", async move {
                    let _ = import.connected().await;
                });
                t.set_active(e.active);
                true
            }
        }
    }

    /// `lctl recover`. `ENODEV`: the mount has no connection to it.
    pub fn reconnect(&self, target: TargetId) -> R<()> {
        let of_mgs = || self.mgs.get().filter(|m| m.id == target).cloned();
        let t = self.targets.get(target).or_else(of_mgs).ok_or(Errno::ENODEV)?;
        tracing::info!("{target}: connecting anew, as an administrator wants it");
        t.import.reconnect();
        Ok(())
    }

    /// Follows the configuration until the mount ends: asks again whenever the MGS says that it changed, and when
    /// its session came back (a notice may have been lost).
    pub(crate) fn watch_config(self: &Arc<Self>) {
        let (weak, changed) = (Arc::downgrade(self), self.config_changed.clone());
        self.world.spawn("client-config", async move {
            loop {
                changed.notified().await;
                let Some(fs) = weak.upgrade() else { return };
                if fs.is_closed() {
                    return;
                }
                if let Err(e) = fs.fetch_config().await {
                    if fs.is_closed() {
                        return;
                    }
                    tracing::warn!("configuration of {} cannot be fetched: {e}", fs.opt.fsname);
                }
            }
        });
    }

    pub(crate) fn mgs(&self) -> R<Arc<Target>> {
        self.mgs.get().cloned().ok_or(Errno::ENOTCONN)
    }

    pub(crate) async fn mdt(self: &Arc<Self>, index: u16) -> R<Arc<Target>> {
        self.target(TargetId::mdt(index)).await
    }

    /// The metadata target of a file.
    pub(crate) async fn mdt_of(self: &Arc<Self>, fid: Fid) -> R<Arc<Target>> {
        self.mdt(self.locate.mdt_of(fid)).await
    }

    pub(crate) async fn ost(self: &Arc<Self>, index: u16) -> R<Arc<Target>> {
        self.target(TargetId::ost(index)).await
    }

    /// A target by name; asks the MGS again if it is not in the target map.
    async fn target(self: &Arc<Self>, id: TargetId) -> R<Arc<Target>> {
        if let Some(t) = self.targets.get(id) {
            return Ok(t);
        }
        // Boxed: it is large, seldom needed, and part of every operation.
        let fetched = Box::pin(self.world.timeout(REFETCH_PATIENCE, self.fetch_config())).await;
        if let Some(t) = self.targets.get(id) {
            return Ok(t);
        }
        tracing::error!("{} is not in the target map ({fetched:?})", id.label(&self.opt.fsname));
        Err(Errno::EIO)
    }

    /// The MGS and every target, as `lfs check` and `lctl dl` show them.
    pub fn targets(&self) -> Vec<TargetState> {
        let mgs = self.mgs.get().cloned().into_iter();
        mgs.chain(self.targets.all())
            .map(|t| TargetState {
                target: t.id,
                uuid: format!("{}_UUID", t.id.label(&self.opt.fsname)),
                nid: t.import.current_nid(),
                state: state_name(t.import.state()).to_string(),
                active: t.is_active(),
                disk: t.import.disk(),
            })
            .collect()
    }
}
