//! One OST as the session layer sees it.

use crate::brw::BrwStats;
use crate::clients::{self, ClientRecord, Clients};
use crate::echo::Echo;
use crate::jobs::{self, OstJobCounter};
use crate::lfsck::Lfsck;
use crate::locks::Locks;
use crate::ops::{self, Cx};
use crate::params::Settings;
use crate::probes;
use crate::scrub::Scrubber;
use crate::shares::Shares;
use crate::slot::Slot;
use crate::space::{DiskBook, Space};
use crate::stats::{OstCounter, counter_of};
use model::counters::Counters;
use model::exports::Exports;
use model::jobs::Jobs;
use model::maintenance::Maintenance;
use model::mutex::Mutex;
use model::{Errno, ObjectId, TargetId, TargetMark, limits};
use rpc::server::probes::Probes;
use rpc::server::recovery::{Recover, Recovery};
use rpc::{
    ClientId, ConnectOutcome, Departure, Greeting, Incoming, Outgoing, Peers, Principal, Service, StoredReply,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use store::object::Objects;
use store::{Author, Db, StoreError, Txn};
use wire::msg::connect::{EXTRA_KEEPS_NOTHING, extra_number};
use wire::msg::notify::Notice;
use wire::msg::writelist::RANGES_MAX;
use wire::proof::Key;
use wire::verb::BulkSide;
use wire::{Op, Sender};
use world::{BoxFuture, World, sync};

/// Who a target is.
#[derive(Clone, Debug)]
pub struct OstConfig {
    pub fsname: String,
    pub index: u16,
    /// The target's folder, for statfs.
    pub dir: String,
    pub birth: Birth,
    /// Shared with the other targets of the process on this file system.
    pub book: Arc<DiskBook>,
}

/// What is to be known of objects that this target has nothing of (decision 0044).
#[derive(Clone, Copy, Debug, Default)]
pub struct Birth {
    pub mark: TargetMark,
    /// It took the place of a lost one.
    pub successor: bool,
}

impl Birth {
    /// Whether the object was laid out for this target, not for one that had its index before.
    fn has_made(&self, id: ObjectId) -> bool {
        let old = id.mark() == TargetMark::NONE && !self.successor;
        id.mark() == self.mark || old || self.mark == TargetMark::NONE
    }
}

/// An object storage target that serves.
pub struct Ost {
    pub(crate) world: World,
    pub(crate) db: Arc<Db>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) space: Arc<Space>,
    pub(crate) shares: Arc<Shares>,
    pub(crate) stats: Arc<Counters<OstCounter>>,
    pub(crate) brw: BrwStats,
    pub(crate) probes: Arc<Probes>,
    pub(crate) exports: Exports<OstCounter>,
    /// And by the jobs for which it was done.
    pub(crate) jobs: Jobs<OstJobCounter>,
    pub(crate) settings: Settings,
    pub(crate) scrubber: Arc<Scrubber>,
    pub(crate) lfsck: Lfsck,
    pub(crate) recovery: Arc<Recovery>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) peers: Peers,
    /// Objects of surveys.
    pub(crate) echo: Echo,
    cfg: OstConfig,
    /// Clients come and go one at a time.
    membership: sync::Mutex<()>,
    stopping: AtomicBool,
    /// Requests being executed, and who waits for there to be none.
    running: Mutex<usize>,
    idle: sync::Notify,
    said_stopped: AtomicBool,
    /// By which servers of the file system know each other; `None` until the MGS said it.
    server_key: Mutex<Option<Key>>,
}

