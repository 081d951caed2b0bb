//! A file system in this process: real sessions over loopback sockets, real services, disks in memory that
//! can lose their process (`kill`).

use client::{Call, Fs, MountOptions};
use model::{Cred, Errno, Nid, TargetId, TargetMark, Timestamp};
use oss::{Birth, Ost, OstConfig};
use rpc::{Import, ImportConfig, ImportHooks, Peers, Server, Service};
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::object::Objects;
use store::{Db, DbOptions};
use wire::msg::config::ConfigReply;
use wire::msg::register::{EXTRA_TARGET_KEY, Register};
use wire::proof::{Claimant, Key};
use wire::{Message, RequestContext};
use world::World;
use world::mem::{FaultPlan, MemDisk};
use world::real::Runtime;
use world::sync::oneshot;

pub const O_RDWR: u32 = 2;
pub const O_CREAT: u32 = 0o100;
pub const O_EXCL: u32 = 0o200;
pub const O_TRUNC: u32 = 0o1000;

const FSNAME: &str = "demo";
const DIR: &str = "/t";
const PATIENCE_SECS: u64 = 30;

pub fn call() -> Call {
    Call { cred: Cred::root(), pid: 1, ..Call::default() }
}

pub fn user(uid: u32) -> Call {
    Call { cred: Cred::new(uid, uid), pid: 1, ..Call::default() }
}

pub fn at(sec: i64) -> Timestamp {
    Timestamp { sec, nsec: 5 }
}

/// Of the servers of the file system, as an MGS would give it.
const SERVER_KEY: Key = [3; 32];

/// A target that proves itself to the MGS.
struct Keys([u8; 16]);

impl Keys {
    fn key(&self) -> Key {
        [self.0[0]; 32]
    }
}

impl ImportHooks for Keys {
    fn keys(&self) -> Vec<(Claimant, Key)> {
        vec![(Claimant::Target(self.0), self.key())]
    }
}

enum Role {
    Mgs(Arc<mgs::Mgs>),
    Mdt(Arc<mds::Mdt>),
    Ost(Arc<Ost>),
}

struct Running {
    server: Arc<Server>,
    role: Role,
    ended: oneshot::Receiver<()>,
}

/// One server node with one target.
struct Node {
    target: TargetId,
    addr: IpAddr,
    disk: Mutex<MemDisk>,
    epoch: AtomicU32,
    uuid: Mutex<[u8; 16]>,
    /// It took the place of a lost target.
    successor: AtomicBool,
    /// What registering brought, as a server keeps it on disk.
    config: Mutex<Option<ConfigReply>>,
    running: Mutex<Option<Running>>,
}

/// Clusters of one process.
const CLUSTERS_MAX: u32 = 1 << 8;
/// Processes beside each other, by their ids.
const PROCESSES: u32 = 150;
static STARTED: AtomicU32 = AtomicU32::new(0);

pub struct Cluster {
    pub world: World,
    rt: Runtime,
    /// Each cluster has its own block of addresses. Not a random one: a run of the tests in 200 had two the
    /// same.
    block: u32,
    port: u16,
    nodes: Vec<Node>,
}

impl Cluster {
    /// MGS at .1, MDT at .2, OSTs from .3 on.
    pub fn start(osts: u16) -> Cluster {
        let (world, rt) = world::real::start(2).unwrap();
        let nth = STARTED.fetch_add(1, Ordering::Relaxed);
        assert!(nth < CLUSTERS_MAX, "addresses for {CLUSTERS_MAX} clusters a process");
        let block = std::process::id() % PROCESSES * CLUSTERS_MAX + nth;
        let mut c = Cluster { world, rt, block, port: 20_988, nodes: Vec::new() };
        let targets = [TargetId::MGT, TargetId::mdt(0)].into_iter().chain((0..osts).map(TargetId::ost));
        for (i, target) in targets.enumerate() {
            let disk = Mutex::new(MemDisk::new());
            let uuid = Mutex::new(c.world.random_uuid());
            let addr = c.nid(i as u8 + 1).addr;
            let (epoch, config, running) = (AtomicU32::new(0), Mutex::default(), Mutex::default());
            let successor = AtomicBool::new(false);
            c.nodes.push(Node { target, addr, disk, epoch, uuid, successor, config, running });
        }
        c.run(async {
            c.start_node(0).await;
            for i in 2..c.nodes.len() {
                c.start_node(i).await;
            }
            c.start_node(1).await;
        });
        c
    }

