//! A target without rules of its own: real sessions, and the answers of whoever is asked ([`Answers`]).

use bytes::Bytes;
use model::mutex::{Mutex, MutexGuard};
use model::{Errno, TargetId};
use rpc::server::Departure;
use rpc::{ClientId, ConnectOutcome, Greeting, Incoming, Outgoing, Peers, Server, Service, StoredReply};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use wire::msg::notify::Notice;
use wire::msg::reclaim::{Reclaim, ReclaimReply};
use wire::{Message, Op, RequestContext};
use world::{BoxFuture, World};

/// What a fake target answers.
pub(crate) trait Answers: Send + Sync + 'static {
    fn answer(&self, r: &Incoming) -> Outgoing;
    fn notice(&self, _n: Notice) {}
    /// The client was evicted, or said good-bye.
    fn departed(&self) {}
}

/// Which requests are not answered until further notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    Nothing,
    Everything,
    /// All of this kind.
    Of(Op),
}

/// A target that answers as `answers` says, and remembers what came.
pub(crate) struct Fake<A> {
    id: TargetId,
    world: World,
    answers: A,
    /// Answers take so long.
    pub stall: Mutex<Duration>,
    pub hold: Mutex<Hold>,
    /// Requests of this kind are executed, but the answers are on their way until further notice.
    pub late: Mutex<Option<Op>>,
    /// The next requests of these kinds are not executed, but fail.
    refusals: Mutex<VecDeque<(Op, Errno)>>,
    /// What was executed or refused, in order; reclaims are apart.
    seen: Mutex<Vec<Op>>,
    /// The same as it came: context and message.
    requests: Mutex<Vec<(Op, RequestContext, Bytes)>>,
    /// What a client said that it has, a message each.
    pub reclaims: Mutex<Vec<Reclaim>>,
    /// Locks that the target does not give back when they are reclaimed.
    pub lost_locks: Mutex<Vec<u64>>,
    /// Most bytes of data in a request; told at connect.
    pub bulk_bytes: AtomicUsize,
    /// Most ranges in one writelist; told at connect.
    pub write_ranges: AtomicUsize,
    /// Requests that arrived and are not answered; the most there were.
    running: Mutex<(usize, usize)>,
    clients: Mutex<BTreeSet<ClientId>>,
    epoch: AtomicU32,
    recovering: AtomicBool,
    /// Up to where clients are told that changes are on disk; the newest change. Whoever wants something
    /// durable makes them equal.
    committed: AtomicU64,
    newest: AtomicU64,
}

impl<A> Deref for Fake<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.answers
    }
}

impl<A: Answers> Fake<A> {
    pub fn new(world: &World, id: TargetId, answers: A) -> Arc<Fake<A>> {
        Arc::new(Fake {
            id,
            world: world.clone(),
            answers,
            stall: Mutex::default(),
            hold: Mutex::new(Hold::Nothing),
            late: Mutex::default(),
            refusals: Mutex::default(),
            seen: Mutex::default(),
            requests: Mutex::default(),
            reclaims: Mutex::default(),
            lost_locks: Mutex::default(),
            bulk_bytes: AtomicUsize::new(model::limits::RPC_BULK_MAX_BYTES),
            write_ranges: AtomicUsize::new(0),
            running: Mutex::default(),
            clients: Mutex::default(),
            epoch: AtomicU32::new(1),
            recovering: AtomicBool::new(false),
            committed: AtomicU64::new(1 << 40),
            newest: AtomicU64::new(1 << 40),
        })
    }

