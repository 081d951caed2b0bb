//! A target's recovery with clients that are back but do not end it, and requests that wait for its end.

use super::*;
use crate::server::recovery::{Phase, Recover, Recovery};
use model::planted::{self, Bug};
use wire::msg::connect::{Connect, ConnectFeatures, ConnectReply};

/// Of the second start's recovery.
const SOFT: Duration = Duration::from_secs(15);
const HARD: Duration = Duration::from_secs(30);
const SLOW: ClientId = ClientId([1; 16]);
const OTHER: ClientId = ClientId([2; 16]);

/// A [`Counter`] that recovers as targets do.
struct Target {
    counter: Arc<Counter>,
    recovery: Arc<Recovery>,
    peers: Peers,
}

impl Recover for Target {
    fn recovery(&self) -> &Arc<Recovery> {
        &self.recovery
    }
    fn patience(&self) -> Duration {
        SOFT
    }
    fn hard_limit(&self) -> Duration {
        HARD
    }
    fn peers(&self) -> &Peers {
        &self.peers
    }
    fn evict_absent(self: Arc<Self>, client: ClientId) -> BoxFuture<()> {
        assert!(self.recovery.give_up(client));
        Box::pin(async {})
    }
    fn recovered(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async {})
    }
}

impl Service for Target {
    fn target(&self) -> TargetId {
        self.counter.target()
    }
    fn fsname(&self) -> String {
        self.counter.fsname()
    }
    fn epoch(&self) -> u32 {
        self.counter.epoch()
    }
    fn last_committed(&self) -> u64 {
        self.counter.last_committed()
    }
    fn sender(&self, from: &Principal) -> Sender {
        self.counter.sender(from)
    }
    fn replays(&self, client: ClientId) -> bool {
        self.recovery.owes(client)
    }
    fn recovering(&self) -> bool {
        self.recovery.recovering()
    }
    fn connect(self: Arc<Self>, hello: Greeting) -> BoxFuture<Result<ConnectOutcome, (Errno, String)>> {
        Box::pin(async move {
            let client = hello.from.client;
            let outcome = self.counter.clone().connect(hello).await?;
            let recovering = !outcome.new_client && self.recovery.connected(client);
            Ok(ConnectOutcome { recovering, ..outcome })
        })
    }
    fn stored_reply(&self, client: ClientId, slot: u16) -> Option<StoredReply> {
        self.counter.stored_reply(client, slot)
    }
    fn handle(self: Arc<Self>, req: Incoming) -> BoxFuture<Outgoing> {
        Box::pin(async move {
            let client = req.from.client;
            // Changes stand for those that wait.
            let op = if req.op == Op::SetParam { Op::Write } else { req.op };
            if let Err(e) = self.recovery.admitted(client, op, req.replay.is_some()).await {
                return Outgoing::err(e);
            }
            let is_last = || wire::decode_message::<Reclaim>(&req.body).unwrap().last;
            let ends = req.op == Op::Reclaim && is_last();
            let out = self.counter.clone().handle(req).await;
            if ends {
                self.recovery.ended(client);
            }
            out
        })
    }
    fn leaving(&self, client: ClientId) {
        self.recovery.leaving(client);
    }
    fn departed(self: Arc<Self>, client: ClientId, how: Departure) -> BoxFuture<()> {
        Box::pin(async move {
            self.counter.clone().departed(client, how).await;
            self.recovery.departed(client);
        })
    }
}

/// Has so much to reclaim, once, that it comes to no end in time.
#[derive(Default)]
struct Endless(AtomicBool);

impl ImportHooks for Endless {
    fn reclaim(&self) -> Vec<Reclaim> {
        let pieces = if self.0.swap(true, Ordering::Relaxed) { 0 } else { 100_000 };
        vec![Reclaim::default(); pieces]
    }
}

/// A target that restarts under `SLOW`, at an address of its own, and `OTHER`, with so much memory for
/// requests.
async fn restarted(
    lab: &Lab,
    slow: Arc<dyn ImportHooks>,
    memory: Option<usize>,
) -> (World, Arc<Target>, [Arc<Import>; 2], Arc<Mutex<Seen>>) {
    let (disk, seen): (Arc<Mutex<Disk>>, Arc<Mutex<Seen>>) = Default::default();
    let (a, first) = node(lab, 1);
    let id = TargetId::ost(0);
    let _first = serve(&a, 1, vec![Counter::start(&a, id, &disk, &seen)], &Peers::new()).await;
    let ((far, _), (w, _)) = (node(lab, 8), node(lab, 9));
    let of = |uuid, hooks| ImportConfig { hooks, ..config(uuid, id, &[1]) };
    let clients = [Import::new(far, of(1, slow)), Import::new(w.clone(), of(2, Arc::new(NoHooks)))];
    for c in &clients {
        set(c, "before").await.unwrap();
    }
    lab.kill(first, ip(1));
    let (b, _) = node(lab, 1);
    let known: Vec<ClientId> = lock(&disk).clients.keys().copied().collect();
    let counter = Counter::start(&b, id, &disk, &seen);
    let recovery = Recovery::new(&b, "fs-OST0000".into(), known);
    let target = Arc::new(Target { counter, recovery, peers: Peers::new() });
    let server = serve(&b, 1, vec![target.clone()], &target.peers).await;
    if let Some(bytes) = memory {
        server.inbound().set_max_bytes(bytes);
    }
    b.spawn("recovery", Recovery::run(target.clone()));
    (w, target, clients, seen)
}

