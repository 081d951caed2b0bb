//! A file system of the real crates on simulated nodes: MGS and MDT on one, each OST on its own, and mounts.

use crate::executor::{Handle, lock};
use crate::losses::Known;
use crate::{Node, Sim};
use ::world::mem::CrashMode;
use ::world::sync::{Notify, watch};
use ::world::{World, future};
use bytes::Bytes;
use client::{Fs, MountOptions};
use mds::{Mdt, MdtConfig};
use mgs::Mgs;
use model::{Nid, TargetId};
use oss::{Ost, OstConfig};
use rpc::{Import, ImportConfig, ImportHooks, ImportState, Peers, Server};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::format::{Superblock, TargetLock};
use store::object::Objects;
use store::{Db, DbOptions};
use wire::RequestContext;
use wire::msg::config::Config;
use wire::msg::notify::Notify as Notice;
use wire::msg::register::Register;

pub const FSNAME: &str = "sim";
const PORT: u16 = model::limits::PORT;
const MOUNT_ATTEMPTS: usize = 40;

/// What one server node serves.
#[derive(Clone, Debug)]
enum Role {
    /// MGT and MDT0000, as `--mgs --mdt` makes them.
    Metadata,
    Objects(u16),
}

/// A server node and what runs on it.
pub struct ServerNode {
    pub node: Node,
    role: Role,
    addr: IpAddr,
    running: Mutex<Option<Running>>,
    /// Counts boots, so that a boot that a crash overtook leaves nothing behind.
    boots: AtomicU64,
    /// When it lost power.
    pub power_losses: Mutex<Vec<u64>>,
}

struct Running {
    server: Arc<Server>,
    mdt: Option<Arc<Mdt>>,
    ost: Option<Arc<Ost>>,
    db: Arc<Db>,
    mgs_db: Option<Arc<Db>>,
    objects: Option<Arc<Objects>>,
    _lock: TargetLock,
}

/// A mount on a client node.
pub struct Mount {
    pub node: Node,
    addr: IpAddr,
    fs: Mutex<Option<Arc<Fs>>>,
    /// Grows when the client dies; odd while it is away.
    pub life: watch::Sender<u64>,
    /// When lives ended, and what they knew to be durable.
    pub graves: Mutex<BTreeMap<u64, (u64, Known)>>,
}

pub struct Cluster {
    pub sim: Handle,
    pub servers: Vec<Arc<ServerNode>>,
    pub mounts: Vec<Arc<Mount>>,
    /// What must never happen: a target that does not start.
    pub failures: Arc<Mutex<Vec<String>>>,
    /// Targets answer when changes are durable.
    pub ack_durable: bool,
}

fn nid(addr: IpAddr) -> Nid {
    Nid { addr, net: 0 }
}

fn mgs_addr() -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 1).into()
}

/// Small, so that segments change and checkpoints happen within a run.
fn db_options() -> DbOptions {
    DbOptions {
        segment_bytes: 256 << 10,
        checkpoint_txns: 300,
        checkpoint_bytes: 256 << 10,
        table_cache_bytes: 1 << 20,
        ..DbOptions::default()
    }
}

impl Cluster {
    /// Nodes with formatted targets; nothing runs yet.
    pub fn new(sim: &Sim, osts: u16, mounts: u8, ack_durable: bool) -> Cluster {
        let mut servers = vec![server(sim, "mds", mgs_addr(), Role::Metadata)];
        for i in 0..osts {
            servers.push(server(sim, "oss", Ipv4Addr::new(10, 0, 1, i as u8 + 1).into(), Role::Objects(i)));
        }
        let mounts = (0..mounts)
            .map(|i| {
                let addr = Ipv4Addr::new(10, 0, 2, i + 1).into();
                let node = sim.add_node("client", &[addr]);
                Arc::new(Mount {
                    node,
                    addr,
                    fs: Mutex::new(None),
                    life: watch::Sender::new(1),
                    graves: Mutex::default(),
                })
            })
            .collect();
        Cluster { sim: sim.handle(), servers, mounts, failures: Arc::default(), ack_durable }
    }

    /// Makes the targets' folders, as mkfs.nacre does.
    pub fn format(&self) -> anyhow::Result<()> {
        for s in &self.servers {
            s.format()?;
        }
        Ok(())
    }

    pub fn boot_all(&self) {
        for i in 0..self.servers.len() {
            self.boot(i);
        }
    }

    /// Starts a server node, in the background.
    pub fn boot(&self, i: usize) {
        let s = self.servers[i].clone();
        s.node.boot();
        let (w, failures, ack) = (s.node.world(), self.failures.clone(), self.ack_durable);
        let boot = s.boots.fetch_add(1, Relaxed) + 1;
        w.clone().spawn("boot", async move {
            match s.start(w, ack).await {
                Ok(r) if s.boots.load(Relaxed) == boot => *lock(&s.running) = Some(r),
                Ok(_) => {}
                Err(e) => lock(&failures).push(format!("{:?} does not start: {e:#}", s.role)),
            }
        });
    }

