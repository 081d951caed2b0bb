//! Sessions under faults, in the small deterministic world of `testing`.

mod admission;
mod barred;
mod basics;
mod doubted;
mod fair;
mod faults;
mod identity;
mod inbound;
mod names;
mod probes;
mod recovery;
mod slow;
mod sockets;
mod told;

use crate::testing::Lab;
use crate::*;
use bytes::Bytes;
use model::mutex::{Mutex, MutexGuard};
use model::{Errno, Nid, TargetId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::msg::param::{GetParam, GetParamReply, SetParam};
use wire::msg::reclaim::{Reclaim, ReclaimReply};
use wire::proof::Key;
use wire::{Op, RequestContext, Sender};
use world::{BoxFuture, World};

pub const PORT: u16 = 988;
/// Of the servers of the file system.
pub const SERVER_KEY: Key = [0x5e; 32];

/// What survives a crash of the test's server.
#[derive(Default)]
pub struct Disk {
    /// How often each change was made.
    pub executed: BTreeMap<String, u32>,
    pub replies: BTreeMap<(ClientId, u16), StoredReply>,
    pub clients: BTreeMap<ClientId, Identity>,
    pub epoch: u32,
    pub transno: u64,
}

/// What the test looks at.
#[derive(Default)]
pub struct Seen {
    /// As they came to the service, and as they were executed: how long each takes is left to chance.
    pub started: Vec<u64>,
    pub order: Vec<(Op, String)>,
    pub running: usize,
    pub running_max: usize,
    pub departed: Vec<(ClientId, Departure)>,
    pub by_slot: BTreeSet<(ClientId, u16)>,
}

/// A target that counts changes: `SetParam` makes one, `GetParam` asks for it.
pub struct Counter {
    pub world: World,
    pub id: TargetId,
    pub fsname: String,
    pub epoch: u32,
    pub disk: Arc<Mutex<Disk>>,
    pub seen: Arc<Mutex<Seen>>,
    /// Longest time of a request.
    pub work_max: Duration,
    /// Each request takes so much longer.
    pub stall: Mutex<Duration>,
    pub awaited: Mutex<BTreeSet<ClientId>>,
    /// It lost its target.
    pub silent: AtomicBool,
    /// Roles count.
    pub strict: bool,
    /// Of the target.
    pub folder: Option<String>,
}

pub fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock()
}

impl Counter {
    /// Takes the next epoch, as a start of a target does.
    pub fn start(
        world: &World,
        id: TargetId,
        disk: &Arc<Mutex<Disk>>,
        seen: &Arc<Mutex<Seen>>,
    ) -> Arc<Counter> {
        let (epoch, awaited) = {
            let mut d = lock(disk);
            d.epoch += 1;
            (d.epoch, d.clients.keys().copied().collect::<BTreeSet<ClientId>>())
        };
        let recovers = id.kind == model::TargetKind::Mdt;
        Arc::new(Counter {
            world: world.clone(),
            id,
            fsname: "fs".into(),
            epoch,
            disk: disk.clone(),
            seen: seen.clone(),
            work_max: Duration::from_millis(3),
            silent: AtomicBool::new(false),
            strict: false,
            stall: Mutex::default(),
            folder: None,
            awaited: Mutex::new(if recovers { awaited } else { BTreeSet::new() }),
        })
    }

    async fn work(&self) {
        let us = self.work_max.as_micros() as u64;
        self.world.sleep(Duration::from_micros(self.world.random_u64() % (us + 1))).await;
    }

    fn execute(&self, r: &Incoming) -> Outgoing {
        let mut d = lock(&self.disk);
        let mut s = lock(&self.seen);
        match r.op {
            Op::SetParam => {
                let m: SetParam = wire::decode_message(&r.body).unwrap();
                s.order.push((r.op, m.name.clone()));
                let n = d.executed.entry(m.name.clone()).or_default();
                *n += 1;
                let reply = GetParamReply { values: vec![(m.name, n.to_string())] };
                d.transno += 1;
                let out = Outgoing::ok(&reply, u64::from(self.epoch) << 40 | d.transno);
                let stored =
                    StoredReply { xid: r.xid, transno: out.transno, status: 0, body: out.body.clone() };
                d.replies.insert((r.from.client, r.slot), stored);
                out
            }
            Op::GetParam => {
                let m: GetParam = wire::decode_message(&r.body).unwrap();
                s.order.push((r.op, m.pattern.clone()));
                if m.pattern == "missing" {
                    return Outgoing::err(Errno::ENOENT);
                }
                let n = d.executed.get(&m.pattern).copied().unwrap_or(0);
                Outgoing::ok(&GetParamReply { values: vec![(m.pattern, n.to_string())] }, 0)
            }
            Op::Reclaim => {
                let m: Reclaim = wire::decode_message(&r.body).unwrap();
                s.order.push((r.op, format!("{} opens, last {}", m.opens.len(), m.last)));
                if m.last {
                    lock(&self.awaited).remove(&r.from.client);
                }
                let lost_opens = m.opens.iter().map(|o| o.handle).filter(|h| *h == 13).collect();
                Outgoing::ok(&ReclaimReply { lost_opens, lost_locks: vec![] }, 0)
            }
            _ => Outgoing::err(Errno::EOPNOTSUPP),
        }
    }
}

