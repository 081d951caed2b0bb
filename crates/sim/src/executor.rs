//! Tasks, timers and the order in which they run.
//!
//! One thread. Whichever ready task the seed picks is polled next; when none is ready, time jumps to the
//! next timer. Each poll takes a little virtual time, so that nothing runs for ever at one instant.

use crate::net::Network;
use crate::trace::Trace;
use crate::world::{Node, NodeState};
use ::world::BoxFuture;
use ::world::rng::Rng;
use model::mutex::{Mutex, MutexGuard};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// Virtual nanoseconds a poll takes at least; up to twice as much, by the seed.
const POLL_NS: u64 = 400;
/// Polls at one run: far above what any scenario needs.
const STEPS_MAX: u64 = 2_000_000_000;

pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock_whole()
}

/// Why a run ended without a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Stuck {
    #[error("nothing is left to run and no timer is set: deadlock")]
    Deadlock,
    #[error("not finished within the limit of virtual time")]
    Time,
    #[error("not finished within the limit of steps")]
    Steps,
}

/// A simulated world: nodes, a network and the time they share. Dropping it ends every task.
pub struct Sim {
    handle: Handle,
}

/// What the experimenter's own futures hold of the world they run in.
#[derive(Clone)]
pub struct Handle {
    pub(crate) core: Arc<Core>,
}

impl std::ops::Deref for Sim {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

pub(crate) struct Core {
    state: Mutex<State>,
    ready: Arc<Ready>,
    _counted: Counted,
}

thread_local! {
    static WORLDS: Cell<usize> = const { Cell::new(0) };
}

/// Simulated worlds of this thread that take memory: those that live, and those that something kept from
/// being given back when they ended.
pub fn worlds() -> usize {
    WORLDS.get()
}

/// One of [`worlds`]. A world is made, runs and ends in one thread.
struct Counted;

impl Counted {
    fn new() -> Counted {
        WORLDS.set(WORLDS.get() + 1);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        WORLDS.set(WORLDS.get() - 1);
    }
}

/// Everything that belongs to the simulation. Futures and user objects are never dropped or called while
/// this is locked: their destructors come back here.
pub(crate) struct State {
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    tasks: Vec<Slot>,
    free: Vec<u32>,
    timers: BTreeMap<(u64, u64), Event>,
    next_timer: u64,
    pub(crate) nodes: Vec<NodeState>,
    pub(crate) net: Network,
    pub(crate) trace: Trace,
    /// The node whose code runs now; 0 is the experimenter.
    pub(crate) running: u32,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    task: Option<Task>,
}

struct Task {
    /// `None` while it is being polled.
    future: Option<BoxFuture<()>>,
    node: u32,
    wake: Arc<TaskWake>,
    waker: Waker,
}

struct TaskWake {
    id: u32,
    generation: u32,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

/// Sorted, because who is woken first must not matter: tokio's `watch` wakes its waiters in an order that it
/// draws by lot.
#[derive(Default)]
struct Ready {
    list: Mutex<Vec<(u32, u32)>>,
}

impl Ready {
    fn add(&self, task: (u32, u32)) {
        let mut list = lock(&self.list);
        if let Err(at) = list.binary_search(&task) {
            list.insert(at, task);
        }
    }
}

impl Wake for TaskWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.add((self.id, self.generation));
        }
    }
}

/// What a timer does when its time has come.
pub(crate) enum Event {
    Wake(Waker),
    /// The next packet from `end` of a connection arrives at the other end.
    Deliver {
        conn: u64,
        end: usize,
    },
    /// `end` learns that its peer is gone.
    Reset {
        conn: u64,
        end: usize,
    },
    /// Packets from `end` have been held up by a partition since `since`.
    Stalled {
        conn: u64,
        end: usize,
        since: u64,
    },
    /// What was under way when a connection broke.
    Late {
        conn: u64,
    },
    /// A blocking call of a node's life.
    Work(crate::world::Work),
}

impl State {
    pub(crate) fn set_timer(&mut self, at: u64, e: Event) -> (u64, u64) {
        self.next_timer += 1;
        let key = (at, self.next_timer);
        self.timers.insert(key, e);
        key
    }

    pub(crate) fn timer_mut(&mut self, key: (u64, u64)) -> Option<&mut Event> {
        self.timers.get_mut(&key)
    }

    pub(crate) fn cancel_timer(&mut self, key: (u64, u64)) -> Option<Event> {
        self.timers.remove(&key)
    }

    /// Takes all tasks of a node out, to be dropped by the caller once the lock is free.
    pub(crate) fn remove_tasks(&mut self, node: u32) -> Vec<BoxFuture<()>> {
        let mut out = Vec::new();
        for (id, slot) in self.tasks.iter_mut().enumerate() {
            if slot.task.as_ref().is_some_and(|t| t.node == node) {
                slot.generation += 1;
                out.extend(slot.task.take().and_then(|t| t.future));
                self.free.push(id as u32);
            }
        }
        out
    }
}

