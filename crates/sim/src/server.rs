//! A server: its target, the two hosts that reach it, and what runs there.

use crate::executor::lock;
use crate::{Node, Sim};
use ::world::World;
use ::world::gate::GatedDisk;
use ::world::pause::DiskPause;
use ::world::sync::Notify;
use bytes::Bytes;
use mds::{Mdt, MdtConfig};
use mgs::Mgs;
use model::maintenance::Maintenance;
use model::mutex::Mutex;
use model::{Errno, HostNid, Nid, TargetId};
use oss::{Birth, Ost, OstConfig};
use rpc::{Import, ImportConfig, ImportHooks, ImportState, Peers, Server};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use store::format::{INCOMPAT_SUCCESSOR, Superblock, TargetLock};
use store::mmp::{Heartbeat, Times, Who};
use store::object::Objects;
use store::{Db, DbOptions, Lease, StoreError};
use wire::RequestContext;
use wire::msg::config::{Config, EXTRA_SERVER_KEY};
use wire::msg::connect::extra_key;
use wire::msg::notify::Notify as Notice;
use wire::msg::register::{EXTRA_TARGET_KEY, Register};
use wire::proof::{Claimant, Key};

pub const FSNAME: &str = "sim";
pub(crate) const PORT: u16 = model::limits::PORT;
/// How often a host looks whether its server stopped, as nacred does.
pub(crate) const WATCH: Duration = Duration::from_secs(1);

pub(crate) fn nid(addr: IpAddr) -> Nid {
    Nid { addr, net: 0 }
}

/// What one server node serves.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// MGT and MDT0000, as `--mgs --mdt` makes them.
    Metadata,
    Objects(u16),
}

/// One of the hosts that reach a target.
pub struct Host {
    pub node: Node,
    addr: IpAddr,
    pub(crate) running: Mutex<Option<Running>>,
    /// Counts boots, so that a boot that a crash overtook leaves nothing behind.
    pub(crate) boots: AtomicU64,
    /// The last start found somebody else at the target, or ended because of that.
    pub refused: AtomicBool,
    /// A start is under way, perhaps of one that has claimed the target and not said so to anybody.
    pub starting: AtomicBool,
}

/// A server: one target, and the hosts that reach it.
pub struct ServerNode {
    pub role: Role,
    pub hosts: [Host; 2],
    /// The host where it is to run.
    active: AtomicUsize,
    /// A drill decides what runs where.
    drilled: AtomicBool,
    /// A drill makes the disk fail.
    errors: AtomicBool,
    /// The target is the second one of its index.
    replaced: AtomicBool,
    /// When it lost power.
    pub power_losses: Mutex<Vec<u64>>,
    /// Moments at which it was seen to serve, [`WATCH`] apart.
    pub(crate) served: Mutex<Vec<u64>>,
}

pub(crate) struct Running {
    server: Arc<Server>,
    pub(crate) mdt: Option<Arc<Mdt>>,
    #[allow(dead_code)]
    ost: Option<Arc<Ost>>,
    pub(crate) db: Arc<Db>,
    mgs_db: Option<Arc<Db>>,
    pub(crate) mgs: Option<Arc<Mgs>>,
    pub(crate) objects: Option<Arc<Objects>>,
    /// Its disk, stopped for a moment.
    pub(crate) pause: Arc<DiskPause>,
    _heartbeat: Heartbeat,
    _lock: TargetLock,
}

impl Running {
    /// Why it stopped by itself.
    pub(crate) fn stopped(&self) -> Option<String> {
        self.db.stopped().or_else(|| self.mgs_db.as_ref()?.stopped())
    }
}

impl Host {
    /// It may write to the target, as far as it knows.
    pub(crate) fn owns(&self) -> bool {
        !self.node.is_paused() && lock(&self.running).as_ref().is_some_and(|r| r.db.is_held())
    }

    pub fn is_up(&self) -> bool {
        lock(&self.running).is_some()
    }
}