impl Ost {
    /// Serves what `db` and `objects` hold. The caller adds the result to an [`rpc::Server`].
    pub fn open(
        world: &World,
        db: Arc<Db>,
        objects: Arc<Objects>,
        peers: Peers,
        cfg: OstConfig,
    ) -> Result<Arc<Ost>, StoreError> {
        let clients = Arc::new(Clients::load(&db)?);
        let awaited = clients.list().into_iter().filter(|(_, r)| r.awaited).map(|(c, _)| c);
        let label = TargetId::ost(cfg.index).label(&cfg.fsname);
        let recovery = Recovery::new(world, label.clone(), awaited);
        let tries = Probes::new(world, label.clone(), &peers);
        let space = Space::new(world, &cfg.dir, cfg.index, cfg.book.clone());
        let stats = Arc::new(Counters::of_set(world.wall()));
        let ost = Arc::new(Ost {
            world: world.clone(),
            shares: Shares::load(&db, objects.usage())?,
            clients,
            locks: Locks::new(world, label.clone(), &peers, &recovery, &space, &stats),
            scrubber: Scrubber::open(world, &objects, label, &cfg.dir),
            lfsck: Lfsck::default(),
            recovery,
            space,
            stats,
            brw: BrwStats::new(world.wall()),
            probes: tries,
            exports: Exports::of_set(),
            jobs: Jobs::of_set(),
            settings: Settings::default(),
            db,
            objects,
            peers,
            echo: Echo::default(),
            cfg,
            membership: sync::Mutex::new(()),
            stopping: AtomicBool::new(false),
            running: Mutex::new(0),
            idle: sync::Notify::new(),
            said_stopped: AtomicBool::new(false),
            server_key: Mutex::new(None),
        });
        ost.peers.set_holders(&ost.locks);
        world.spawn("ost recovery", Recovery::run(ost.clone()));
        ost.probes.keep("ost probes", &ost, probes::begin);
        ost.shares.settle_behind(world, &ost.objects);
        Ok(ost)
    }

    /// The key by which servers of the file system know each other.
    pub fn set_server_key(&self, key: Key) {
        *self.server_key.lock() = Some(key);
    }

    /// How clients come back after a restart.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Clients of before the restart are still awaited.
    pub fn recovering(&self) -> bool {
        self.recovery.recovering()
    }

    /// Refuses new requests and waits for those at work. Remove the target from its [`rpc::Server`] before,
    /// close the [`Db`] after.
    pub async fn stop(&self) {
        self.stopping.store(true, Relaxed);
        self.recovery.stop();
        self.probes.stop();
        self.scrubber.close();
        self.locks.stop();
        loop {
            let idle = self.idle.notified();
            if *self.running.lock() == 0 {
                assert!(self.locks.nobody_waits(), "requests wait only while they run");
                if let Err(e) = self.objects.settle_for_good().await {
                    tracing::warn!(
                        "{}: all objects are looked at again at the next start: {e}",
                        self.label()
                    );
                }
                self.space.close();
                return;
            }
            idle.await;
        }
    }

    /// `FSNAME-OST0000`.
    pub fn label(&self) -> String {
        self.target().label(&self.cfg.fsname)
    }

    /// What is ordered.
    pub fn maintenance(&self) -> Maintenance {
        self.peers.maintenance().maintenance()
    }

    /// What is refused from now on, by the configuration of this version or here alone; that of another file
    /// system is nobody's business here.
    pub fn set_maintenance(&self, m: Maintenance, version: Option<u64>) {
        if m.is_about(&self.cfg.fsname) {
            self.peers.maintenance().set(m, version, self.world.now());
        }
    }

    /// Known clients: (id, record, connected now).
    pub fn exports(&self) -> Vec<(ClientId, ClientRecord, bool)> {
        let live: std::collections::BTreeMap<ClientId, bool> =
            self.peers.list().into_iter().map(|p| (p.who.client, p.connected)).collect();
        let up = |c: &ClientId| live.get(c).copied().unwrap_or(false);
        self.clients.list().into_iter().map(|(c, r)| (c, r, up(&c))).collect()
    }

    /// Whether the object lay on the target that had this one's place before. It is lost, not empty, until it
    /// is truncated to nothing (which makes it one of this target's) or destroyed.
    pub(crate) fn is_lost(&self, id: ObjectId) -> Result<bool, Errno> {
        let birth = &self.cfg.birth;
        Ok(!birth.has_made(id) && !self.objects.is_known(id).map_err(|e| e.errno())?)
    }

