//! Nodes: a group of tasks, addresses, a disk; and the `World` that each life of a node gets.

use crate::clock::SimClock;
use crate::disk::LifeDisk;
use crate::executor::{Core, Event, Handle};
use crate::net::SimNet;
use ::world::mem::{CrashMode, MemDisk};
use ::world::{BoxFuture, Rand, Spawn, World};
use model::mutex::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct NodeState {
    pub(crate) name: String,
    pub(crate) addrs: Vec<IpAddr>,
    pub(crate) disk: MemDisk,
    /// Counts restarts: what belongs to an earlier life does nothing any more.
    pub(crate) life: u64,
    /// Between a crash and the next life nobody answers at its addresses.
    pub(crate) up: bool,
    pub(crate) paused: bool,
    /// It was, since its programs started.
    slept: bool,
    /// Ready tasks and finished blocking calls of a paused node.
    pub(crate) parked: Vec<(u32, u32)>,
    parked_work: Vec<Work>,
    /// While it is paused: since when, and what stands still.
    rest: Option<(u64, Rest)>,
    /// What its timers, and its clock, lost in pauses.
    pub(crate) lost_timers_ns: u64,
    lost_clock_ns: u64,
    pub(crate) skew_ns: i64,
    /// How fast its monotonic clock goes: nanoseconds of it in a millisecond.
    pub(crate) rate_ppm: u64,
    /// The disk is another node's too, and counted there.
    pub(crate) shared_disk: bool,
    /// Percent of its disk that others use.
    pub(crate) used_by_others: u64,
    /// Starts of its kernel.
    boots: u64,
    /// Polls of its tasks, ever.
    polls: u64,
    /// When to stop it.
    trip: Option<Trip>,
    /// The change that was under way when it was stopped, and flushes of the same file that wait for it.
    held: Vec<HeldChange>,
    held_path: Arc<str>,
    /// Microseconds a blocking call takes at least and at most.
    blocking_us: (u64, u64),
}

/// What stands still on a node that is paused, beside its programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Nothing: its processes are stopped.
    Processes,
    /// Timers, as on a host that is suspended.
    Timers,
    /// Timers and the clock, as on a guest that is paused or moves; its wall clock is right when it goes on.
    Clocks,
}

impl Rest {
    pub const ALL: [Rest; 3] = [Rest::Processes, Rest::Timers, Rest::Clocks];
}

/// Where a node is stopped: nothing of it runs from then on, until it is killed or goes on.
pub(crate) struct Trip {
    at: Stop,
    hit: bool,
    waker: Option<std::task::Waker>,
}

/// A point in what a node does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// After so many polls of its tasks: at an await point.
    Polls(u64),
    /// With a change of a file under way whose path has this in it: it reaches the disk once the node goes
    /// on.
    Change(&'static str),
}

/// A change of a file that was under way.
pub(crate) type HeldChange = Box<dyn FnOnce() + Send>;

