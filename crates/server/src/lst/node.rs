//! `lst serve`: a node of self tests. Does nothing until a console opened a session, and forgets it when the
//! console is silent.

use super::proto::{
    ASK_MAX_BYTES, Answer, Ask, BRW_MAX_BYTES, Counted, Kind, Load, NodeState, Session, call, dial, frame,
    is_right, payload,
};
use bytes::Bytes;
use model::mutex::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use wire::{Bulk, FrameKind};
use world::{Conn, Instant, World};

/// Each may hold one transfer.
const CONNECTIONS_MAX: usize = 1024;
/// Concurrent requests of all batches.
const TASKS_MAX: u64 = 1024;
const BATCHES_MAX: usize = 64;
const LOADS_MAX: usize = 64;
const NAME_MAX_BYTES: usize = 256;
/// After a failure.
const PAUSE: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Counters {
    rpcs_received: AtomicU64,
    rpcs_sent: AtomicU64,
    bytes_received: AtomicU64,
    bytes_sent: AtomicU64,
    rpc_errors: AtomicU64,
    rpc_dropped: AtomicU64,
    brw_errors: AtomicU64,
    ping_errors: AtomicU64,
    last_error: Mutex<Option<String>>,
}

impl Counters {
    fn read(&self) -> Counted {
        Counted {
            rpcs_received: self.rpcs_received.load(Relaxed),
            rpcs_sent: self.rpcs_sent.load(Relaxed),
            bytes_received: self.bytes_received.load(Relaxed),
            bytes_sent: self.bytes_sent.load(Relaxed),
            rpc_errors: self.rpc_errors.load(Relaxed),
            rpc_dropped: self.rpc_dropped.load(Relaxed),
            brw_errors: self.brw_errors.load(Relaxed),
            ping_errors: self.ping_errors.load(Relaxed),
        }
    }

    fn received(&self, bytes: usize) {
        self.rpcs_received.fetch_add(1, Relaxed);
        self.bytes_received.fetch_add(bytes as u64, Relaxed);
    }

    fn sent(&self, bytes: usize) {
        self.rpcs_sent.fetch_add(1, Relaxed);
        self.bytes_sent.fetch_add(bytes as u64, Relaxed);
    }

    fn failed(&self, kind: Kind, why: String) {
        self.rpc_errors.fetch_add(1, Relaxed);
        match kind {
            Kind::Ping => self.ping_errors.fetch_add(1, Relaxed),
            Kind::Brw { .. } => self.brw_errors.fetch_add(1, Relaxed),
        };
        *self.last_error.lock() = Some(why);
    }
}

#[derive(Default)]
struct Batch {
    stop: AtomicBool,
    running: AtomicU64,
}

struct Open {
    session: Session,
    asked: Instant,
    counters: Arc<Counters>,
    batches: BTreeMap<String, Arc<Batch>>,
}

impl Open {
    fn stop(&self) {
        self.batches.values().for_each(|b| b.stop.store(true, Relaxed));
    }

    fn tasks(&self) -> u64 {
        self.batches.values().map(|b| b.running.load(Relaxed)).sum()
    }

    fn state(&self) -> NodeState {
        NodeState {
            session: Some(self.session.clone()),
            counted: self.counters.read(),
            running: self.batches.iter().map(|(n, b)| (n.clone(), b.running.load(Relaxed))).collect(),
            last_error: self.counters.last_error.lock().clone(),
        }
    }
}

pub struct Node {
    world: World,
    open: Mutex<Option<Open>>,
    connections: AtomicUsize,
    /// Only peers with ports below 1024.
    secure: bool,
}

fn refused(why: impl Into<String>) -> Answer {
    Answer::Refused { why: why.into(), busy: false }
}

impl Node {
    pub fn new(world: &World, secure: bool) -> Arc<Node> {
        Arc::new(Node {
            world: world.clone(),
            open: Mutex::new(None),
            connections: AtomicUsize::new(0),
            secure,
        })
    }

    /// Answers at `at` until the process ends; `ready` hears where.
    pub async fn serve(
        self: Arc<Node>,
        at: SocketAddr,
        ready: impl FnOnce(SocketAddr),
    ) -> Result<(), String> {
        let listener = self.world.net.listen(at).await.map_err(|e| format!("cannot listen on {at}: {e}"))?;
        ready(listener.local_addr());
        let keeper = self.clone();
        self.world.spawn("lst-keeper", async move {
            loop {
                keeper.world.sleep(LOOK_EVERY).await;
                keeper.expire();
            }
        });
        loop {
            let conn = match listener.accept().await {
                Ok(c) => c,
                Err(e) => {
                    tracing::warn!("lst: cannot take a connection: {e}");
                    self.world.sleep(PAUSE).await;
                    continue;
                }
            };
            let me = self.clone();
            if me.connections.fetch_add(1, Relaxed) >= CONNECTIONS_MAX {
                me.connections.fetch_sub(1, Relaxed);
                conn.close();
                continue;
            }
            self.world.spawn("lst-conn", async move {
                me.converse(&conn).await;
                let before = me.connections.fetch_sub(1, Relaxed);
                assert!(before > 0, "a connection that ends was counted");
            });
        }
    }