    /// Nothing new may begin.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// `EROFS` if changes are not taken (any more).
    pub(crate) fn writable(&self) -> Result<(), Errno> {
        self.say_stopped();
        if self.settings.read_only.load(Relaxed) || self.db.stopped().is_some() {
            return Err(Errno::EROFS);
        }
        Ok(())
    }

    /// Says once, loudly, that the disk failed.
    fn say_stopped(&self) {
        if let Some(why) = self.db.stopped()
            && !self.said_stopped.swap(true, Relaxed)
        {
            model::event!(
                ERROR,
                DiskFailed,
                self.label(),
                "{}: the disk failed, the target takes no more changes: {why}. Repair or replace the disk, \
                 check it with nacre fsck, then start the target again.",
                self.label()
            );
        }
    }

    /// Waits until an answer may be given: what it shows of others is on disk (with `durable`, all of it),
    /// and the answers to what its client did before are sent.
    async fn settle(&self, done: &ops::Done, author: &Author, durable: bool) -> Result<(), Errno> {
        let wait = async {
            if done.durable > 0 {
                self.db.durable(done.durable).await?;
            }
            author.answerable(done.seen, durable).await
        };
        wait.await.map_err(|e: StoreError| {
            self.say_stopped();
            if done.changed.is_some() { e.errno() } else { Errno::EIO }
        })
    }

    async fn execute(self: Arc<Self>, req: Incoming) -> Outgoing {
        if let Err(e) = self.recovery.admitted(req.from.client, req.op, req.replay.is_some()).await {
            return Outgoing::err(e);
        }
        let _running = Running::enter(&self);
        if self.stopping.load(Relaxed) {
            return Outgoing::err(Errno::ESHUTDOWN);
        }
        let start = self.world.now();
        let io = self.brw.enter(req.op);
        let map = self.nodemap(&req.from);
        let req = req.mapped(&map);
        let durable = req.durable || self.settings.ack_durable.load(Relaxed);
        let author = self.db.author(req.from.client.0, durable);
        let slot = Slot {
            author: author.clone(),
            clients: self.clients.clone(),
            client: req.from.client,
            slot: req.slot,
            xid: req.xid,
            progress: None,
        };
        let replay = req.replay.map(|r| r.reply);
        let ctx = Arc::new(req.ctx);
        let cx = Cx { ost: self.clone(), ctx: ctx.clone(), map, slot, wall: req.wall, replay };
        let done = match ops::run(&cx, req.op, &req.body, req.bulk).await {
            Ok(done) => done,
            Err(e) => {
                // An error shows state too (a tombstone, a full object): that must be durable as well.
                let all = if e == Errno::ESTALE { self.db.last_submitted() } else { 0 };
                let shown = ops::Done { durable: all, ..ops::Done::default() };
                let e = self.settle(&shown, &author, durable).await.err().unwrap_or(e);
                return Outgoing { hold: Some(author), ..Outgoing::err(e) };
            }
        };
        drop(cx);
        if let Err(e) = self.settle(&done, &author, durable).await {
            return Outgoing { hold: Some(author), ..Outgoing::err(e) };
        }
        assert!(req.op.verb().modifies || done.changed.is_none(), "{:?} changed something", req.op);
        assert!(done.bulk.len() <= limits::RPC_BULK_MAX_BYTES, "the data of an answer fits into a message");
        let us = u64::try_from(self.world.now().since(start).as_micros()).unwrap_or(u64::MAX);
        self.count(req.op, &req.from, &done, us);
        jobs::count(&self.jobs, &ctx.jobid, req.op, (us, done.bytes), || self.world.wall());
        if let Some(io) = io {
            io.done(done.bytes, us);
        }
        Outgoing {
            status: Ok(()),
            body: done.body,
            bulk: done.bulk,
            transno: done.changed.map_or(0, |lsn| self.db.transno(lsn)),
            hold: Some(author),
        }
    }

    fn count(&self, op: Op, from: &Principal, done: &ops::Done, us: u64) {
        let Some(counter) = counter_of(op) else { return };
        let export = self.exports.of(from.address, || self.world.wall());
        for s in export.iter().map(|e| &e.stats).chain([&*self.stats]) {
            s.add(counter, us);
            match op.verb().bulk {
                BulkSide::Reply => s.add(OstCounter::ReadBytes, done.bytes),
                BulkSide::Request => s.add(OstCounter::WriteBytes, done.bytes),
                BulkSide::None => {}
            }
        }
    }

