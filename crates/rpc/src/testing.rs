//! A small deterministic world for tests: one thread, virtual time, a network in memory that cuts, delays
//! and swallows on request. (The whole cluster's simulator is `sim`; this one knows only sessions.)

use model::Timestamp;
use model::mutex::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use wire::Frame;
use world::rng::Rng;
use world::sys::process;
use world::{BoxFuture, Clock, Conn, Disk, Instant, Listener, Net, Rand, Spawn, World};

/// Virtual time after which a test is taken to hang.
const PATIENCE_NS: u64 = 3_600_000_000_000;

/// How long a test may take that runs in a process of its own.
const PROCESS_PATIENCE: Duration = Duration::from_secs(300);

/// A planted bug is found: the test of this program that plants it, and is ignored otherwise, fails in a
/// process of its own, where it says so.
pub fn finds(test: &str, words: &str) {
    let exe = process::own_executable().expect("a test is a program");
    let args = ["--exact", test, "--ignored"];
    let ended = process::run_within(&exe.to_string_lossy(), &args, PROCESS_PATIENCE).expect("it ends");
    let said = format!("{}{}", ended.out, ended.err);
    assert!(said.contains("test result: FAILED. 0 passed; 1 failed"), "{test} finds nothing:\n{said}");
    assert!(said.contains(words), "{test} fails elsewhere than at '{words}':\n{said}");
}

/// Faults of the network.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Chances in a million that sending a frame breaks its connection instead, before or after delivery.
    pub cut_ppm: u32,
    /// Longest delay of a frame.
    pub delay_max_us: u64,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults { cut_ppm: 0, delay_max_us: 100 }
    }
}

#[derive(Clone)]
pub struct Lab {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
}

struct Task {
    node: u64,
    /// Taken out while it is polled.
    future: Option<BoxFuture<()>>,
}

struct State {
    now: u64,
    /// What [`Clock::jumped`] says.
    jumped: u64,
    rng: Rng,
    next_id: u64,
    tasks: BTreeMap<u64, Task>,
    ready: BTreeSet<u64>,
    timers: BTreeMap<(u64, u64), Waker>,
    faults: Faults,
    listeners: BTreeMap<SocketAddr, Backlog>,
    conns: BTreeMap<u64, Pair>,
    /// Addresses whose frames vanish.
    silent: BTreeSet<IpAddr>,
    /// Connections come from ports that an ordinary user can have.
    user_ports: bool,
    /// What hosts are called.
    names: BTreeMap<String, Vec<IpAddr>>,
    cuts: u64,
}

#[derive(Default)]
struct Backlog {
    waiting: VecDeque<Arc<dyn Conn>>,
    waker: Option<Waker>,
}

/// Both directions of a connection; index 0 is the connecting side.
struct Pair {
    addr: [SocketAddr; 2],
    /// Frames towards each side, with their time of arrival.
    inbox: [VecDeque<(u64, Vec<u8>)>; 2],
    waker: [Option<Waker>; 2],
    closed: bool,
}

struct TaskWaker {
    id: u64,
    inner: Arc<Inner>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.inner.lock().ready.insert(self.id);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

fn break_pair(g: &mut State, id: u64) -> Vec<Waker> {
    let Some(p) = g.conns.get_mut(&id) else { return Vec::new() };
    p.closed = true;
    p.waker.iter_mut().filter_map(Option::take).collect()
}

impl Lab {
    pub fn new(seed: u64) -> Lab {
        let state = State {
            now: 1_000_000,
            jumped: 0,
            rng: Rng::new(seed),
            next_id: 0,
            tasks: BTreeMap::new(),
            ready: BTreeSet::new(),
            timers: BTreeMap::new(),
            faults: Faults::default(),
            listeners: BTreeMap::new(),
            conns: BTreeMap::new(),
            silent: BTreeSet::new(),
            user_ports: false,
            names: BTreeMap::new(),
            cuts: 0,
        };
        Lab { inner: Arc::new(Inner { state: Mutex::new(state) }) }
    }