/// Small, so that segments change and checkpoints happen within a run.
fn db_options(lease: Lease) -> DbOptions {
    DbOptions {
        segment_bytes: 256 << 10,
        checkpoint_txns: 300,
        checkpoint_bytes: 256 << 10,
        table_cache_bytes: 1 << 20,
        lease,
        ..DbOptions::default()
    }
}

/// The start found somebody else at the target, or nobody's word that there is none.
pub(crate) fn is_refusal(e: &anyhow::Error) -> bool {
    let words = ["heartbeat", "in use by", "taken over by"];
    matches!(e.downcast_ref(), Some(StoreError::Refused(why)) if words.iter().any(|w| why.contains(w)))
}

/// The target was ended by its own server, which could not say for too long that it lives, or found
/// that another one had taken it over meanwhile.
pub(crate) fn is_self_fenced(e: &anyhow::Error) -> bool {
    let words = ["heartbeat", "was taken over"];
    matches!(e.downcast_ref(), Some(StoreError::Stopped(why)) if words.iter().any(|w| why.contains(w)))
}

impl Role {
    /// Of its two hosts.
    fn addrs(self) -> [IpAddr; 2] {
        match self {
            Role::Metadata => [Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 8, 1).into()],
            Role::Objects(i) => {
                let last = i as u8 + 1;
                [Ipv4Addr::new(10, 0, 1, last).into(), Ipv4Addr::new(10, 0, 9, last).into()]
            }
        }
    }
}

/// A target's own link with the MGS.
struct Link {
    world: World,
    node: Arc<ServerNode>,
    at: usize,
    label: Superblock,
    db: Arc<Db>,
}

/// Keeps a configuration on disk, as nacred does: not over a successor's label.
fn remember(w: &World, dir: &str, label: &Superblock, db: &Db) -> Result<(), StoreError> {
    if !db.is_held() || Superblock::read(w, dir)?.epoch != label.epoch {
        return Err(StoreError::Refused("taken over by another server".into()));
    }
    label.write(w, dir)
}

impl ServerNode {
    /// It lost power after `answered`, and had not served for `patience` altogether between `died` and then.
    pub(crate) fn lost_power_soon(&self, answered: u64, died: u64, patience: Duration) -> bool {
        let served = lock(&self.served);
        let until = |t: u64| served.partition_point(|at| *at < t);
        let enough = patience.as_nanos() / WATCH.as_nanos();
        let soon = |at: &u64| *at >= answered && (until(*at).saturating_sub(until(died)) as u128) < enough;
        lock(&self.power_losses).iter().any(soon)
    }

    pub(crate) fn new(sim: &Sim, role: Role) -> Arc<ServerNode> {
        let name = if matches!(role, Role::Metadata) { "mds" } else { "oss" };
        let [a, b] = role.addrs();
        let host = |node, addr| Host {
            node,
            addr,
            running: Mutex::new(None),
            boots: AtomicU64::new(0),
            refused: AtomicBool::new(false),
            starting: AtomicBool::new(false),
        };
        let first = sim.add_node(name, &[a]);
        let second = sim.add_node_on(name, &[b], &first);
        Arc::new(ServerNode {
            role,
            hosts: [host(first, a), host(second, b)],
            active: AtomicUsize::new(0),
            drilled: AtomicBool::new(false),
            errors: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
            power_losses: Mutex::default(),
            served: Mutex::default(),
        })
    }

    /// The host where it is to run.
    pub fn active(&self) -> usize {
        self.active.load(Relaxed)
    }

    pub fn host(&self) -> &Host {
        &self.hosts[self.active()]
    }

    pub fn node(&self) -> &Node {
        &self.host().node
    }

    pub(crate) fn activate(&self, at: usize) {
        self.active.store(at, Relaxed);
    }

    /// From now on a drill decides what runs where, or not any more.
    pub(crate) fn drill(&self, on: bool) {
        self.drilled.store(on, Relaxed);
    }