    pub fn seen(&self) -> MutexGuard<'_, Vec<Op>> {
        self.seen.lock()
    }

    pub fn count(&self, op: Op) -> usize {
        self.seen().iter().filter(|o| **o == op).count()
    }

    /// The requests of a kind, as they came.
    pub fn asked<M: Message>(&self) -> Vec<M> {
        let all = self.requests.lock();
        let of_it = all.iter().filter(|r| r.0 == M::OP);
        of_it.map(|r| wire::decode_message(&r.2).expect("a client sends what its opcode says")).collect()
    }

    /// What the requests of a kind said besides.
    pub fn contexts(&self, op: Op) -> Vec<RequestContext> {
        self.requests.lock().iter().filter(|r| r.0 == op).map(|r| r.1.clone()).collect()
    }

    /// So many of the next requests of this kind fail.
    pub fn refuse(&self, op: Op, errno: Errno, times: usize) {
        self.refusals.lock().extend(std::iter::repeat_n((op, errno), times));
    }

    pub fn hold(&self, what: Hold) {
        *self.hold.lock() = what;
    }

    /// Those that are connected, or were and did not say good-bye.
    pub fn clients(&self) -> usize {
        self.clients.lock().len()
    }

    /// Requests that arrived and are not answered.
    pub fn running(&self) -> usize {
        self.running.lock().0
    }

    /// The most of them since this was asked last.
    pub fn most_running(&self) -> usize {
        let mut r = self.running.lock();
        let now = r.0;
        std::mem::replace(&mut r.1, now)
    }

    /// It starts anew as after a crash: in the next epoch, and waits for what its clients have.
    pub fn restart(self: &Arc<Self>, server: &Server, peers: &Peers) {
        server.remove(self.id);
        self.epoch.fetch_add(1, SeqCst);
        self.recovering.store(true, SeqCst);
        server.add(self.clone(), peers.clone());
    }

    fn is_held(&self, op: Op) -> bool {
        match *self.hold.lock() {
            Hold::Nothing => false,
            Hold::Everything => true,
            Hold::Of(held) => held == op,
        }
    }

    fn execute(&self, r: &Incoming) -> Outgoing {
        self.seen().push(r.op);
        self.requests.lock().push((r.op, r.ctx.clone(), r.body.clone()));
        let refusal = {
            let mut all = self.refusals.lock();
            let at = all.iter().position(|(op, _)| *op == r.op);
            at.and_then(|i| all.remove(i))
        };
        if let Some((_, e)) = refusal {
            return Outgoing::err(e);
        }
        let out = self.answers.answer(r);
        self.newest.fetch_max(out.transno, SeqCst);
        if r.op == Op::Sync || r.durable {
            self.committed.store(self.newest.load(SeqCst), SeqCst);
        }
        out
    }

    fn reclaim(&self, r: &Incoming) -> Outgoing {
        let m: Reclaim = wire::decode_message(&r.body).unwrap();
        if m.last {
            self.recovering.store(false, SeqCst);
        }
        let lost = self.lost_locks.lock();
        let of_it = m.extents.iter().map(|l| l.id).filter(|id| lost.contains(id)).collect();
        self.reclaims.lock().push(m);
        Outgoing::ok(&ReclaimReply { lost_opens: Vec::new(), lost_locks: of_it }, 0)
    }
}

/// A request that arrived; over when dropped, answered or not.
struct Running<'a>(&'a Mutex<(usize, usize)>);

impl Running<'_> {
    fn begin(of: &Mutex<(usize, usize)>) -> Running<'_> {
        {
            let mut r = of.lock();
            r.0 += 1;
            r.1 = r.1.max(r.0);
        }
        Running(of)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.lock().0 -= 1;
    }
}

impl<A: Answers> Service for Fake<A> {
    fn target(&self) -> TargetId {
        self.id
    }
    fn fsname(&self) -> String {
        "fs".into()
    }
    fn epoch(&self) -> u32 {
        self.epoch.load(SeqCst)
    }
    fn last_committed(&self) -> u64 {
        self.committed.load(SeqCst)
    }
    fn bulk_bytes(&self) -> usize {
        self.bulk_bytes.load(SeqCst)
    }
    fn write_ranges(&self) -> usize {
        self.write_ranges.load(SeqCst)
    }
    fn recovering(&self) -> bool {
        self.recovering.load(SeqCst)
    }
    fn replays(&self, _: ClientId) -> bool {
        self.recovering()
    }
    fn connect(self: Arc<Self>, hello: Greeting) -> BoxFuture<Result<ConnectOutcome, (Errno, String)>> {
        let new_client = self.clients.lock().insert(hello.from.client);
        Box::pin(async move { Ok(ConnectOutcome { new_client, recovering: self.recovering() }) })
    }
    fn stored_reply(&self, _: ClientId, _: u16) -> Option<StoredReply> {
        None
    }
    fn handle(self: Arc<Self>, r: Incoming) -> BoxFuture<Outgoing> {
        Box::pin(async move {
            if r.op == Op::Reclaim {
                return self.reclaim(&r);
            }
            let _running = Running::begin(&self.running);
            let stall = *self.stall.lock();
            self.world.sleep(stall).await;
            while self.is_held(r.op) {
                self.world.sleep(Duration::from_millis(10)).await;
            }
            let answer = self.execute(&r);
            while *self.late.lock() == Some(r.op) {
                self.world.sleep(Duration::from_millis(10)).await;
            }
            answer
        })
    }
    fn notice(&self, _: ClientId, n: Notice) {
        self.answers.notice(n);
    }
    fn departed(self: Arc<Self>, client: ClientId, _: Departure) -> BoxFuture<()> {
        self.clients.lock().remove(&client);
        self.answers.departed();
        Box::pin(async {})
    }
}