impl NodeState {
    /// A poll of one of its tasks is over; a waker of whoever waits for that.
    pub(crate) fn polled(&mut self) -> Option<std::task::Waker> {
        self.polls += 1;
        let trip = self.trip.as_mut().filter(|t| !t.hit)?;
        let Stop::Polls(left) = &mut trip.at else { return None };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return None;
        }
        self.hit()
    }

    fn hit(&mut self) -> Option<std::task::Waker> {
        (self.paused, self.slept) = (true, true);
        let trip = self.trip.as_mut()?;
        trip.hit = true;
        trip.waker.take()
    }

    /// Whether a change of a file is under way for as long as the node does not go on.
    pub(crate) fn holds(&mut self, path: &str) -> (bool, Option<std::task::Waker>) {
        match &self.trip {
            Some(t) if t.hit => (matches!(t.at, Stop::Change(_)), None),
            Some(Trip { at: Stop::Change(part), .. }) if !self.paused && path.contains(part) => {
                (true, self.hit())
            }
            _ => (false, None),
        }
    }

    /// Whether [`NodeState::holds`] may say yes.
    pub(crate) fn may_hold(&self) -> bool {
        matches!(self.trip, Some(Trip { at: Stop::Change(_), .. }))
    }

    /// Keeps a change back; returns those that were kept until now, and happen before it: a thread that goes
    /// on to the next one has done them.
    pub(crate) fn hold(&mut self, flush: bool, path: &Arc<str>, change: HeldChange) -> Vec<HeldChange> {
        let waits = flush && self.held_path == *path;
        let before = if waits { Vec::new() } else { std::mem::take(&mut self.held) };
        self.held_path = path.clone();
        self.held.push(change);
        before
    }

    pub(crate) fn take_held(&mut self) -> Vec<HeldChange> {
        std::mem::take(&mut self.held)
    }

    /// `/proc/sys/kernel/random/boot_id` of this node.
    pub(crate) fn boot_id(&self, node: u32) -> String {
        format!("{:08x}-0000-4000-8000-{:012x}\n", node, self.boots)
    }

    /// A duration of its clock in nanoseconds of the world's.
    pub(crate) fn real_ns(&self, own_ns: u64) -> u64 {
        let real = (u128::from(own_ns) * 1_000_000).div_ceil(u128::from(self.rate_ppm));
        u64::try_from(real).unwrap_or(u64::MAX)
    }

    fn own_ns(&self, now: u64) -> u64 {
        (u128::from(now) * u128::from(self.rate_ppm) / 1_000_000) as u64
    }

    /// Its clock at this time of the world's.
    pub(crate) fn clock_ns(&self, now: u64) -> u64 {
        self.own_ns(now - self.lost_clock_ns)
    }

    /// Its wall clock, which goes as fast as its own, since the world began.
    pub(crate) fn wall_ns(&self, now: u64) -> i64 {
        (self.own_ns(now - self.lost_clock_ns) + self.lost_clock_ns) as i64 + self.skew_ns
    }

    fn stop(&mut self, now: u64, what: Rest) {
        (self.paused, self.slept) = (true, true);
        self.rest = Some((now, what));
    }

    /// What is under way there, and will not be any more.
    pub(crate) fn end(&mut self) -> (Vec<Work>, Vec<HeldChange>) {
        self.life += 1;
        self.parked.clear();
        self.trip = None;
        (std::mem::take(&mut self.parked_work), self.take_held())
    }

    /// It goes on. What stood still.
    fn wake(&mut self, now: u64) -> Rest {
        self.paused = false;
        let Some((since, what)) = self.rest.take() else { return Rest::Processes };
        let passed = now - since;
        self.lost_timers_ns += if what == Rest::Processes { 0 } else { passed };
        self.lost_clock_ns += if what == Rest::Clocks { passed } else { 0 };
        what
    }
}

/// One machine of the simulation.
#[derive(Clone)]
pub struct Node {
    core: Arc<Core>,
    id: u32,
}

impl Node {
    pub(crate) fn add(core: &Arc<Core>, name: &str, addrs: &[IpAddr], disk: Option<MemDisk>) -> Node {
        let mut s = core.lock();
        let id = s.nodes.len() as u32;
        for a in addrs {
            let old = s.net.owners.insert(*a, id);
            assert!(old.is_none(), "address {a} belongs to one node");
        }
        s.nodes.push(NodeState {
            name: name.into(),
            addrs: addrs.to_vec(),
            shared_disk: disk.is_some(),
            disk: disk.unwrap_or_default(),
            life: 1,
            up: true,
            paused: false,
            slept: false,
            parked: Vec::new(),
            parked_work: Vec::new(),
            rest: None,
            lost_timers_ns: 0,
            lost_clock_ns: 0,
            skew_ns: 0,
            rate_ppm: 1_000_000,
            used_by_others: 0,
            boots: 1,
            polls: 0,
            trip: None,
            held: Vec::new(),
            held_path: "".into(),
            blocking_us: (20, 400),
        });
        Node { core: core.clone(), id }
    }