    /// The disk will fail, by intention; or not any more.
    pub(crate) fn expect_errors(&self, on: bool) {
        self.errors.store(on, Relaxed);
    }

    pub(crate) fn expects_errors(&self) -> bool {
        self.errors.load(Relaxed)
    }

    /// Nothing happened there since, and it is to run there.
    pub(crate) fn is_left_alone(&self, at: usize, boot: u64) -> bool {
        let drilled = self.drilled.load(Relaxed);
        !drilled && self.active() == at && self.hosts[at].boots.load(Relaxed) == boot
    }

    /// How long flushes take on its hosts; what it was.
    pub fn set_blocking_time(&self, min_us: u64, max_us: u64) -> (u64, u64) {
        self.hosts[1].node.set_blocking_time(min_us, max_us);
        self.hosts[0].node.set_blocking_time(min_us, max_us)
    }

    /// Its addresses, that of a host first.
    /// What its hosts are called (`SimNet::resolve`).
    pub(crate) fn names(&self) -> Vec<HostNid> {
        let name = |addr| HostNid::Name { host: crate::net::name_of(addr), net: 0 };
        self.hosts.iter().map(|h| name(h.addr)).collect()
    }

    pub(crate) fn nids(&self, at: usize) -> Vec<Nid> {
        vec![nid(self.hosts[at].addr), nid(self.hosts[1 - at].addr)]
    }