impl Core {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A node that looks at its disk, or changes names there, in the very moment in which it is stopped, has
    /// done before what was under way.
    pub(crate) fn settle(&self, node: u32) {
        let held = self.lock().nodes[node as usize].take_held();
        held.into_iter().for_each(|change| change());
    }

    pub(crate) fn spawn(&self, node: u32, f: BoxFuture<()>) {
        let mut s = self.lock();
        let id = s.free.pop().unwrap_or_else(|| {
            s.tasks.push(Slot::default());
            (s.tasks.len() - 1) as u32
        });
        let slot = &mut s.tasks[id as usize];
        let wake = Arc::new(TaskWake {
            id,
            generation: slot.generation,
            queued: AtomicBool::new(false),
            ready: self.ready.clone(),
        });
        let waker = Waker::from(wake.clone());
        slot.task = Some(Task { future: Some(f), node, wake: wake.clone(), waker });
        drop(s);
        wake.wake_by_ref();
    }

    /// Makes ready again what a paused node had to leave.
    pub(crate) fn requeue(&self, tasks: Vec<(u32, u32)>) {
        tasks.into_iter().for_each(|t| self.ready.add(t));
    }

    /// Polls one task or lets one timer fire. False: there is nothing to do, ever.
    fn step(&self) -> bool {
        let mut s = self.lock();
        s.trace.steps += 1;
        let due = s.timers.first_key_value().is_some_and(|(k, _)| k.0 <= s.now);
        let picked = if due { None } else { self.pick(&mut s) };
        match picked {
            Some((id, generation)) => {
                self.poll(s, id, generation);
                true
            }
            None => {
                let Some(((at, seq), e)) = s.timers.pop_first() else {
                    return false;
                };
                s.now = s.now.max(at);
                s.trace.add(at ^ seq.rotate_left(32));
                self.fire(s, e);
                true
            }
        }
    }

    fn pick(&self, s: &mut State) -> Option<(u32, u32)> {
        loop {
            let picked = {
                let mut list = lock(&self.ready.list);
                match list.len() {
                    0 => return None,
                    1 => list.pop()?,
                    n => list.remove(s.rng.index(n)),
                }
            };
            let slot = &s.tasks[picked.0 as usize];
            let Some(task) = slot.task.as_ref().filter(|_| slot.generation == picked.1) else {
                continue;
            };
            let node = task.node as usize;
            if s.nodes[node].paused {
                s.nodes[node].parked.push(picked);
                continue;
            }
            return Some(picked);
        }
    }

    fn poll(&self, mut s: MutexGuard<'_, State>, id: u32, generation: u32) {
        s.now += POLL_NS + s.rng.below(POLL_NS);
        let now = s.now;
        s.trace.add(now << 20 ^ u64::from(id));
        let task = s.tasks[id as usize].task.as_mut().expect("picked");
        task.wake.queued.store(false, Ordering::Relaxed);
        let mut future = task.future.take().expect("a task is polled once at a time");
        let (waker, node) = (task.waker.clone(), task.node as usize);
        s.running = node as u32;
        drop(s);
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut s = self.lock();
        s.running = 0;
        let stopped = s.nodes[node].polled();
        let slot = &mut s.tasks[id as usize];
        // The node may have crashed meanwhile, by the hand of this very task.
        if slot.generation == generation {
            if done {
                slot.generation += 1;
                let task = slot.task.take();
                s.free.push(id);
                drop(s);
                drop(task);
            } else {
                slot.task.as_mut().expect("same generation").future = Some(future);
                drop(s);
                stopped.into_iter().for_each(Waker::wake);
                return;
            }
        } else {
            drop(s);
        }
        drop(future);
        stopped.into_iter().for_each(Waker::wake);
    }

    fn fire(&self, mut s: MutexGuard<'_, State>, e: Event) {
        match e {
            Event::Wake(w) => {
                drop(s);
                w.wake();
            }
            Event::Deliver { conn, end } => {
                let wake = s.deliver(conn, end);
                drop(s);
                wake.into_iter().for_each(Waker::wake);
            }
            Event::Reset { conn, end } => {
                let wake = s.reset_end(conn, end, std::io::ErrorKind::ConnectionReset);
                drop(s);
                wake.into_iter().for_each(Waker::wake);
            }
            Event::Stalled { conn, end, since } => {
                let wake = s.stalled(conn, end, since);
                drop(s);
                wake.into_iter().for_each(Waker::wake);
            }
            Event::Late { conn } => {
                let wake = s.late(conn);
                drop(s);
                wake.into_iter().for_each(Waker::wake);
            }
            Event::Work(w) => {
                drop(s);
                w.run(self);
            }
        }
    }
}