    /// Ends a session whose console is silent.
    fn expire(&self) {
        let now = self.world.now();
        let mut open = self.open.lock();
        let silent =
            |o: &Open| o.session.timeout > 0 && now.since(o.asked) > Duration::from_secs(o.session.timeout);
        if let Some(o) = open.take_if(|o| silent(o)) {
            o.stop();
            assert!(open.is_none(), "a session that ended is in nobody's way");
            tracing::warn!("lst: session '{}' ends: its console is silent", o.session.name);
        }
    }

    /// One request after the other.
    async fn converse(self: &Arc<Node>, conn: &Arc<dyn Conn>) {
        conn.expect_at_most(ASK_MAX_BYTES);
        let strange = self.secure && conn.peer().port() >= world::RESERVED_PORTS;
        while let Ok(f) = conn.recv().await {
            let asked = serde_json::from_slice::<Ask>(&f.body);
            let (answer, bulk) = match asked {
                _ if strange => (
                    refused("only administrators (ports below 1024) may test: run lst as root"),
                    Bulk::default(),
                ),
                Err(e) => (refused(format!("request not understood: {e}")), Bulk::default()),
                Ok(Ask::Load { session, kind, seed }) => self.load(session, kind, seed, f.bulk),
                Ok(ask) => (self.order(ask), Bulk::default()),
            };
            let end = matches!(answer, Answer::Refused { .. });
            if conn.send(frame(FrameKind::Reply, &answer, bulk)).await.is_err() || (end && strange) {
                return;
            }
        }
    }

    /// A request of another node's load.
    fn load(&self, session: u64, kind: Kind, seed: u64, bulk: Bulk) -> (Answer, Bulk) {
        let counters = match &*self.open.lock() {
            Some(o) if o.session.id == session => o.counters.clone(),
            _ => return (refused("this node is not in that session"), Bulk::default()),
        };
        counters.received(bulk.len());
        let (answer, bulk) = match kind {
            Kind::Ping => (Answer::Done, Bulk::default()),
            Kind::Brw { size, .. } if size > BRW_MAX_BYTES => (refused("size is over 1M"), Bulk::default()),
            Kind::Brw { write: false, size, check } => (Answer::Done, Bulk::from(payload(size, check, seed))),
            Kind::Brw { write: true, size, check } => {
                if is_right(&bulk.into_bytes(), size, check, seed) {
                    (Answer::Done, Bulk::default())
                } else {
                    let why = "what came is not what was sent".to_string();
                    counters.failed(kind, why.clone());
                    (refused(why), Bulk::default())
                }
            }
        };
        counters.sent(bulk.len());
        (answer, bulk)
    }

    /// What the console wants.
    fn order(self: &Arc<Node>, ask: Ask) -> Answer {
        let mut open = self.open.lock();
        let now = self.world.now();
        match ask {
            Ask::Open { session, force } => {
                if session.name.len() > NAME_MAX_BYTES || session.console.len() > NAME_MAX_BYTES {
                    return refused("the session's name is too long");
                }
                if let Some(o) = open.as_ref().filter(|o| o.session.id != session.id) {
                    if !force {
                        let why = format!("busy with session '{}' of {}", o.session.name, o.session.console);
                        return Answer::Refused { why, busy: true };
                    }
                    o.stop();
                    *open = None;
                }
                let id = session.id;
                open.get_or_insert_with(|| Open {
                    session,
                    asked: now,
                    counters: Arc::default(),
                    batches: BTreeMap::new(),
                })
                .asked = now;
                assert!(
                    open.as_ref().is_some_and(|o| o.session.id == id),
                    "a node is in the session that it took"
                );
                Answer::Done
            }
            Ask::Close { session }
            | Ask::Look { session }
            | Ask::Run { session, .. }
            | Ask::Stop { session, .. }
            | Ask::Load { session, .. }
                if open.as_ref().is_none_or(|o| o.session.id != session) =>
            {
                refused("this node is not in that session: lst add_group takes it in")
            }
            Ask::Close { .. } => {
                open.iter().for_each(Open::stop);
                *open = None;
                Answer::Done
            }
            ask => {
                let Some(o) = open.as_mut() else { return refused("no session") };
                o.asked = now;
                match ask {
                    Ask::Run { batch, loads, .. } => self.begin(o, batch, loads),
                    Ask::Stop { batch, .. } => {
                        o.batches.get(&batch).iter().for_each(|b| b.stop.store(true, Relaxed));
                        Answer::Done
                    }
                    _ => Answer::State(o.state()),
                }
            }
        }
    }