    pub(crate) fn existing(core: &Arc<Core>, id: u32) -> Node {
        Node { core: core.clone(), id }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub fn name(&self) -> String {
        self.core.lock().nodes[self.id as usize].name.clone()
    }

    /// The outside as the present life sees it.
    pub fn world(&self) -> World {
        let (life, disk) = {
            let s = self.core.lock();
            let n = &s.nodes[self.id as usize];
            (n.life, n.disk.clone())
        };
        let (core, node) = (&self.core, self.id);
        World {
            clock: Arc::new(SimClock::new(core, node)),
            net: Arc::new(SimNet { core: core.clone(), node, life }),
            disk: Arc::new(LifeDisk { core: core.clone(), node, life, disk }),
            rand: Arc::new(SimRand { core: core.clone() }),
            tasks: Arc::new(SimSpawn { core: core.clone(), node, life }),
        }
    }

    /// Others, who are not simulated, use so much of its disk, percent.
    pub(crate) fn set_used_by_others(&self, percent: u64) {
        assert!(percent < 100, "the disk is not full");
        self.core.lock().nodes[self.id as usize].used_by_others = percent;
    }

    /// The disk, for faults and inspection.
    pub fn disk(&self) -> MemDisk {
        self.core.lock().nodes[self.id as usize].disk.clone()
    }

    /// The process is killed: tasks and connections go, the peers hear of it at once; the disk keeps all.
    pub fn kill(&self) {
        self.disk().kill();
        self.end_life(Duration::ZERO);
        self.core.lock().trace.count("process_kill");
    }

    /// The process ends by itself.
    pub fn exit(&self) {
        self.disk().kill();
        self.end_life(Duration::ZERO);
    }

    /// The next life is under another kernel: locks of files of the one before prove nothing.
    pub fn reboot(&self) {
        self.core.lock().nodes[self.id as usize].boots += 1;
    }

    /// The power fails: as `kill`, but the disk loses what was not flushed, and the peers hear of it late.
    pub fn crash(&self, mode: CrashMode) {
        let (disk, mut rng, late) = {
            let mut s = self.core.lock();
            let late = s.rng.below(3_000_000);
            (s.nodes[self.id as usize].disk.clone(), s.rng.fork(), late)
        };
        disk.crash_with(mode, &mut rng);
        self.end_life(Duration::from_micros(late));
        self.core.lock().trace.count("power_loss");
    }

    fn end_life(&self, late: Duration) {
        assert!(self.id != 0, "the driver never crashes");
        let garbage = {
            let mut s = self.core.lock();
            let now = s.now;
            let n = &mut s.nodes[self.id as usize];
            n.up = false;
            n.wake(now);
            let (work, held) = n.end();
            if !held.is_empty() {
                s.trace.count("change_under_way_at_pause");
            }
            let wake = s.net_down(self.id, late);
            s.trace.add(u64::from(self.id) << 8 | 1);
            (s.remove_tasks(self.id), (work, held), wake)
        };
        // Destructors see a node that is gone: they change nothing.
        let (tasks, work, wake) = garbage;
        drop((tasks, work));
        wake.into_iter().for_each(std::task::Waker::wake);
    }

    /// A new life begins: [`Node::world`] is usable again.
    pub fn boot(&self) {
        let n = &mut self.core.lock().nodes[self.id as usize];
        (n.up, n.slept) = (true, false);
    }

    /// Nothing of the node runs until `resume`, but its connections stay and packets pile up.
    pub fn pause(&self) {
        self.pause_with(Rest::Processes);
    }

    /// The same, and more stands still; also said of a node that is paused since this moment.
    pub fn pause_with(&self, what: Rest) {
        let mut s = self.core.lock();
        let now = s.now;
        s.nodes[self.id as usize].stop(now, what);
        s.trace.count("pause");
    }

    /// Polls of its tasks, in all its lives.
    pub fn polls(&self) -> u64 {
        self.core.lock().nodes[self.id as usize].polls
    }

    pub fn is_paused(&self) -> bool {
        self.core.lock().nodes[self.id as usize].paused
    }

    /// Whether it was paused since its last boot.
    pub(crate) fn has_slept(&self) -> bool {
        self.core.lock().nodes[self.id as usize].slept
    }

    /// Stops the node at that point. True once it has; false if `patience` passes first.
    pub async fn stop_at(&self, at: Stop, patience: Duration) -> bool {
        self.core.lock().nodes[self.id as usize].trip = Some(Trip { at, hit: false, waker: None });
        let stopped = std::future::poll_fn(|cx| {
            let mut s = self.core.lock();
            match &mut s.nodes[self.id as usize].trip {
                Some(t) if !t.hit => {
                    t.waker = Some(cx.waker().clone());
                    std::task::Poll::Pending
                }
                _ => std::task::Poll::Ready(()),
            }
        });
        let sleep = crate::clock::sleep(&self.core, patience);
        ::world::select(stopped, sleep).await;
        let mut s = self.core.lock();
        let n = &mut s.nodes[self.id as usize];
        let hit = n.trip.as_ref().is_some_and(|t| t.hit);
        if !hit {
            n.trip = None;
        }
        hit
    }

    pub fn resume(&self) {
        let (tasks, work) = {
            let mut s = self.core.lock();
            let now = s.now;
            let n = &mut s.nodes[self.id as usize];
            let client = n.name == "client";
            let what = n.wake(now);
            n.trip = None;
            let held = n.take_held();
            match (what, client) {
                (Rest::Processes, _) => {}
                (Rest::Timers, true) => s.trace.count("client_suspended"),
                (Rest::Timers, false) => s.trace.count("server_suspended"),
                (Rest::Clocks, true) => s.trace.count("client_clocks_stopped"),
                (Rest::Clocks, false) => s.trace.count("server_clocks_stopped"),
            }
            if !held.is_empty() {
                s.trace.count("change_under_way_at_pause");
            }
            drop(s);
            held.into_iter().for_each(|change| change());
            let mut s = self.core.lock();
            let n = &mut s.nodes[self.id as usize];
            let work = std::mem::take(&mut n.parked_work);
            (std::mem::take(&mut n.parked), work)
        };
        self.core.requeue(tasks);
        for w in work {
            let mut s = self.core.lock();
            let now = s.now;
            s.set_timer(now, Event::Work(w));
        }
    }

    /// How far the wall clock is off.
    pub fn set_clock_skew(&self, ns: i64) {
        self.core.lock().nodes[self.id as usize].skew_ns = ns;
    }

    /// How fast the monotonic clock goes, in millionths of the world's. To be said before anything runs.
    pub fn set_clock_rate(&self, ppm: u64) {
        assert!(ppm > 0);
        self.core.lock().nodes[self.id as usize].rate_ppm = ppm;
    }

    /// How long blocking calls (flushes) take, in microseconds.
    /// Returns what it was.
    pub fn set_blocking_time(&self, min_us: u64, max_us: u64) -> (u64, u64) {
        assert!(min_us <= max_us);
        std::mem::replace(&mut self.core.lock().nodes[self.id as usize].blocking_us, (min_us, max_us))
    }
}

impl Handle {
    /// One way or both: what `from` sends to `to` is held up until [`Handle::heal`].
    pub fn partition(&self, from: &Node, to: &Node, both: bool) {
        let mut s = self.core.lock();
        s.net.block(from.id(), to.id());
        if both {
            s.net.block(to.id(), from.id());
        }
        s.trace.count(if both { "partition" } else { "partition_one_way" });
    }