    /// A node's world, and the number by which [`Lab::kill`] knows it.
    pub fn node(&self, ip: IpAddr, disk: Arc<dyn Disk>) -> (World, u64) {
        let node = self.inner.lock().id();
        let host = Arc::new(Host { inner: self.inner.clone(), ip, node });
        let world = World { clock: host.clone(), net: host.clone(), disk, rand: host.clone(), tasks: host };
        (world, node)
    }

    pub fn faults(&self, f: Faults) {
        self.inner.lock().faults = f;
    }

    pub fn random(&self, below: u64) -> u64 {
        self.inner.lock().rng.below(below)
    }

    pub fn cuts(&self) -> u64 {
        self.inner.lock().cuts
    }

    /// Every node finds that its clocks may have stood still until now.
    pub fn jump(&self) {
        let mut g = self.inner.lock();
        g.jumped = g.now + 1;
    }

    /// Frames from and to this address vanish without a word.
    pub fn silence(&self, ip: IpAddr, on: bool) {
        let mut g = self.inner.lock();
        if on {
            g.silent.insert(ip);
        } else {
            g.silent.remove(&ip);
        }
    }

    /// Breaks every connection of an address.
    pub fn cut(&self, ip: IpAddr) {
        let mut wake = Vec::new();
        {
            let mut g = self.inner.lock();
            let ids: Vec<u64> = g
                .conns
                .iter()
                .filter(|(_, p)| p.addr.iter().any(|a| a.ip() == ip))
                .map(|(i, _)| *i)
                .collect();
            for id in ids {
                wake.extend(break_pair(&mut g, id));
            }
        }
        wake.into_iter().for_each(Waker::wake);
    }

    /// What a host is called from now on; without addresses: nobody knows the name.
    pub fn name(&self, name: &str, addresses: &[IpAddr]) {
        let mut g = self.inner.lock();
        g.names.remove(name);
        if !addresses.is_empty() {
            g.names.insert(name.to_string(), addresses.to_vec());
        }
    }

    /// From now on connections come from ports that an ordinary user can have.
    pub fn user_ports(&self, on: bool) {
        self.inner.lock().user_ports = on;
    }

    /// kill -9 of a node: its tasks, listeners and connections are gone.
    pub fn kill(&self, node: u64, ip: IpAddr) {
        let gone: Vec<Task> = {
            let mut g = self.inner.lock();
            g.listeners.retain(|a, _| a.ip() != ip);
            let ids: Vec<u64> = g.tasks.iter().filter(|(_, t)| t.node == node).map(|(i, _)| *i).collect();
            ids.iter().filter_map(|i| g.tasks.remove(i)).collect()
        };
        drop(gone);
        self.cut(ip);
    }

    /// Runs everything until `f` is ready.
    ///
    /// # Panics
    /// If nothing can run any more, or an hour of virtual time passed.
    pub fn run<T>(&self, f: impl Future<Output = T>) -> T {
        // One loop is compiled for each type of result, not for each future.
        let mut main: Pin<&mut dyn Future<Output = T>> = pin!(f);
        let waker = Waker::from(Arc::new(TaskWaker { id: 0, inner: self.inner.clone() }));
        self.inner.lock().ready.insert(0);
        let end = self.inner.lock().now + PATIENCE_NS;
        loop {
            let Some(id) = self.next() else { panic!("deadlock: nothing left to run") };
            assert!(self.inner.lock().now < end, "an hour of virtual time passed");
            if id == 0 {
                if let Poll::Ready(v) = main.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return v;
                }
            } else {
                self.step(id);
            }
        }
    }