    async fn admit(self: &Arc<Self>, hello: Greeting) -> Result<ConnectOutcome, (Errno, String)> {
        let c = &hello.connect;
        let client = ClientId(c.client_uuid);
        assert_eq!(hello.from.client, client, "a hello is of the client that it names");
        let label = self.label();
        if c.fsname != self.cfg.fsname {
            let why = format!("{label} belongs to file system '{}', not '{}'", self.cfg.fsname, c.fsname);
            return Err((Errno::EINVAL, why));
        }
        let failed = |e: StoreError| (e.errno(), format!("{label} cannot record the client: {e}"));
        let _one_at_a_time = self.membership.lock().await;
        let known = self.clients.identity(client, |i| Ok((hello.check(i)?, hello.is_unaware(i))));
        if let Some((verdict, record)) = known {
            let (bound, unaware) = verdict?;
            if bound {
                self.record(client, &record).await.map_err(failed)?;
            }
            self.stats.add(OstCounter::Reconnect, 1);
            if unaware {
                self.recovery.departed(client);
                return Ok(ConnectOutcome { new_client: true, recovering: false });
            }
            self.locks.client_back(client);
            let recovering = self.recovery.connected(client);
            return Ok(ConnectOutcome { new_client: false, recovering });
        }
        self.clients.room().map_err(|e| (e, format!("{label} knows too many clients already")))?;
        let record = ClientRecord {
            name: clients::bounded_name(&c.client_name),
            address: hello.from.address.to_string(),
            since: self.world.wall(),
            epoch: self.db.epoch(),
            slots: c.slots,
            awaited: extra_number(&c.extra, EXTRA_KEEPS_NOTHING) == 0,
            identity: hello.identity(self.db.epoch()),
        };
        self.record(client, &record).await.map_err(failed)?;
        self.clients.insert(client, record);
        self.stats.add(OstCounter::Connect, 1);
        Ok(ConnectOutcome { new_client: true, recovering: false })
    }

    /// Makes a client's record durable. Who comes when the disk has failed can only read: after a restart
    /// there is nothing to recover for it.
    async fn record(&self, client: ClientId, record: &ClientRecord) -> Result<(), StoreError> {
        if self.db.stopped().is_some() {
            return Ok(());
        }
        let mut txn = Txn::new();
        txn.put(clients::key(client), record.encode());
        let lsn = self.db.submit(txn)?;
        self.db.durable(lsn).await
    }

    async fn forget(&self, client: ClientId, how: Departure) -> Result<(), StoreError> {
        let _one_at_a_time = self.membership.lock().await;
        self.drop_client(client, how).await?;
        self.recovery.departed(client);
        Ok(())
    }

    /// With the membership locked.
    async fn drop_client(&self, client: ClientId, how: Departure) -> Result<(), StoreError> {
        let mut txn = Txn::new();
        if !self.clients.remove(&self.db, client, &mut txn)? {
            return Ok(());
        }
        // When the disk has failed its record stays: the next start waits for it, and finds nothing to
        // recover.
        if self.db.stopped().is_none() {
            let lsn = self.db.submit(txn)?;
            self.db.durable(lsn).await?;
        }
        self.stats.add(OstCounter::Disconnect, 1);
        self.exports.keep(&self.clients.list().into_iter().map(|(_, r)| r.address).collect());
        if how == Departure::Evicted {
            model::event!(WARN, ClientEvicted, self.label(), "{}: evicted client {client}", self.label());
        }
        Ok(())
    }
}