impl Service for Counter {
    fn target(&self) -> TargetId {
        self.id
    }
    fn fsname(&self) -> String {
        self.fsname.clone()
    }
    fn epoch(&self) -> u32 {
        self.epoch
    }
    fn folder(&self) -> Option<String> {
        self.folder.clone()
    }
    fn knows(&self, client: ClientId) -> bool {
        lock(&self.disk).clients.contains_key(&client)
    }
    fn speaks(&self) -> bool {
        !self.silent.load(Ordering::Relaxed)
    }
    fn last_committed(&self) -> u64 {
        lock(&self.disk).transno
    }
    /// What the network's messages are tested with here is an administrator's.
    fn sender(&self, from: &Principal) -> Sender {
        match from.role(Some(&SERVER_KEY)) {
            Sender::Client if !self.strict => Sender::Administrator,
            s => s,
        }
    }
    fn replays(&self, client: ClientId) -> bool {
        lock(&self.awaited).contains(&client)
    }
    fn connect(self: Arc<Self>, hello: Greeting) -> BoxFuture<Result<ConnectOutcome, (Errno, String)>> {
        Box::pin(async move {
            self.work().await;
            let c = &hello.connect;
            if c.client_name == "unwanted" {
                return Err((Errno::EACCES, "not on the list".into()));
            }
            let client = ClientId(c.client_uuid);
            let mut disk = lock(&self.disk);
            if let Some(known) = disk.clients.get_mut(&client) {
                hello.check(known)?;
                if hello.is_unaware(known) {
                    lock(&self.awaited).remove(&client);
                    return Ok(ConnectOutcome { new_client: true, recovering: false });
                }
                return Ok(ConnectOutcome {
                    new_client: false,
                    recovering: lock(&self.awaited).contains(&client),
                });
            }
            disk.clients.insert(client, hello.identity(self.epoch));
            Ok(ConnectOutcome { new_client: true, recovering: false })
        })
    }
    fn stored_reply(&self, client: ClientId, slot: u16) -> Option<StoredReply> {
        lock(&self.disk).replies.get(&(client, slot)).cloned()
    }
    fn handle(self: Arc<Self>, req: Incoming) -> BoxFuture<Outgoing> {
        Box::pin(async move {
            {
                let mut s = lock(&self.seen);
                s.running += 1;
                s.running_max = s.running_max.max(s.running);
                s.started.push(req.xid);
                assert!(s.by_slot.insert((req.from.client, req.slot)), "two requests run in one slot");
            }
            self.work().await;
            let ask = || wire::decode_message::<GetParam>(&req.body);
            assert!(req.op != Op::GetParam || ask().is_ok_and(|m| m.pattern != "panic"), "on purpose");
            let stall = *lock(&self.stall);
            self.world.sleep(stall).await;
            let out = self.execute(&req);
            self.work().await;
            let mut s = lock(&self.seen);
            s.running -= 1;
            s.by_slot.remove(&(req.from.client, req.slot));
            out
        })
    }
    fn departed(self: Arc<Self>, client: ClientId, how: Departure) -> BoxFuture<()> {
        Box::pin(async move {
            assert!(
                lock(&self.seen).by_slot.iter().all(|(c, _)| *c != client),
                "a request outlives its client"
            );
            self.work().await;
            let mut d = lock(&self.disk);
            d.clients.remove(&client);
            d.replies.retain(|(c, _), _| *c != client);
            lock(&self.seen).departed.push((client, how));
        })
    }
}

pub fn ip(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

pub fn node(lab: &Lab, n: u8) -> (World, u64) {
    lab.node(ip(n), Arc::new(world::mem::MemDisk::new()))
}

/// Serves `services` at an address.
pub async fn serve(world: &World, at: u8, services: Vec<Arc<dyn Service>>, peers: &Peers) -> Arc<Server> {
    let server = Server::new(world.clone(), format!("server-{at}"));
    server.set_abort_on_panic(false);
    for s in services {
        server.add(s, peers.clone());
    }
    let listener = world.net.listen(SocketAddr::new(ip(at), PORT)).await.unwrap();
    let run = server.clone();
    world.spawn("server", async move { run.run(listener).await });
    server
}

pub fn config(uuid: u8, target: TargetId, nids: &[u8]) -> ImportConfig {
    ImportConfig {
        target,
        fsname: "fs".into(),
        nids: nids.iter().map(|n| Nid { addr: ip(*n), net: 0 }).collect(),
        port: PORT,
        bind: None,
        networks: Default::default(),
        client_uuid: [uuid; 16],
        client_name: format!("client-{uuid}"),
        slots: 8,
        hooks: Arc::new(NoHooks),
        adaptive: Arc::default(),
    }
}

pub async fn set(i: &Arc<Import>, name: &str) -> Result<String, Errno> {
    let m = SetParam { name: name.into(), value: String::new(), permanent: false, delete: false };
    let r = i.call(RequestContext::default(), m, Bytes::new()).await?;
    assert!(r.transno > 0);
    assert_eq!(r.reply.values[0].0, name, "the reply belongs to the request");
    Ok(r.reply.values[0].1.clone())
}

pub async fn get(i: &Arc<Import>, name: &str) -> Result<String, Errno> {
    let r = i.call(RequestContext::default(), GetParam { pattern: name.into() }, Bytes::new()).await?;
    assert_eq!(r.reply.values[0].0, name, "the reply belongs to the request");
    Ok(r.reply.values[0].1.clone())
}

/// Waits for a condition, at most 100 virtual seconds.
pub async fn until(world: &World, what: &str, f: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if f() {
            return;
        }
        world.sleep(Duration::from_millis(10)).await;
    }
    panic!("still not so after 100 s: {what}");
}