    /// The task to poll next, by chance among those that are ready; moves time on if none is.
    fn next(&self) -> Option<u64> {
        loop {
            let wakers = {
                let mut g = self.inner.lock();
                if !g.ready.is_empty() {
                    let n = g.ready.len();
                    let k = g.rng.index(n);
                    let id = *g.ready.iter().nth(k).expect("the index is below the length");
                    g.ready.remove(&id);
                    return Some(id);
                }
                let (&(at, _), _) = g.timers.first_key_value()?;
                g.now = g.now.max(at);
                let mut due = Vec::new();
                while let Some(e) = g.timers.first_entry() {
                    if e.key().0 > at {
                        break;
                    }
                    due.push(e.remove());
                }
                due
            };
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    fn step(&self, id: u64) {
        let Some(mut f) = self.inner.lock().tasks.get_mut(&id).and_then(|t| t.future.take()) else { return };
        let waker = Waker::from(Arc::new(TaskWaker { id, inner: self.inner.clone() }));
        if f.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            let mut g = self.inner.lock();
            if let Some(t) = g.tasks.get_mut(&id) {
                t.future = Some(f);
                return;
            }
            drop(g);
            drop(f); // its node was killed meanwhile
        } else {
            let done = self.inner.lock().tasks.remove(&id);
            drop(done);
        }
    }
}

struct Host {
    inner: Arc<Inner>,
    ip: IpAddr,
    node: u64,
}

struct Sleep {
    inner: Arc<Inner>,
    until: u64,
    seq: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let inner = self.inner.clone();
        let mut g = inner.lock();
        if g.now >= self.until {
            return Poll::Ready(());
        }
        let seq = *self.seq.get_or_insert_with(|| g.id());
        g.timers.insert((self.until, seq), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(seq) = self.seq {
            let gone = self.inner.lock().timers.remove(&(self.until, seq));
            drop(gone);
        }
    }
}

impl Clock for Host {
    fn now(&self) -> Instant {
        Instant(self.inner.lock().now)
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_nanos(1_700_000_000_000_000_000 + i128::from(self.inner.lock().now))
    }

    fn jumped(&self) -> Instant {
        Instant(self.inner.lock().jumped)
    }

    fn sleep(&self, d: Duration) -> BoxFuture<()> {
        let until = self.inner.lock().now + d.as_nanos() as u64;
        Box::pin(Sleep { inner: self.inner.clone(), until, seq: None })
    }
}

impl Rand for Host {
    fn fill(&self, buf: &mut [u8]) {
        let mut g = self.inner.lock();
        for b in buf {
            *b = g.rng.u64() as u8;
        }
    }
}

impl Spawn for Host {
    fn spawn(&self, _name: &'static str, f: BoxFuture<()>) {
        let mut g = self.inner.lock();
        let id = g.id();
        g.tasks.insert(id, Task { node: self.node, future: Some(f) });
        g.ready.insert(id);
    }