impl Sim {
    pub fn new(seed: u64) -> Sim {
        let state = State {
            now: 0,
            rng: Rng::new(seed),
            tasks: Vec::new(),
            free: Vec::new(),
            timers: BTreeMap::new(),
            next_timer: 0,
            nodes: Vec::new(),
            net: Network::default(),
            trace: Trace::default(),
            running: 0,
        };
        let core = Core { state: Mutex::new(state), ready: Arc::default(), _counted: Counted::new() };
        let sim = Sim { handle: Handle { core: Arc::new(core) } };
        // Node 0 is the experimenter: it has no address and never crashes.
        sim.add_node("driver", &[]);
        sim
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Handle {
    pub fn add_node(&self, name: &str, addrs: &[std::net::IpAddr]) -> Node {
        Node::add(&self.core, name, addrs, None)
    }

    /// A machine that reaches another one's disk.
    pub fn add_node_on(&self, name: &str, addrs: &[std::net::IpAddr], disk_of: &Node) -> Node {
        let disk = disk_of.disk().from_other_host();
        Node::add(&self.core, name, addrs, Some(disk))
    }

    /// The experimenter's own node: its tasks survive every crash.
    pub fn driver(&self) -> Node {
        Node::existing(&self.core, 0)
    }

    /// Runs until `f` is ready, at most `limit` of virtual time.
    pub fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        f: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Stuck> {
        let out = Arc::new(Mutex::new(None));
        let put = out.clone();
        let (end, first) = {
            let s = self.core.lock();
            (s.now.saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)), s.trace.steps)
        };
        self.core.spawn(0, Box::pin(async move { *lock(&put) = Some(f.await) }));
        loop {
            for _ in 0..64 {
                let alive = self.core.step();
                if let Some(v) = lock(&out).take() {
                    return Ok(v);
                }
                if !alive {
                    return Err(Stuck::Deadlock);
                }
            }
            let s = self.core.lock();
            if s.now > end {
                return Err(Stuck::Time);
            }
            if s.trace.steps - first > STEPS_MAX {
                return Err(Stuck::Steps);
            }
        }
    }

    /// Virtual nanoseconds since the start.
    pub fn now(&self) -> u64 {
        self.core.lock().now
    }

    /// One number for everything that happened so far.
    pub fn trace_hash(&self) -> u64 {
        self.core.lock().trace.hash()
    }

    pub fn steps(&self) -> u64 {
        self.core.lock().trace.steps
    }

    /// An independent generator, for decisions of the experimenter.
    pub fn fork_rng(&self) -> Rng {
        self.core.lock().rng.fork()
    }

    /// How often each fault fired, disks included.
    pub fn counters(&self) -> BTreeMap<&'static str, u64> {
        let s = self.core.lock();
        let mut all = s.trace.counters().clone();
        for n in s.nodes.iter().filter(|n| !n.shared_disk) {
            for (what, v) in n.disk.counters().list() {
                *all.entry(what).or_insert(0) += v;
            }
        }
        all.retain(|_, v| *v > 0);
        all
    }

    /// Counts something that the experimenter did.
    pub fn count(&self, what: &'static str) {
        self.core.lock().trace.count(what);
    }

    /// Keeps the last few thousand lines of what happens.
    pub fn keep_log(&self) {
        self.core.lock().trace.keep_log();
    }

    pub fn log(&self, line: impl FnOnce() -> String) {
        let mut s = self.core.lock();
        let now = s.now;
        s.trace.log(|| format!("{:>12} {}", now / 1000, line()));
    }

    /// A message of the program that runs now. Where the simulation itself is at work nothing can be said.
    pub(crate) fn said(&self, level: &str, text: &str) {
        if let Some(mut s) = self.core.state.try_lock() {
            let line = format!("{:>12} {} {level} {text}", s.now / 1000, s.nodes[s.running as usize].name);
            s.trace.log(|| line);
        }
    }

    pub fn take_log(&self) -> Vec<String> {
        self.core.lock().trace.take_log()
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // Tasks hold worlds and worlds hold the core, as does what is under way at a node: break the circles.
        // Destructors may spawn and set timers again, so until nothing is left.
        loop {
            let (tasks, timers, net, under_way) = {
                let mut s = self.core.lock();
                let (mut tasks, mut under_way) = (Vec::new(), Vec::new());
                for node in 0..s.nodes.len() {
                    under_way.push(s.nodes[node].end());
                    tasks.extend(s.remove_tasks(node as u32));
                }
                (tasks, std::mem::take(&mut s.timers), std::mem::take(&mut s.net), under_way)
            };
            if tasks.is_empty() && timers.is_empty() {
                break;
            }
            drop((tasks, timers, net, under_way));
        }
        lock(&self.core.ready.list).clear();
    }
}
