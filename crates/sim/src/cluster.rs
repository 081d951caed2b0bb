//! A file system of the real crates on simulated nodes: MGS and MDT on one, each OST on its own, and mounts.
//! Each server has a second host that reaches its disk ([`crate::server`]).

use crate::executor::{Handle, lock};
use crate::known::{COMMIT_PATIENCE, DEAD_CLIENT_PATIENCE, Known};
use crate::server::{FSNAME, PORT, Role, ServerNode, WATCH, is_refusal, is_self_fenced};
use crate::{Node, Sim};
use ::world::future;
use ::world::mem::CrashMode;
use ::world::sync::watch;
use client::{Fs, MountOptions};
use mds::Mdt;
use mgs::Mgs;
use model::Fid;
use model::changelog::Record;
use model::mutex::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use store::Db;
use store::object::Objects;

const MOUNT_ATTEMPTS: usize = 150;
/// After a refused start the next attempt comes so much later.
const START_AGAIN: Duration = Duration::from_secs(2);

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
    /// A client that only drills use.
    pub guest: Arc<Mount>,
    /// What must never happen: a target that does not start.
    pub failures: Arc<Mutex<Vec<String>>>,
    /// Targets answer when changes are durable.
    pub ack_durable: bool,
    /// So many bytes of requests have room at a server; `None`: all that come.
    pub request_memory: Option<usize>,
    /// So few requests of a target's run before others are put in order.
    pub request_places: Option<u64>,
    /// Mounts, each in one of its lives, that wrote to a file.
    writers: Mutex<BTreeMap<Fid, BTreeSet<(usize, u64)>>>,
    /// Files that somebody began to move to several objects.
    striped: Mutex<BTreeSet<Fid>>,
    /// What a consumer of the changelog was shown, by index.
    pub(crate) shown: Mutex<BTreeMap<u64, Record>>,
}

/// Where server `i` belongs at present.
pub(crate) fn address(c: &Cluster, i: usize) -> IpAddr {
    c.servers[i].nids(c.servers[i].active())[0].addr
}

fn client_mount(sim: &Sim, i: u8) -> Arc<Mount> {
    let addr = Ipv4Addr::new(10, 0, 2, i + 1).into();
    let node = sim.add_node("client", &[addr]);
    Arc::new(Mount {
        node,
        addr,
        fs: Mutex::new(None),
        life: watch::Sender::new(1),
        graves: Mutex::default(),
    })
}

impl Cluster {
    /// Nodes with formatted targets; nothing runs yet.
    pub fn new(sim: &Sim, osts: u16, mounts: u8, ack_durable: bool) -> Cluster {
        let mut servers = vec![ServerNode::new(sim, Role::Metadata)];
        servers.extend((0..osts).map(|i| ServerNode::new(sim, Role::Objects(i))));
        let guest = mounts;
        let mounts = (0..mounts).map(|i| client_mount(sim, i)).collect();
        let guest = client_mount(sim, guest);
        Cluster {
            sim: sim.handle(),
            servers,
            mounts,
            guest,
            failures: Arc::default(),
            ack_durable,
            request_memory: None,
            request_places: None,
            writers: Mutex::default(),
            striped: Mutex::default(),
            shown: Mutex::default(),
        }
    }

    /// A mount begins to write to a file.
    pub fn writes(&self, file: Fid, mount: usize, life: u64) {
        lock(&self.writers).entry(file).or_default().insert((mount, life));
    }

    /// Somebody begins to move a file to several objects: a client's death may lose a part of what it wrote.
    pub fn stripes(&self, file: Fid) {
        lock(&self.striped).insert(file);
    }

    pub fn may_be_striped(&self, file: Fid) -> bool {
        lock(&self.striped).contains(&file)
    }

    /// Some client that wrote to the file died, and the metadata target lost power before it had committed
    /// that client's changes, or a little earlier, so that the client may not have had them done again.
    pub fn lost_with_a_writer(&self, file: Fid) -> bool {
        let lost = |(mount, life): &(usize, u64)| {
            let died = lock(&self.mounts[*mount].graves).get(life).map(|(at, _)| *at);
            let since = |died: u64| died.saturating_sub(DEAD_CLIENT_PATIENCE.as_nanos() as u64);
            died.is_some_and(|at| self.servers[0].lost_power_soon(since(at), at, COMMIT_PATIENCE))
        };
        lock(&self.writers).get(&file).is_some_and(|all| all.iter().any(lost))
    }