/// Whether the other client was served before the slow one had departed.
fn is_served_beside() -> bool {
    let lab = Lab::new(31);
    lab.run(async {
        let (w, target, [slow, other], seen) = restarted(&lab, Arc::new(Endless::default()), None).await;
        until(&w, "it is back", || target.recovery.owes(SLOW)).await;
        // Each waits for the end of the recovery, the slow one's as well.
        let mine = {
            let (w2, slow) = (w.clone(), slow.clone());
            let (tx, rx) = world::sync::oneshot::channel();
            w2.spawn("mine", async move { drop(tx.send(set(&slow, "mine").await)) });
            rx
        };
        let start = w.now();
        assert_eq!(set(&other, "theirs").await.unwrap(), "1");
        let gone = lock(&seen).departed.clone();
        let took = w.now().since(start);
        assert!(took < HARD + target.peers.lease_life() + SOFT, "{took:?}");
        assert_eq!(target.recovery.phase(), Phase::Serving);
        assert!(!gone.contains(&(OTHER, Departure::Evicted)), "it had ended its recovery");
        // Who was evicted may come back as somebody new, and goes on.
        if gone.contains(&(SLOW, Departure::Evicted)) {
            assert!(target.recovery.status(0).contains("completed_clients: 1/2"));
            w.timeout(Duration::from_secs(60), mine)
                .await
                .expect("no request waits for ever")
                .unwrap()
                .unwrap();
            return false;
        }
        true
    })
}

/// It would lose what it keeps when others change what it had locked, and nobody would be told (the
/// simulator's seed 18184589).
#[test]
fn who_does_not_end_its_recovery_is_evicted_before_others_are_served() {
    assert!(!is_served_beside());
    planted::plant(Some(Bug::SlowServedBeside));
    let found = is_served_beside();
    planted::plant(None);
    assert!(found, "the planted bug is found");
}

/// What somebody says who is not awaited waits for the end of the recovery: it must not have the memory that
/// those need for which the recovery waits.
#[test]
fn reclaims_that_wait_leave_memory_for_those_that_are_awaited() {
    let lab = Lab::new(32);
    lab.run(async {
        let (w, target, [late, other], _seen) = restarted(&lab, Arc::new(NoHooks), Some(12 << 10)).await;
        lab.silence(ip(8), true);
        until(&w, "the other one is done", || {
            target.recovery.progress().is_some_and(|p| p.connected == 1 && p.completed == 1)
        })
        .await;
        // All memory that is not kept, by a request that waits for the end of the recovery.
        let m = SetParam { name: "hog".into(), value: String::new(), permanent: false, delete: false };
        let hog = other.clone();
        w.spawn("hog", async move {
            let _ = hog.call(RequestContext::default(), m, Bytes::from(vec![1; 64 << 10])).await;
        });
        until(&w, "it has come", || target.recovery.status(0).contains("queued_requests: 1")).await;
        let features = ConnectFeatures::OURS;
        let stranger = Connect { client_uuid: [3; 16], features, ..admission::hello() };
        let ost0 = TargetId::ost(0).to_u32();
        let (conn, f) = admission::say_hello(&w, ost0, &stranger).await;
        let (_, r): (wire::ReplyContext, ConnectReply) = wire::decode_body(&f.body).unwrap();
        let mut h = wire::Header::new(wire::FrameKind::Request);
        (h.target, h.opcode, h.slot, h.xid) = (ost0, Op::Reclaim as u16, 0, 1);
        (h.session, h.epoch) = (r.session, r.epoch);
        h.flags |= wire::frame::FLAG_WAITED_FOR;
        let last = Reclaim { last: true, ..Reclaim::default() };
        let body = wire::encode_body(&RequestContext::default(), &last);
        conn.send(wire::Frame::new(h, body, Bytes::new())).await.unwrap();
        assert_eq!(conn.recv().await.unwrap().header.status, wire::frame::STATUS_LATER, "it is put off");
        lab.silence(ip(8), false);
        let start = w.now();
        assert_eq!(set(&late, "late").await.unwrap(), "1");
        let took = w.now().since(start);
        assert!(took < SOFT, "the recovery ends when all are back, not with its time: {took:?}");
        assert!(target.recovery.status(0).contains("completed_clients: 2/2"));
    });
}