impl Recover for Ost {
    fn recovery(&self) -> &Arc<Recovery> {
        &self.recovery
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.settings.recovery_time_s.load(Relaxed))
    }

    fn hard_limit(&self) -> Duration {
        Duration::from_secs(self.settings.recovery_hard_s.load(Relaxed))
    }

    fn peers(&self) -> &Peers {
        &self.peers
    }

    fn evict_absent(self: Arc<Self>, client: ClientId) -> BoxFuture<()> {
        Box::pin(async move {
            let _one_at_a_time = self.membership.lock().await;
            if self.recovery.give_up(client)
                && let Err(e) = self.drop_client(client, Departure::Evicted).await
            {
                tracing::error!("{}: cannot forget a client that did not come back: {e}", self.label());
            }
        })
    }

    fn recovered(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async {})
    }
}

impl Service for Ost {
    fn target(&self) -> TargetId {
        TargetId::ost(self.cfg.index)
    }

    fn fsname(&self) -> String {
        self.cfg.fsname.clone()
    }

    fn epoch(&self) -> u32 {
        self.db.epoch()
    }

    fn speaks(&self) -> bool {
        self.db.is_held()
    }

    fn last_committed(&self) -> u64 {
        self.db.transno(self.db.last_committed())
    }

    fn folder(&self) -> Option<String> {
        Some(self.cfg.dir.clone())
    }

    fn knows(&self, client: ClientId) -> bool {
        self.clients.knows(client)
    }

    fn bulk_bytes(&self) -> usize {
        (self.settings.brw_mb.load(Relaxed) << 20) as usize
    }

    fn write_ranges(&self) -> usize {
        RANGES_MAX
    }

    fn disk(&self) -> u64 {
        store::format::disk_id(&self.world, &self.cfg.dir)
    }

    fn connect(self: Arc<Self>, hello: Greeting) -> BoxFuture<Result<ConnectOutcome, (Errno, String)>> {
        Box::pin(async move { self.admit(hello).await })
    }

    fn sender(&self, from: &Principal) -> Sender {
        from.role(self.server_key.lock().as_ref())
    }

    fn replays(&self, client: ClientId) -> bool {
        self.recovery.owes(client)
    }

    fn recovering(&self) -> bool {
        self.recovery.recovering()
    }

    fn stored_reply(&self, client: ClientId, slot: u16) -> Option<StoredReply> {
        let r = match self.db.reply(&client.0, slot) {
            Ok(r) => r?,
            Err(e) => {
                tracing::error!("{}: cannot read reply slot {slot}: {e}", self.label());
                return None;
            }
        };
        // A batch's progress too: what came before it in the slot is over.
        Some(StoredReply { xid: r.xid, transno: r.transno, status: r.status, body: r.body })
    }

    fn handle(self: Arc<Self>, req: Incoming) -> BoxFuture<Outgoing> {
        Box::pin(self.execute(req))
    }

    fn commit(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move {
            // Should it fail the target stops, and requests say so.
            let _ = self.db.durable(self.db.last_submitted()).await;
        })
    }

    fn notice(&self, client: ClientId, n: Notice) {
        match n {
            Notice::Released { locks } => self.locks.released(client, &locks),
            Notice::Kept { cookie, kept } => self.locks.kept(client, cookie, kept),
            Notice::Cancelled { .. } | Notice::Opened { .. } => {}
            // The session layer's own.
            Notice::Proof { .. } | Notice::ClientEvicted { .. } => {}
        }
    }

    fn leaving(&self, client: ClientId) {
        self.recovery.leaving(client);
        self.locks.client_leaves(client);
    }

    fn departed(self: Arc<Self>, client: ClientId, how: Departure) -> BoxFuture<()> {
        Box::pin(async move {
            // Durably, before others get its locks: after a crash it must not come back and reclaim them.
            if let Err(e) = self.forget(client, how).await {
                tracing::error!("{}: cannot forget a client that left: {e}", self.label());
            }
            self.locks.client_left(client);
        })
    }
}

/// Counts a request while it is executed, also if its future is dropped.
pub(crate) struct Running<'a>(&'a Ost);

impl<'a> Running<'a> {
    pub(crate) fn enter(ost: &'a Ost) -> Running<'a> {
        *ost.running.lock() += 1;
        Running(ost)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut n = self.0.running.lock();
        *n -= 1;
        if *n == 0 {
            self.0.idle.notify_waiters();
        }
    }
}