    /// Makes the targets' folders, as mkfs.nacre does.
    pub fn format(&self) -> anyhow::Result<()> {
        for s in &self.servers {
            s.format()?;
        }
        Ok(())
    }

    pub fn boot_all(self: &Arc<Self>) {
        for i in 0..self.servers.len() {
            self.boot(i);
        }
    }

    /// Starts a server on the host where it belongs at present, in the background.
    pub fn boot(self: &Arc<Self>, i: usize) {
        self.boot_at(i, self.servers[i].active());
    }

    /// Starts a server on one of its hosts, in the background.
    pub fn boot_at(self: &Arc<Self>, i: usize, at: usize) {
        let (c, s) = (self.clone(), self.servers[i].clone());
        let host = &s.hosts[at];
        host.node.boot();
        host.refused.store(false, Relaxed);
        host.starting.store(true, Relaxed);
        let boot = host.boots.fetch_add(1, Relaxed) + 1;
        let w = host.node.world();
        let driver = self.sim.driver().world();
        w.clone().spawn("boot", async move {
            let started = s.start(at, w, c.ack_durable, (c.request_memory, c.request_places)).await;
            let host = &s.hosts[at];
            if host.boots.load(Relaxed) != boot {
                return;
            }
            host.starting.store(false, Relaxed);
            match started {
                Ok(r) => {
                    *lock(&host.running) = Some(r);
                    c.check_owners(i);
                    driver.spawn("watch", c.watch(i, at, boot));
                }
                // Who slept while it started ends itself: somebody else may have come.
                Err(e) if is_refusal(&e) || host.node.has_slept() && is_self_fenced(&e) => {
                    c.sim.log(|| format!("{:?} on host {at} does not start: {e:#}", s.role));
                    c.sim.count(if is_refusal(&e) { "start_refused" } else { "self_fenced" });
                    host.refused.store(true, Relaxed);
                    driver.spawn("start again", c.clone().start_again(i, at, boot));
                }
                Err(e) => lock(&c.failures).push(format!("{:?} does not start: {e:#}", s.role)),
            }
        });
    }

    /// An engine that finds a server down starts it, unless a drill decides about that.
    async fn start_again(self: Arc<Self>, i: usize, at: usize, boot: u64) {
        self.servers[i].hosts[at].node.exit();
        self.sim.sleep(START_AGAIN).await;
        let s = &self.servers[i];
        if s.is_left_alone(at, boot) {
            self.boot_at(i, at);
        }
    }

    /// A server whose target stopped ends, as nacred does.
    async fn watch(self: Arc<Self>, i: usize, at: usize, boot: u64) {
        let (s, host) = (&self.servers[i], &self.servers[i].hosts[at]);
        loop {
            self.sim.sleep(WATCH).await;
            if host.boots.load(Relaxed) != boot {
                return;
            }
            if host.node.is_paused() {
                continue;
            }
            self.check_owners(i);
            let stopped = lock(&host.running).as_ref().and_then(|r| r.stopped());
            let Some(why) = stopped else {
                lock(&s.served).push(self.sim.now());
                continue;
            };
            self.sim.log(|| format!("{:?} on host {at} ends: {why}", s.role));
            if why.contains("heartbeat") || why.contains("taken over") {
                self.sim.count("self_fenced");
            } else if !s.expects_errors() {
                return lock(&self.failures).push(format!("{:?} stopped: {why}", s.role));
            }
            let boot = host.boots.fetch_add(1, Relaxed) + 1;
            // A drill starts another one.
            host.refused.store(true, Relaxed);
            host.node.exit();
            drop(lock(&host.running).take());
            return self.start_again(i, at, boot).await;
        }
    }