    pub fn nid(&self, last: u8) -> Nid {
        Nid {
            addr: IpAddr::V4(Ipv4Addr::new(127, 100 + (self.block >> 8) as u8, self.block as u8, last)),
            net: 0,
        }
    }

    pub fn run<T>(&self, f: impl Future<Output = T>) -> T {
        // One loop is compiled for each type of result, not for each test.
        let f: Pin<&mut dyn Future<Output = T>> = pin!(f);
        self.rt.block_on(f)
    }

    /// The result of a task of its own.
    pub fn spawn<T: Send + 'static>(
        &self,
        f: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (tx, rx) = oneshot::channel();
        self.world.spawn("test", async move {
            let _ = tx.send(f.await);
        });
        rx
    }

    pub async fn within<T>(&self, f: impl Future<Output = T> + Send) -> T {
        self.within_secs(PATIENCE_SECS, f).await
    }

    pub async fn within_secs<T>(&self, secs: u64, f: impl Future<Output = T> + Send) -> T {
        self.world.timeout(Duration::from_secs(secs), f).await.expect("it takes too long")
    }

    /// Waits for a condition.
    pub async fn until<F: Future<Output = bool> + Send>(&self, what: &str, f: impl Fn() -> F) {
        let end = self.world.now().plus(Duration::from_secs(PATIENCE_SECS));
        while !f().await {
            assert!(self.world.now() < end, "waited in vain: {what}");
            self.world.sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn options(&self) -> MountOptions {
        MountOptions {
            mgs_nids: vec![self.nid(1).into()],
            fsname: FSNAME.into(),
            subdir: String::new(),
            port: self.port,
            bind: None,
            networks: Default::default(),
            client_name: "test".into(),
            soft_timeout_ms: None,
            read_only: false,
        }
    }

    pub async fn mount(&self) -> Arc<Fs> {
        Fs::mount(self.world.clone(), self.options()).await.unwrap()
    }

    async fn start_node(&self, i: usize) {
        let n = &self.nodes[i];
        let epoch = n.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        let w = &World { disk: Arc::new(n.disk.lock().unwrap().clone()), ..self.world.clone() };
        let fresh = epoch == 1;
        if fresh {
            w.disk.mkdir(DIR).unwrap();
            Db::create(w, DIR).unwrap();
            if n.target.kind == model::TargetKind::Ost {
                Objects::create(w, DIR).unwrap();
            }
        }
        let db = Db::open(w, DIR, epoch, DbOptions::default()).unwrap();
        let peers = Peers::new();
        let (service, role): (Arc<dyn Service>, Role) = match n.target.kind {
            model::TargetKind::Mgt => {
                let m = mgs::Mgs::open(w, db, peers.clone()).unwrap();
                (m.clone(), Role::Mgs(m))
            }
            model::TargetKind::Mdt => {
                let cfg = mds::MdtConfig {
                    fsname: FSNAME.into(),
                    index: 0,
                    dir: DIR.into(),
                    port: self.port,
                    bind: Some(n.addr),
                    networks: Default::default(),
                };
                if n.successor.load(Ordering::Relaxed) {
                    mds::format_successor(w, &db).unwrap();
                }
                let m = mds::Mdt::open(w.clone(), db, peers.clone(), cfg).unwrap();
                m.set_server_key(SERVER_KEY);
                if let Some(config) = n.config.lock().unwrap().clone() {
                    m.set_config(config);
                }
                (m.clone(), Role::Mdt(m))
            }
            model::TargetKind::Ost => {
                let objects = Objects::open(db.clone()).unwrap();
                let mark = TargetMark::of(&n.uuid.lock().unwrap());
                let birth = Birth { mark, successor: n.successor.load(Ordering::Relaxed) };
                let cfg = OstConfig {
                    fsname: FSNAME.into(),
                    index: n.target.index,
                    dir: DIR.into(),
                    birth,
                    book: Arc::default(),
                };
                let o = Ost::open(w, db, objects, peers.clone(), cfg).unwrap();
                o.set_server_key(SERVER_KEY);
                (o.clone(), Role::Ost(o))
            }
        };
        let server = Server::new(w.clone(), format!("{}", n.target));
        server.set_ping_interval(1000);
        // Whoever runs the tests may have ordinary ports only.
        server.set_secure(false);
        server.add(service, peers);
        let listener = w.net.listen(SocketAddr::new(n.addr, self.port)).await.unwrap();
        let (tx, ended) = oneshot::channel();
        let run = server.run(listener);
        w.spawn("test-server", async move {
            run.await;
            let _ = tx.send(());
        });
        if n.target != TargetId::MGT {
            let config = self.register(n, epoch, fresh).await;
            if let Role::Mdt(m) = &role {
                m.set_config(config.clone());
            }
            *n.config.lock().unwrap() = Some(config);
        }
        *n.running.lock().unwrap() = Some(Running { server, role, ended });
    }

    /// One message to the MGS.
    async fn tell_mgs<M: Message>(&self, msg: M, keys: Keys, ctx: RequestContext) -> M::Reply {
        let import = Import::new(
            self.world.clone(),
            ImportConfig {
                target: TargetId::MGT,
                fsname: FSNAME.into(),
                nids: vec![self.nid(1)],
                port: self.port,
                bind: None,
                networks: Default::default(),
                client_uuid: self.world.random_uuid(),
                client_name: "test".into(),
                slots: 4,
                hooks: Arc::new(keys),
                adaptive: Arc::default(),
            },
        );
        let r = import.call(ctx, msg, bytes::Bytes::new()).await.unwrap();
        import.disconnect().await;
        r.reply
    }

    fn mgs(&self) -> Arc<mgs::Mgs> {
        let mgs = self.nodes.iter().find_map(|n| match &n.running.lock().unwrap().as_ref()?.role {
            Role::Mgs(m) => Some(m.clone()),
            _ => None,
        });
        mgs.expect("it runs")
    }

    /// `lctl set_param -P`.
    pub async fn set_permanent(&self, name: &str, value: &str) {
        self.mgs().set_permanent(name, value, false).await.unwrap();
    }

    /// `lctl pool_new` and its sisters; the metadata server knows of it when this returns.
    pub async fn change_pool(&self, pool: &str, verb: mgs::pools::PoolVerb) {
        let order = mgs::pools::PoolOrder { fsname: FSNAME.into(), pool: pool.into(), verb };
        self.mgs().change_pool(&order).await.unwrap();
        let config = self.mgs().config(FSNAME).unwrap();
        let mdt = &self.nodes[1];
        *mdt.config.lock().unwrap() = Some(config.clone());
        match mdt.running.lock().unwrap().as_ref().map(|r| &r.role) {
            Some(Role::Mdt(m)) => m.set_config(config),
            _ => panic!("the second node has the MDT"),
        }
    }

    /// `lctl set_param` on the host of the metadata server.
    pub async fn set_mdt_param(&self, name: &str, value: &str) {
        self.try_mdt_param(name, value).await.unwrap();
    }

    /// As [`Cluster::set_mdt_param`]; says why not.
    pub async fn try_mdt_param(&self, name: &str, value: &str) -> Result<(), Errno> {
        self.mdt().set_params(name, value).await.map(drop)
    }

    /// The metadata server.
    pub fn mdt(&self) -> Arc<mds::Mdt> {
        let mdt = self.nodes.iter().find_map(|n| match &n.running.lock().unwrap().as_ref()?.role {
            Role::Mdt(m) => Some(m.clone()),
            _ => None,
        });
        mdt.expect("it runs")
    }

    /// `lctl set_param` on the hosts of the object servers.
    pub fn set_ost_params(&self, name: &str, value: &str) {
        for n in &self.nodes {
            if let Some(Role::Ost(o)) = n.running.lock().unwrap().as_ref().map(|r| &r.role) {
                o.set_params(name, value).unwrap();
            }
        }
    }

    /// `lctl get_param` on the hosts of the object servers.
    pub fn ost_params(&self, pattern: &str) -> Vec<(String, String)> {
        let running = self.nodes.iter().map(|n| n.running.lock().unwrap());
        let of = |r: std::sync::MutexGuard<'_, Option<Running>>| match r.as_ref().map(|r| &r.role) {
            Some(Role::Ost(o)) => o.get_params(pattern),
            _ => Vec::new(),
        };
        running.flat_map(of).collect()
    }

    async fn register(&self, n: &Node, epoch: u32, first_time: bool) -> ConfigReply {
        let msg = Register {
            fsname: FSNAME.into(),
            target: n.target,
            fs_uuid: [0; 16],
            target_uuid: *n.uuid.lock().unwrap(),
            nids: vec![Nid { addr: n.addr, net: 0 }],
            epoch,
            first_time,
            replace: first_time && n.successor.load(Ordering::Relaxed),
            params: Vec::new(),
        };
        if msg.replace {
            // `lctl registration TARGET replace` on the host of the MGS.
            let mgs = self.mgs();
            mgs.administer(&n.target.label(FSNAME), &mgs::registration::Order::Open).await.unwrap();
        }
        let keys = Keys(*n.uuid.lock().unwrap());
        let extra = vec![(EXTRA_TARGET_KEY, keys.key().to_vec())];
        self.tell_mgs(msg, keys, RequestContext { extra, ..RequestContext::default() }).await.config
    }

    /// As kill -9: connections and memory are gone, what was written is there. On a disk of its own:
    /// background work of the old life, a checkpoint say, cannot be stopped at once, and goes on with the old
    /// disk.
    async fn stop_node(&self, i: usize) {
        let n = &self.nodes[i];
        let r = n.running.lock().unwrap().take().expect("it runs");
        {
            let mut disk = n.disk.lock().unwrap();
            disk.kill();
            *disk = disk.fork();
        }
        r.server.remove(n.target);
        r.server.stop().await;
        if let Role::Mdt(m) = &r.role {
            m.stop().await;
        }
        let _ = r.ended.await;
    }

    /// From now on the disk of an object server takes so many bytes for objects more (`None`: any number),
    /// without knowing that before: room that was promised may turn out not to be there.
    pub fn bound_ost_disk(&self, index: u16, bytes: Option<u64>) {
        let disk = self.nodes[index as usize + 2].disk.lock().unwrap();
        let capacity_bytes = bytes.map(|b| disk.used_bytes() + b);
        let only_below = Some(format!("{DIR}/objects"));
        disk.set_faults(FaultPlan { capacity_bytes, thin: true, only_below, ..FaultPlan::default() });
    }

    /// From now on the disk of an object server has so many bytes more than it has taken, and says so.
    pub fn size_ost_disk(&self, index: u16, bytes: u64) {
        let disk = self.nodes[index as usize + 2].disk.lock().unwrap();
        let capacity_bytes = Some(disk.used_bytes() + bytes);
        disk.set_faults(FaultPlan { capacity_bytes, ..FaultPlan::default() });
    }

    pub async fn stop_mgs(&self) {
        self.stop_node(0).await;
    }

    pub async fn start_mgs(&self) {
        self.start_node(0).await;
    }

    pub async fn stop_mdt(&self) {
        self.stop_node(1).await;
    }

    pub async fn start_mdt(&self) {
        self.start_node(1).await;
    }

    pub async fn stop_ost(&self, index: u16) {
        self.stop_node(index as usize + 2).await;
    }

    /// Stops an OST, lets `f` do to its records what nobody should, and starts it again.
    pub async fn harm_ost<F>(&self, index: u16, f: impl FnOnce(Arc<Db>, Arc<Objects>) -> F)
    where
        F: Future<Output = store::Txn>,
    {
        self.stop_ost(index).await;
        let n = &self.nodes[index as usize + 2];
        let mut w = self.world.clone();
        w.disk = Arc::new(n.disk.lock().unwrap().clone());
        let epoch = n.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        let db = Db::open(&w, DIR, epoch, store::DbOptions::default()).unwrap();
        let objects = Objects::open(db.clone()).unwrap();
        let txn = f(db.clone(), objects).await;
        let lsn = db.submit(txn).unwrap();
        db.durable(lsn).await.unwrap();
        db.close().await.unwrap();
        self.start_ost(index).await;
    }

    /// The OST is lost with its disk, and another one made in its place.
    pub async fn replace_ost(&self, index: u16) {
        let n = &self.nodes[index as usize + 2];
        self.replace_node(index as usize + 2).await;
        // The MDT's server would be told by the MGS.
        let ask = wire::msg::config::Config { fsname: FSNAME.into() };
        let keys = Keys(*n.uuid.lock().unwrap());
        let config = self.tell_mgs(ask, keys, RequestContext::default()).await;
        if let Some(Role::Mdt(m)) = self.nodes[1].running.lock().unwrap().as_ref().map(|r| &r.role) {
            m.set_config(config);
        }
    }

    /// The MDT is lost with its disk, and another one made in its place.
    pub async fn replace_mdt(&self) {
        self.replace_node(1).await;
    }

    async fn replace_node(&self, i: usize) {
        let n = &self.nodes[i];
        self.stop_node(i).await;
        *n.disk.lock().unwrap() = MemDisk::new();
        *n.uuid.lock().unwrap() = self.world.random_uuid();
        *n.config.lock().unwrap() = None;
        n.successor.store(true, Ordering::Relaxed);
        n.epoch.store(0, Ordering::Relaxed);
        self.start_node(i).await;
    }

    pub async fn start_ost(&self, index: u16) {
        self.start_node(index as usize + 2).await;
    }
}