    /// Loss of power (`Some`) or a killed process.
    pub fn crash(&self, i: usize, how: Option<CrashMode>) {
        let s = &self.servers[i];
        s.boots.fetch_add(1, Relaxed);
        match how {
            Some(mode) => {
                lock(&s.power_losses).push(self.sim.now());
                s.node.crash(mode);
            }
            None => s.node.kill(),
        }
        let gone = lock(&s.running).take();
        drop(gone);
    }

    pub fn is_up(&self, i: usize) -> bool {
        lock(&self.servers[i].running).is_some()
    }

    /// Why a running target stopped by itself.
    pub fn stopped(&self) -> Option<String> {
        self.servers.iter().find_map(|s| {
            let r = lock(&s.running);
            let r = r.as_ref()?;
            r.db.stopped()
                .or_else(|| r.mgs_db.as_ref()?.stopped())
                .map(|why| format!("{:?} stopped: {why}", s.role))
        })
    }

    pub fn mdt_db(&self) -> Option<Arc<Db>> {
        lock(&self.servers[0].running).as_ref().map(|r| r.db.clone())
    }

    pub fn mdt(&self) -> Option<Arc<Mdt>> {
        lock(&self.servers[0].running).as_ref()?.mdt.clone()
    }

    pub fn objects(&self, ost: usize) -> Option<Arc<Objects>> {
        lock(&self.servers[ost + 1].running).as_ref()?.objects.clone()
    }

    /// Mounts on client `i`, as often as it takes.
    pub async fn mount(&self, i: usize) -> anyhow::Result<()> {
        let m = &self.mounts[i];
        m.node.boot();
        let mut why = String::new();
        for _ in 0..MOUNT_ATTEMPTS {
            let opt = MountOptions {
                mgs_nids: vec![nid(mgs_addr())],
                fsname: FSNAME.into(),
                subdir: String::new(),
                port: PORT,
                bind: Some(m.addr),
                client_name: format!("sim-client-{i}"),
                soft_timeout_ms: None,
                read_only: false,
            };
            match Fs::mount(m.node.world(), opt).await {
                Ok(fs) => {
                    *lock(&m.fs) = Some(fs);
                    m.life.send_modify(|l| *l += 1);
                    return Ok(());
                }
                Err(e) => why = e.to_string(),
            }
            self.sim.sleep(Duration::from_secs(1)).await;
        }
        anyhow::bail!("client {i} cannot mount: {why}")
    }

    /// The client's machine dies.
    pub fn kill_client(&self, i: usize) {
        let m = &self.mounts[i];
        m.node.kill();
        let fs = lock(&m.fs).take();
        if let Some(fs) = &fs {
            lock(&m.graves).insert(*m.life.borrow(), (self.sim.now(), Known::of(fs)));
            self.check_replays(i, fs);
        }
        m.life.send_modify(|l| *l += 1);
        drop(fs);
    }

    /// Living clients have everything done again, to the same end.
    fn check_replays(&self, i: usize, fs: &Fs) {
        let n = fs.replay_failures();
        if n > 0 {
            lock(&self.failures)
                .push(format!("client {i} could not have {n} operations done again as they were"));
        }
    }

    /// [`Cluster::check_replays`] of all that live.
    pub fn check_all_replays(&self) {
        for (i, m) in self.mounts.iter().enumerate() {
            if let Some((fs, _)) = m.get() {
                self.check_replays(i, &fs);
            }
        }
    }

    pub async fn unmount_all(&self) {
        let all: Vec<Arc<Fs>> = self.mounts.iter().filter_map(|m| lock(&m.fs).take()).collect();
        let byes = all.into_iter().map(|fs| Box::pin(fs.unmount()) as ::world::BoxFuture<()>).collect();
        future::join_all(byes).await;
    }
}

impl Mount {
    /// The mount and its life, if it is there.
    pub fn get(&self) -> Option<(Arc<Fs>, u64)> {
        let fs = lock(&self.fs).clone()?;
        Some((fs, *self.life.borrow()))
    }
}

fn server(sim: &Sim, name: &str, addr: IpAddr, role: Role) -> Arc<ServerNode> {
    let node = sim.add_node(name, &[addr]);
    Arc::new(ServerNode {
        node,
        role,
        addr,
        running: Mutex::new(None),
        boots: AtomicU64::new(0),
        power_losses: Mutex::default(),
    })
}