    /// The next answer to connect that tells `to` that it was evicted does not arrive.
    pub fn lose_word_of_eviction(&self, to: &Node) {
        self.core.lock().net.untold = crate::net::Untold::To(to.id());
    }

    /// Whether it was lost, and the server that sent it is `from`. No other one is lost then.
    pub fn word_of_eviction_was_lost(&self, from: &Node) -> bool {
        self.core.lock().net.untold == crate::net::Untold::From(from.id())
    }

    /// Nothing of the kind any more.
    pub fn keep_word_of_eviction(&self) {
        self.core.lock().net.untold = crate::net::Untold::Off;
    }

    /// Ends all partitions.
    pub fn heal(&self) {
        self.core.lock().net_heal();
    }

    pub fn set_net_faults(&self, f: crate::NetFaults) {
        self.core.lock().net.faults = f;
    }

    /// Resets one living connection, whichever the seed picks. False: there is none.
    pub fn reset_some_connection(&self) -> bool {
        let wake = self.core.lock().net_reset_some();
        let any = wake.is_some();
        wake.into_iter().flatten().for_each(std::task::Waker::wake);
        any
    }
}

struct SimRand {
    core: Arc<Core>,
}

impl Rand for SimRand {
    fn fill(&self, buf: &mut [u8]) {
        self.core.lock().rng.fill(buf);
    }
}

struct SimSpawn {
    core: Arc<Core>,
    node: u32,
    life: u64,
}

/// A blocking call under way.
pub(crate) struct Work {
    node: u32,
    life: u64,
    f: Box<dyn FnOnce() + Send>,
    done: Arc<Mutex<Done>>,
}

#[derive(Default)]
struct Done {
    ready: bool,
    waker: Option<std::task::Waker>,
}

impl Work {
    pub(crate) fn run(self, core: &Core) {
        {
            let mut s = core.lock();
            let n = &mut s.nodes[self.node as usize];
            if n.life == self.life && n.paused {
                n.parked_work.push(self);
                return;
            }
            if n.life != self.life {
                drop(s);
                return;
            }
            s.running = self.node;
        }
        (self.f)();
        core.lock().running = 0;
        let waker = {
            let mut d = crate::executor::lock(&self.done);
            d.ready = true;
            d.waker.take()
        };
        if let Some(w) = waker {
            w.wake();
        }
    }
}

impl Spawn for SimSpawn {
    fn spawn(&self, _name: &'static str, f: BoxFuture<()>) {
        let alive = self.core.lock().nodes[self.node as usize].life == self.life;
        if alive {
            self.core.spawn(self.node, f);
        }
    }

    fn run_blocking(&self, f: Box<dyn FnOnce() + Send>) -> BoxFuture<()> {
        let done = Arc::new(Mutex::new(Done::default()));
        let mut s = self.core.lock();
        let n = &s.nodes[self.node as usize];
        if n.life == self.life {
            let (min, max) = n.blocking_us;
            let at = s.now + s.rng.range(min * 1000, max * 1000);
            let work = Work { node: self.node, life: self.life, f, done: done.clone() };
            s.set_timer(at, Event::Work(work));
        }
        drop(s);
        Box::pin(std::future::poll_fn(move |cx| {
            let mut d = crate::executor::lock(&done);
            if d.ready {
                std::task::Poll::Ready(())
            } else {
                d.waker = Some(cx.waker().clone());
                std::task::Poll::Pending
            }
        }))
    }
}