    pub(crate) fn dir(&self) -> &'static str {
        match self.role {
            Role::Metadata => "/mdt",
            Role::Objects(_) if self.replaced.load(Relaxed) => "/ost-new",
            Role::Objects(_) => "/ost",
        }
    }

    fn target(&self) -> TargetId {
        match self.role {
            Role::Metadata => TargetId::mdt(0),
            Role::Objects(i) => TargetId::ost(i),
        }
    }

    /// The target is lost, and another one is formatted that is to take its place (`--replace`). It must not
    /// run.
    pub(crate) fn replace(&self) -> anyhow::Result<()> {
        self.hosts[0].node.boot();
        let first = !self.replaced.swap(true, Relaxed);
        assert!(first, "there is one folder for another target");
        self.format()
    }

    pub(crate) fn format(&self) -> anyhow::Result<()> {
        let replaced = self.replaced.load(Relaxed);
        let (w, dir) = (self.hosts[0].node.world(), self.dir());
        w.disk.mkdir(dir)?;
        let superblock = Superblock {
            fs_uuid: [0; 16],
            target_uuid: w.random_uuid(),
            fsname: FSNAME.into(),
            target: self.target(),
            with_mgt: matches!(self.role, Role::Metadata),
            epoch: 0,
            compat: 0,
            ro_compat: 0,
            incompat: if replaced { INCOMPAT_SUCCESSOR } else { 0 },
            checksum_type: store::format::CHECKSUM_CRC32C,
            block_size: 4096,
            first_time: true,
            replace: replaced,
            mgs_nids: Role::Metadata.addrs().map(|a| nid(a).into()).to_vec(),
            service_nids: self.nids(0).into_iter().map(Into::into).collect(),
            fail_nids: Vec::new(),
            params: Vec::new(),
            config: Vec::new(),
            key: Some(w.random_key()),
            server_key: None,
            domain: Vec::new(),
        };
        Db::create(&w, dir)?;
        match self.role {
            Role::Metadata => {
                let mgt = format!("{dir}/mgt");
                w.disk.mkdir(&mgt)?;
                Db::create(&w, &mgt)?;
            }
            Role::Objects(_) => Objects::create(&w, dir)?,
        }
        superblock.write(&w, dir)?;
        store::mmp::format(&w, dir)?;
        w.disk.sync_dir(dir)?;
        Ok(w.disk.sync_dir("/")?)
    }

    /// As nacred does: waits until nobody else can have the target, takes it, recovers and serves.
    pub(crate) async fn start(
        self: &Arc<Self>,
        at: usize,
        w: World,
        ack_durable: bool,
        (request_memory, request_places): (Option<usize>, Option<u64>),
    ) -> anyhow::Result<Running> {
        let (dir, addr) = (self.dir(), self.hosts[at].addr);
        let pause = Arc::<DiskPause>::default();
        let disk = Arc::new(GatedDisk::new(w.disk.clone(), pause.clone()));
        let w = World { disk, ..w };
        let held = Superblock::lock(&w, dir)?;
        let heartbeat = Heartbeat::take(&w, dir, Who::holding(&w, &held), Times::default()).await?;
        let lease = heartbeat.lease();
        let mut label = Superblock::read(&w, dir)?;
        label.epoch += 1;
        label.write(&w, dir)?;
        let epoch = label.epoch;
        let open = |dir: String| {
            let (world, options) = (w.clone(), db_options(lease.clone()));
            w.blocking(move || Db::open(&world, &dir, epoch, options))
        };
        let server = Server::new(w.clone(), "sim".into());
        server.set_abort_on_panic(false);
        if let Some(bytes) = request_memory {
            server.inbound().set_max_bytes(bytes);
        }
        let listener = w.net.listen(SocketAddr::new(addr, PORT)).await?;
        let running = match self.role {
            Role::Metadata => {
                let mgs_db = open(format!("{dir}/mgt")).await?;
                let peers = Peers::new();
                let mgs = Mgs::open(&w, mgs_db.clone(), peers.clone())?;
                server.add(mgs.clone(), peers);
                let db = open(dir.into()).await?;
                let peers = Peers::new();
                request_places.into_iter().for_each(|n| peers.nrs().set_places(n));
                let cfg = MdtConfig {
                    fsname: FSNAME.into(),
                    index: 0,
                    dir: dir.into(),
                    port: PORT,
                    bind: Some(addr),
                    networks: Default::default(),
                };
                let mdt = Mdt::open(w.clone(), db.clone(), peers.clone(), cfg)?;
                let set = mdt.set_params("mdt.*.ack", if ack_durable { "durable" } else { "exec" });
                set.await.map_err(|e| anyhow::anyhow!("ack cannot be set: {e}"))?;
                label.server_key.iter().for_each(|k| mdt.set_server_key(*k));
                // As nacred does: a target that comes back knows the others at once.
                if !label.config.is_empty() {
                    mdt.set_config(postcard::from_bytes(&label.config)?);
                }
                server.add(mdt.clone(), peers);
                let (mdt, mgs_db) = (Some(mdt), Some(mgs_db));
                Running {
                    server,
                    mdt,
                    ost: None,
                    db,
                    mgs_db,
                    mgs: Some(mgs),
                    objects: None,
                    pause,
                    _heartbeat: heartbeat,
                    _lock: held,
                }
            }
            Role::Objects(index) => {
                let db = open(dir.into()).await?;
                let d = db.clone();
                let objects = w.blocking(move || Objects::open(d)).await?;
                let peers = Peers::new();
                request_places.into_iter().for_each(|n| peers.nrs().set_places(n));
                let successor = label.incompat & INCOMPAT_SUCCESSOR != 0;
                let birth = Birth { mark: model::TargetMark::of(&label.target_uuid), successor };
                let cfg =
                    OstConfig { fsname: FSNAME.into(), index, dir: dir.into(), birth, book: Arc::default() };
                let ost = Ost::open(&w, db.clone(), objects.clone(), peers.clone(), cfg)?;
                let set = ost.set_params("obdfilter.*.ack", if ack_durable { "durable" } else { "exec" });
                set.map_err(|e| anyhow::anyhow!("ack cannot be set: {e}"))?;
                label.server_key.iter().for_each(|k| ost.set_server_key(*k));
                server.add(ost.clone(), peers);
                Running {
                    server,
                    mdt: None,
                    ost: Some(ost),
                    db,
                    mgs_db: None,
                    mgs: None,
                    objects: Some(objects),
                    pause,
                    _heartbeat: heartbeat,
                    _lock: held,
                }
            }
        };
        w.spawn("accept", running.server.run(listener));
        let link = Link { world: w.clone(), node: self.clone(), at, label, db: running.db.clone() };
        w.spawn("register", register(link, running.mdt.clone(), running.ost.clone()));
        Ok(running)
    }
}