    /// At no time two hosts of a target are in a position to write to it.
    pub(crate) fn check_owners(&self, i: usize) {
        let s = &self.servers[i];
        if s.hosts.iter().filter(|h| h.owns()).count() > 1 {
            lock(&self.failures).push(format!("{:?} is served by two hosts", s.role));
        }
    }

    /// Loss of power (`Some`) or a killed process.
    pub fn crash(&self, i: usize, how: Option<CrashMode>) {
        self.crash_at(i, self.servers[i].active(), how);
    }

    /// The same, of one of the hosts.
    pub fn crash_at(&self, i: usize, at: usize, how: Option<CrashMode>) {
        let s = &self.servers[i];
        let host = &s.hosts[at];
        host.boots.fetch_add(1, Relaxed);
        host.starting.store(false, Relaxed);
        match how {
            Some(mode) => {
                lock(&s.power_losses).push(self.sim.now());
                host.node.crash(mode);
            }
            None => host.node.kill(),
        }
        let gone = lock(&host.running).take();
        drop(gone);
    }

    pub fn is_up(&self, i: usize) -> bool {
        lock(&self.servers[i].host().running).is_some()
    }

    /// Why a running target stopped by itself.
    pub fn stopped(&self) -> Option<String> {
        self.servers.iter().find_map(|s| {
            let why = lock(&s.host().running).as_ref()?.stopped()?;
            Some(format!("{:?} stopped: {why}", s.role))
        })
    }

    pub fn mdt_db(&self) -> Option<Arc<Db>> {
        lock(&self.servers[0].host().running).as_ref().map(|r| r.db.clone())
    }

    pub fn mdt(&self) -> Option<Arc<Mdt>> {
        lock(&self.servers[0].host().running).as_ref()?.mdt.clone()
    }

    pub fn mgs(&self) -> Option<Arc<Mgs>> {
        lock(&self.servers[0].host().running).as_ref()?.mgs.clone()
    }

    pub fn objects(&self, ost: usize) -> Option<Arc<Objects>> {
        lock(&self.servers[ost + 1].host().running).as_ref()?.objects.clone()
    }

    /// Mounts on client `i`, as often as it takes.
    pub async fn mount(&self, i: usize) -> anyhow::Result<()> {
        self.mount_on(&self.mounts[i], i).await
    }

    /// Mounts on that client.
    pub async fn mount_on(&self, m: &Mount, i: usize) -> anyhow::Result<()> {
        m.node.boot();
        let mut why = String::new();
        for _ in 0..MOUNT_ATTEMPTS {
            let opt = MountOptions {
                mgs_nids: self.servers[0].names(),
                fsname: FSNAME.into(),
                subdir: String::new(),
                port: PORT,
                bind: Some(m.addr),
                networks: Default::default(),
                client_name: format!("sim-client-{i}"),
                soft_timeout_ms: None,
                read_only: false,
            };
            match Fs::mount(m.node.world(), opt).await {
                Ok(fs) => {
                    client::Admin(&fs).set_own_addresses(vec![m.addr]);
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
        self.sim.count("client_crash");
        let fs = lock(&m.fs).take();
        if let Some(fs) = &fs {
            lock(&m.graves).insert(*m.life.borrow(), (self.sim.now(), Known::of(fs)));
            self.check_replays(i, fs);
        }
        m.life.send_modify(|l| *l += 1);
        drop(fs);
    }

    /// The same, of a client that only drills use.
    pub fn kill(&self, m: &Mount) {
        m.node.kill();
        drop(lock(&m.fs).take());
        m.life.send_modify(|l| *l += 1);
    }

    /// An unmount of its own.
    pub async fn leave(&self, m: &Mount) {
        let fs = lock(&m.fs).take();
        if let Some(fs) = fs {
            fs.unmount().await;
        }
        m.node.exit();
        m.life.send_modify(|l| *l += 1);
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
    /// Its NID, as operators write it.
    pub fn nid(&self) -> String {
        format!("{}@tcp", self.addr)
    }

    /// The mount and its life, if it is there.
    pub fn get(&self) -> Option<(Arc<Fs>, u64)> {
        let fs = lock(&self.fs).clone()?;
        Some((fs, *self.life.borrow()))
    }
}