    fn run_blocking(&self, f: Box<dyn FnOnce() + Send>) -> BoxFuture<()> {
        Box::pin(async move { f() })
    }
}

impl Net for Host {
    fn listen(&self, at: SocketAddr) -> BoxFuture<io::Result<Arc<dyn Listener>>> {
        let inner = self.inner.clone();
        Box::pin(async move {
            let mut g = inner.lock();
            if g.listeners.insert(at, Backlog::default()).is_some() {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            Ok(Arc::new(LabListener { inner: inner.clone(), at }) as Arc<dyn Listener>)
        })
    }

    fn resolve(&self, name: &str) -> BoxFuture<io::Result<Vec<IpAddr>>> {
        let found = self.inner.lock().names.get(name).cloned();
        Box::pin(async { found.ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }

    fn connect(&self, from: Option<IpAddr>, to: SocketAddr) -> BoxFuture<io::Result<Arc<dyn Conn>>> {
        let inner = self.inner.clone();
        let ip = from.unwrap_or(self.ip);
        Box::pin(async move {
            let silent = {
                let g = inner.lock();
                g.silent.contains(&ip) || g.silent.contains(&to.ip())
            };
            if silent {
                std::future::pending::<()>().await;
            }
            let (conn, waker) = {
                let mut g = inner.lock();
                if !g.listeners.contains_key(&to) {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                let id = g.id();
                let port = (id % 512) as u16 + if g.user_ports { 1024 } else { 512 };
                let pair = Pair {
                    addr: [SocketAddr::new(ip, port), to],
                    inbox: [VecDeque::new(), VecDeque::new()],
                    waker: [None, None],
                    closed: false,
                };
                g.conns.insert(id, pair);
                let end = |side| Arc::new(LabConn { inner: inner.clone(), id, side }) as Arc<dyn Conn>;
                let l = g.listeners.get_mut(&to).expect("checked above");
                l.waiting.push_back(end(1));
                (end(0), l.waker.take())
            };
            if let Some(w) = waker {
                w.wake();
            }
            Ok(conn)
        })
    }
}

struct LabListener {
    inner: Arc<Inner>,
    at: SocketAddr,
}

impl Listener for LabListener {
    fn accept(&self) -> BoxFuture<io::Result<Arc<dyn Conn>>> {
        let (inner, at) = (self.inner.clone(), self.at);
        Box::pin(std::future::poll_fn(move |cx| {
            let mut g = inner.lock();
            let Some(l) = g.listeners.get_mut(&at) else {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            };
            match l.waiting.pop_front() {
                Some(c) => Poll::Ready(Ok(c)),
                None => {
                    l.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        }))
    }

    fn local_addr(&self) -> SocketAddr {
        self.at
    }
}

struct LabConn {
    inner: Arc<Inner>,
    id: u64,
    /// 0: connecting side.
    side: usize,
}

impl Conn for LabConn {
    fn send(&self, f: Frame) -> BoxFuture<io::Result<()>> {
        let (inner, id, side) = (self.inner.clone(), self.id, self.side);
        Box::pin(async move {
            let bytes = f.encode();
            let mut wake = Vec::new();
            let result = {
                let mut g = inner.lock();
                let faults = g.faults;
                let at = g.now + g.rng.below(faults.delay_max_us + 1) * 1000;
                let cut = g.rng.below(1_000_000) < u64::from(faults.cut_ppm);
                let lost = g.rng.below(2) == 0;
                let silent = g.silent.clone();
                match g.conns.get_mut(&id) {
                    Some(p) if !p.closed => {
                        let swallowed = p.addr.iter().any(|a| silent.contains(&a.ip()));
                        let dropped = swallowed || (cut && lost);
                        if !dropped {
                            // In order: never before what was sent earlier.
                            let at = p.inbox[1 - side].back().map_or(at, |(t, _)| at.max(*t));
                            p.inbox[1 - side].push_back((at, bytes));
                            wake.extend(p.waker[1 - side].take());
                        }
                        if cut {
                            g.cuts += 1;
                            wake.extend(break_pair(&mut g, id));
                        }
                        Ok(())
                    }
                    _ => Err(io::ErrorKind::BrokenPipe.into()),
                }
            };
            wake.into_iter().for_each(Waker::wake);
            result
        })
    }

    fn recv(&self) -> BoxFuture<io::Result<Frame>> {
        let (inner, id, side) = (self.inner.clone(), self.id, self.side);
        Box::pin(async move {
            loop {
                let until = {
                    let inner = inner.clone();
                    std::future::poll_fn(move |cx| {
                        let mut g = inner.lock();
                        let now = g.now;
                        let Some(p) = g.conns.get_mut(&id) else { return Poll::Ready(Err(eof())) };
                        match p.inbox[side].front() {
                            Some((at, _)) if *at <= now => {
                                let (_, bytes) = p.inbox[side].pop_front().expect("there is one");
                                Poll::Ready(Ok(Err(bytes)))
                            }
                            Some((at, _)) => Poll::Ready(Ok(Ok(*at - now))),
                            None if p.closed => Poll::Ready(Err(eof())),
                            None => {
                                p.waker[side] = Some(cx.waker().clone());
                                Poll::Pending
                            }
                        }
                    })
                    .await?
                };
                match until {
                    Ok(wait) => {
                        let until = inner.lock().now + wait;
                        Sleep { inner: inner.clone(), until, seq: None }.await;
                    }
                    Err(bytes) => {
                        let decoded = Frame::decode(&bytes);
                        return decoded
                            .map(|(f, _)| f)
                            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()));
                    }
                }
            }
        })
    }

    fn close(&self) {
        let wake = break_pair(&mut self.inner.lock(), self.id);
        wake.into_iter().for_each(Waker::wake);
    }

    fn peer(&self) -> SocketAddr {
        self.inner
            .lock()
            .conns
            .get(&self.id)
            .map_or_else(|| SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0), |p| p.addr[1 - self.side])
    }
}

impl Drop for LabConn {
    fn drop(&mut self) {
        self.close();
    }
}

fn eof() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}