    fn begin(self: &Arc<Node>, o: &mut Open, name: String, loads: Vec<Load>) -> Answer {
        if name.len() > NAME_MAX_BYTES || loads.len() > LOADS_MAX {
            return refused(format!("a batch has at most {LOADS_MAX} tests"));
        }
        if let Some(why) = loads.iter().find_map(|l| fits(l.kind).err()) {
            return refused(why);
        }
        if o.batches.get(&name).is_some_and(|b| b.running.load(Relaxed) > 0) {
            return refused(format!("batch '{name}' is running already"));
        }
        if o.batches.len() >= BATCHES_MAX {
            o.batches.retain(|_, b| b.running.load(Relaxed) > 0);
        }
        let tasks = loads.iter().fold(0u64, |n, l| {
            n.saturating_add((l.to.len() as u64).saturating_mul(u64::from(l.concurrency)))
        });
        if tasks.saturating_add(o.tasks()) > TASKS_MAX || o.batches.len() >= BATCHES_MAX {
            return refused(format!("a node has at most {TASKS_MAX} concurrent requests, not {tasks} more"));
        }
        assert!(o.tasks() + tasks <= TASKS_MAX, "what a node holds for its load is bounded");
        let batch = Arc::new(Batch { stop: AtomicBool::new(false), running: AtomicU64::new(tasks) });
        o.batches.insert(name, batch.clone());
        for load in loads {
            for to in &load.to {
                for _ in 0..load.concurrency {
                    let (world, session) = (self.world.clone(), o.session.id);
                    let (batch, counters, load, to) = (batch.clone(), o.counters.clone(), load.clone(), *to);
                    self.world.spawn("lst-load", async move {
                        repeat(&world, session, to, &load, &batch, &counters).await;
                        let before = batch.running.fetch_sub(1, Relaxed);
                        assert!(before > 0, "each task was counted when its batch began");
                    });
                }
            }
        }
        Answer::Done
    }
}

/// One request after the other, until there were enough or the batch is stopped.
async fn repeat(
    world: &World,
    session: u64,
    to: SocketAddr,
    load: &Load,
    batch: &Batch,
    counters: &Counters,
) {
    let mut conn: Option<Arc<dyn Conn>> = None;
    let mut done = 0;
    while !batch.stop.load(Relaxed) && load.loops.is_none_or(|n| done < n) {
        match one(world, session, to, load.kind, &mut conn, counters).await {
            Ok(()) => done += 1,
            Err(why) => {
                counters.failed(load.kind, format!("{to}: {why}"));
                conn = None;
                // not to fill the network with what fails at once
                world.sleep(PAUSE).await;
                done += 1;
            }
        }
    }
}

/// One request and its answer, over `conn` if there is one already.
pub async fn one(
    world: &World,
    session: u64,
    to: SocketAddr,
    kind: Kind,
    conn: &mut Option<Arc<dyn Conn>>,
    counters: &Counters,
) -> Result<(), String> {
    let c = match conn {
        Some(c) => c.clone(),
        None => conn.insert(dial(world, to).await?).clone(),
    };
    let seed = world.random_u64();
    let data = match kind {
        Kind::Brw { write: true, size, check } => payload(size, check, seed),
        _ => Bytes::new(),
    };
    counters.sent(data.len());
    let (answer, bulk) =
        call(world, &c, &Ask::Load { session, kind, seed }, data).await.inspect_err(|_| {
            counters.rpc_dropped.fetch_add(1, Relaxed);
        })?;
    counters.received(bulk.len());
    match (answer, kind) {
        (Answer::Refused { why, .. }, _) => Err(why),
        (_, Kind::Brw { write: false, size, check }) if !is_right(&bulk.into_bytes(), size, check, seed) => {
            Err("what came is not what was asked for".into())
        }
        _ => Ok(()),
    }
}

/// Whether a node would do it.
pub fn fits(kind: Kind) -> Result<(), String> {
    match kind {
        Kind::Brw { size, .. } if size == 0 || size > BRW_MAX_BYTES => {
            Err(format!("size={size}: 1 byte to 1M"))
        }
        _ => Ok(()),
    }
}