impl ServerNode {
    fn dir(&self) -> &'static str {
        match self.role {
            Role::Metadata => "/mdt",
            Role::Objects(_) => "/ost",
        }
    }

    fn target(&self) -> TargetId {
        match self.role {
            Role::Metadata => TargetId::mdt(0),
            Role::Objects(i) => TargetId::ost(i),
        }
    }

    fn format(&self) -> anyhow::Result<()> {
        let (w, dir) = (self.node.world(), self.dir());
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
            incompat: 0,
            checksum_type: store::format::CHECKSUM_CRC32C,
            block_size: 4096,
            first_time: true,
            replace: false,
            mgs_nids: vec![nid(mgs_addr())],
            service_nids: vec![nid(self.addr)],
            fail_nids: Vec::new(),
            params: Vec::new(),
            config: Vec::new(),
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
        w.disk.sync_dir(dir)?;
        Ok(w.disk.sync_dir("/")?)
    }

    async fn start(self: &Arc<Self>, w: World, ack_durable: bool) -> anyhow::Result<Running> {
        let dir = self.dir();
        let held = Superblock::lock(&w, dir)?;
        let mut label = Superblock::read(&w, dir)?;
        label.epoch += 1;
        label.write(&w, dir)?;
        let epoch = label.epoch;
        let open = |dir: String| {
            let world = w.clone();
            w.blocking(move || Db::open(&world, &dir, epoch, db_options()))
        };
        let server = Server::new(w.clone(), "sim".into());
        server.set_abort_on_panic(false);
        let listener = w.net.listen(SocketAddr::new(self.addr, PORT)).await?;
        let mut running = match self.role {
            Role::Metadata => {
                let mgs_db = open(format!("{dir}/mgt")).await?;
                let peers = Peers::new();
                server.add(Mgs::open(&w, mgs_db.clone(), peers.clone())?, peers);
                let db = open(dir.into()).await?;
                let peers = Peers::new();
                let cfg = MdtConfig {
                    fsname: FSNAME.into(),
                    index: 0,
                    dir: dir.into(),
                    port: PORT,
                    bind: Some(self.addr),
                };
                let mdt = Mdt::open(w.clone(), db.clone(), peers.clone(), cfg)?;
                let set = mdt.set_params("mdt.*.ack", if ack_durable { "durable" } else { "exec" });
                set.await.map_err(|e| anyhow::anyhow!("ack cannot be set: {e}"))?;
                // As nacred does: a target that comes back knows the others at once.
                if !label.config.is_empty() {
                    mdt.set_config(postcard::from_bytes(&label.config)?);
                }
                server.add(mdt.clone(), peers);
                let (mdt, mgs_db) = (Some(mdt), Some(mgs_db));
                Running { server, mdt, ost: None, db, mgs_db, objects: None, _lock: held }
            }
            Role::Objects(index) => {
                let db = open(dir.into()).await?;
                let (world, d) = (w.clone(), db.clone());
                let objects = w.blocking(move || Objects::open(&world, dir, d)).await?;
                let peers = Peers::new();
                let cfg = OstConfig { fsname: FSNAME.into(), index, dir: dir.into() };
                let ost = Ost::open(&w, db.clone(), objects.clone(), peers.clone(), cfg)?;
                let set = ost.set_params("obdfilter.*.ack", if ack_durable { "durable" } else { "exec" });
                set.map_err(|e| anyhow::anyhow!("ack cannot be set: {e}"))?;
                server.add(ost.clone(), peers);
                Running {
                    server,
                    mdt: None,
                    ost: Some(ost),
                    db,
                    mgs_db: None,
                    objects: Some(objects),
                    _lock: held,
                }
            }
        };
        w.spawn("accept", running.server.run(listener));
        w.spawn("register", register(w.clone(), self.clone(), label, running.mdt.clone()));
        running.ost = running.ost.take();
        Ok(running)
    }
}

/// What the session with the MGS says: the configuration may be new.
struct Hooks(Notify);

impl ImportHooks for Hooks {
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
async fn register(w: World, node: Arc<ServerNode>, mut label: Superblock, mdt: Option<Arc<Mdt>>) {
    let hooks = Arc::new(Hooks(Notify::new()));
    let cfg = ImportConfig {
        target: TargetId::MGT,
        fsname: FSNAME.into(),
        nids: label.mgs_nids.clone(),
        port: PORT,
        bind: Some(node.addr),
        client_uuid: w.random_uuid(),
        client_name: "server".into(),
        slots: 4,
        hooks: hooks.clone(),
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
                nids: label.service_nids.clone(),
                epoch: label.epoch,
                first_time: label.first_time,
                replace: false,
                params: Vec::new(),
            };
            import.call(RequestContext::default(), msg, Bytes::new()).await.map(|r| {
                label.fs_uuid = r.reply.fs_uuid;
                label.first_time = false;
                r.reply.config
            })
        };
        match config {
            Ok(c) => {
                let raw = postcard::to_stdvec(&c).expect("plain data encodes");
                let new = std::mem::replace(&mut label.config, raw.clone()) != raw;
                if (new || !registered) && label.write(&w, node.dir()).is_err() {
                    return;
                }
                registered = true;
                if let Some(m) = &mdt {
                    m.set_config(c);
                }
                hooks.0.notified().await;
            }
            Err(_) => w.sleep(Duration::from_secs(1)).await,
        }
    }
}