/// What the session with the MGS says: the configuration may be new.
struct Hooks(Notify, (Claimant, Key));

impl ImportHooks for Hooks {
    fn keys(&self) -> Vec<(Claimant, Key)> {
        vec![self.1]
    }

    fn notify(&self, n: Notice) {
        if matches!(n, Notice::ConfigChanged { .. }) {
            self.0.notify_one();
        }
    }

    fn state(&self, s: ImportState) {
        if s == ImportState::Full {
            self.0.notify_one();
        }
    }
}

/// Registers the target and follows the configuration, as nacred does.
async fn register(link: Link, mdt: Option<Arc<Mdt>>, ost: Option<Arc<Ost>>) {
    let Link { world: w, node, at, mut label, db } = link;
    // Folders of before there were keys get one at their next start.
    let key = *label.key.get_or_insert_with(|| w.random_key());
    let hooks = Arc::new(Hooks(Notify::new(), (Claimant::Target(label.target_uuid), key)));
    let cfg = ImportConfig {
        target: TargetId::MGT,
        fsname: FSNAME.into(),
        nids: match label.with_mgt {
            true => vec![nid(node.hosts[at].addr)],
            false => label.mgs_nids.iter().filter_map(HostNid::address).collect(),
        },
        port: PORT,
        bind: Some(node.hosts[at].addr),
        networks: Default::default(),
        client_uuid: w.random_uuid(),
        client_name: "server".into(),
        slots: 4,
        hooks: hooks.clone(),
        adaptive: Arc::default(),
    };
    let import = Import::new(w.clone(), cfg);
    let mut registered = false;
    loop {
        let config = if registered {
            let msg = Config { fsname: FSNAME.into() };
            import.call(RequestContext::default(), msg, Bytes::new()).await.map(|r| r.reply)
        } else {
            let msg = Register {
                fsname: FSNAME.into(),
                target: label.target,
                fs_uuid: label.fs_uuid,
                target_uuid: label.target_uuid,
                nids: node.nids(at),
                epoch: label.epoch,
                first_time: label.first_time,
                replace: label.replace,
                params: Vec::new(),
            };
            let mut done = import.call(RequestContext::default(), msg.clone(), Bytes::new()).await;
            if let Err(Errno::ENOKEY) = done {
                let extra = vec![(EXTRA_TARGET_KEY, key.to_vec())];
                let ctx = RequestContext { extra, ..RequestContext::default() };
                done = import.call(ctx, msg, Bytes::new()).await;
            }
            done.map(|mut r| {
                label.fs_uuid = r.reply.fs_uuid;
                label.first_time = false;
                label.replace = false;
                label.server_key = extra_key(&r.reply.config.extra, EXTRA_SERVER_KEY).or(label.server_key);
                r.reply.config.extra.retain(|(tag, _)| *tag != EXTRA_SERVER_KEY);
                if let Some(k) = label.server_key {
                    mdt.iter().for_each(|m| m.set_server_key(k));
                    ost.iter().for_each(|o| o.set_server_key(k));
                }
                r.reply.config
            })
        };
        match config {
            Ok(c) => {
                let raw = postcard::to_stdvec(&c).expect("plain data encodes");
                let new = std::mem::replace(&mut label.config, raw.clone()) != raw;
                if (new || !registered) && remember(&w, node.dir(), &label, &db).is_err() {
                    return;
                }
                registered = true;
                if let Some(o) = &ost {
                    o.set_maintenance(Maintenance::of(&c.params, FSNAME), Some(c.version));
                }
                if let Some(m) = &mdt {
                    m.set_config(c);
                }
                hooks.0.notified().await;
            }
            Err(_) => w.sleep(Duration::from_secs(1)).await,
        }
    }
}
