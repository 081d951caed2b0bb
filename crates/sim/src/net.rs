//! The network: connections that keep order, delay packets, break, or fall silent.
//!
//! Frames travel as the bytes that TCP would carry and are decoded where they arrive. A partition holds
//! packets up, as TCP's retransmission does; one that lasts ends the connection, first for the sender.

use crate::clock::sleep;
use crate::executor::{Core, Event, State};
use ::world::inbound::{Received, Share};
use ::world::{BoxFuture, Conn, Listener, Net};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;
use wire::msg::connect::ConnectReply;
use wire::{Frame, FrameKind, ReplyContext};

/// Bytes under way in one direction before the sender waits.
const WINDOW_BYTES: usize = 4 << 20;
/// A sender whose packets are held up so long gives the connection up (TCP's user timeout) …
const USER_TIMEOUT: Duration = Duration::from_secs(20);
/// … and so does a silent receiver, later (keepalive).
const KEEPALIVE: Duration = Duration::from_secs(22);
/// A first packet that nobody answers is sent again after so long, as Linux does …
const CONNECT_AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// … and then given up.
const CONNECT_LAST: Duration = Duration::from_secs(2);
const BACKLOG: usize = 1024;
/// Packets of a broken connection are under way for so long at most.
const LATE_MAX: Duration = Duration::from_secs(4);

/// Delays and faults of every link; rates are chances in a million.
#[derive(Clone, Debug)]
pub struct NetFaults {
    pub delay_min_us: u64,
    pub delay_max_us: u64,
    /// A packet is late by up to `slow_us` …
    pub slow_ppm: u32,
    pub slow_us: u64,
    /// The connection breaks when a frame is sent; the frame and what is under way may be lost.
    pub reset_ppm: u32,
    /// A bit of a frame flips under way, past TCP's checksum.
    pub corrupt_ppm: u32,
    pub refuse_ppm: u32,
    /// A request arrives twice.
    pub duplicate_ppm: u32,
    /// What was under way when a connection broke arrives long after that, behind what the next one carried.
    pub late_ppm: u32,
}

impl Default for NetFaults {
    fn default() -> NetFaults {
        NetFaults {
            delay_min_us: 20,
            delay_max_us: 200,
            slow_ppm: 0,
            slow_us: 0,
            reset_ppm: 0,
            corrupt_ppm: 0,
            refuse_ppm: 0,
            duplicate_ppm: 0,
            late_ppm: 0,
        }
    }
}

#[derive(Default)]
pub(crate) struct Network {
    pub(crate) faults: NetFaults,
    pub(crate) owners: BTreeMap<IpAddr, u32>,
    blocked: BTreeSet<(u32, u32)>,
    listeners: BTreeMap<SocketAddr, Accepting>,
    conns: BTreeMap<u64, Link>,
    next: u64,
    pub(crate) untold: Untold,
}

/// Of an answer to connect that tells a client of its eviction, and does not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Untold {
    #[default]
    Off,
    /// The next one to this client's node.
    To(u32),
    /// It was one of this server's node.
    From(u32),
}

struct Accepting {
    id: u64,
    node: u32,
    queue: VecDeque<u64>,
    waker: Option<Waker>,
}

struct Link {
    ends: [End; 2],
}

enum Packet {
    Frame(Vec<u8>),
    Fin,
}

struct End {
    node: u32,
    addr: SocketAddr,
    /// The user's handle is gone, or never came to be.
    closed: bool,
    dead: Option<io::ErrorKind>,
    /// Under way to the other end.
    flight: VecDeque<Packet>,
    flight_bytes: usize,
    last_arrival: u64,
    stalled: Option<u64>,
    inbox: VecDeque<Vec<u8>>,
    eof: bool,
    receiver: Option<Waker>,
    senders: Vec<Waker>,
}

impl End {
    fn new(node: u32, addr: SocketAddr) -> End {
        End {
            node,
            addr,
            closed: false,
            dead: None,
            flight: VecDeque::new(),
            flight_bytes: 0,
            last_arrival: 0,
            stalled: None,
            inbox: VecDeque::new(),
            eof: false,
            receiver: None,
            senders: Vec::new(),
        }
    }

    fn wakers(&mut self) -> Vec<Waker> {
        self.receiver.take().into_iter().chain(self.senders.drain(..)).collect()
    }
}

impl Network {
    pub(crate) fn block(&mut self, from: u32, to: u32) {
        self.blocked.insert((from, to));
    }
}

impl State {
    fn delay(&mut self) -> u64 {
        let f = &self.net.faults;
        let (min, max, slow, slow_us) = (f.delay_min_us, f.delay_max_us, f.slow_ppm, f.slow_us);
        let mut us = self.rng.range(min * 1000, max * 1000);
        if self.rng.chance(slow) {
            us += self.rng.below(slow_us * 1000 + 1);
            self.trace.count("net_slow_packet");
        }
        us
    }

    /// Queues a packet from `end` and sets the timer of its arrival.
    fn launch(&mut self, conn: u64, end: usize, p: Packet) {
        let delay = self.delay();
        let now = self.now;
        let Some(link) = self.net.conns.get_mut(&conn) else { return };
        let e = &mut link.ends[end];
        if let Packet::Frame(b) = &p {
            e.flight_bytes += b.len();
        }
        e.flight.push_back(p);
        e.last_arrival = (now + delay).max(e.last_arrival);
        let at = e.last_arrival;
        if e.stalled.is_none() {
            self.set_timer(at, Event::Deliver { conn, end });
        }
    }

    /// One packet arrives, unless a partition holds it up.
    pub(crate) fn deliver(&mut self, conn: u64, end: usize) -> Vec<Waker> {
        let now = self.now;
        let Some(link) = self.net.conns.get_mut(&conn) else { return Vec::new() };
        let [a, b] = &mut link.ends;
        let (from, to) = if end == 0 { (a, b) } else { (b, a) };
        if from.stalled.is_some() || from.flight.is_empty() {
            return Vec::new();
        }
        if self.net.blocked.contains(&(from.node, to.node)) {
            from.stalled = Some(now);
            self.trace.count("net_held_up");
            let wait = USER_TIMEOUT.as_nanos() as u64;
            self.set_timer(now + wait, Event::Stalled { conn, end, since: now });
            return Vec::new();
        }
        let mut wake = Vec::new();
        match from.flight.pop_front() {
            Some(Packet::Frame(bytes)) => {
                self.trace.add(fold(&bytes) ^ conn << 1 ^ end as u64);
                if to.closed && self.nodes[to.node as usize].up {
                    // Whoever sends to a closed socket gets a reset.
                    return self.reset_end(conn, end, io::ErrorKind::ConnectionReset);
                }
                if !to.closed && to.dead.is_none() {
                    to.inbox.push_back(bytes);
                }
            }
            Some(Packet::Fin) => {
                to.eof = true;
                wake.append(&mut to.senders);
            }
            None => {}
        }
        wake.extend(to.receiver.take());
        self.net_forget(conn);
        wake
    }

    /// `end` finds the connection broken.
    pub(crate) fn reset_end(&mut self, conn: u64, end: usize, why: io::ErrorKind) -> Vec<Waker> {
        let Some(link) = self.net.conns.get_mut(&conn) else { return Vec::new() };
        let e = &mut link.ends[end];
        let mut wake = Vec::new();
        if e.dead.is_none() {
            e.dead = Some(why);
            wake = e.wakers();
        }
        self.net_forget(conn);
        wake
    }

    /// A partition has lasted: the sender gives up, the receiver a little later.
    pub(crate) fn stalled(&mut self, conn: u64, end: usize, since: u64) -> Vec<Waker> {
        let now = self.now;
        let Some(link) = self.net.conns.get_mut(&conn) else { return Vec::new() };
        if link.ends[end].stalled != Some(since) {
            return Vec::new();
        }
        link.ends[end].flight.clear();
        self.trace.count("net_user_timeout");
        let later = (KEEPALIVE - USER_TIMEOUT).as_nanos() as u64;
        self.set_timer(now + later, Event::Reset { conn, end: 1 - end });
        self.reset_end(conn, end, io::ErrorKind::TimedOut)
    }

    pub(crate) fn net_heal(&mut self) {
        self.net.blocked.clear();
        let ids: Vec<u64> = self.net.conns.keys().copied().collect();
        for conn in ids {
            for end in 0..2 {
                let Some(link) = self.net.conns.get_mut(&conn) else { continue };
                if link.ends[end].stalled.take().is_none() {
                    continue;
                }
                let n = link.ends[end].flight.len();
                let mut at = self.now;
                for _ in 0..n {
                    at += self.delay();
                    self.set_timer(at, Event::Deliver { conn, end });
                }
                if let Some(link) = self.net.conns.get_mut(&conn) {
                    link.ends[end].last_arrival = at;
                }
            }
        }
    }

    /// A node is gone: its ends vanish, the other ends hear of it within `late`.
    pub(crate) fn net_down(&mut self, node: u32, late: Duration) -> Vec<Waker> {
        let mut wake = Vec::new();
        let gone: Vec<SocketAddr> =
            self.net.listeners.iter().filter(|(_, l)| l.node == node).map(|(a, _)| *a).collect();
        for a in gone {
            let l = self.net.listeners.remove(&a).expect("just seen");
            wake.extend(l.waker);
        }
        let hit: Vec<(u64, usize)> = self
            .net
            .conns
            .iter()
            .flat_map(|(&id, l)| (0..2).filter(move |&e| l.ends[e].node == node).map(move |e| (id, e)))
            .collect();
        for (conn, end) in hit {
            // What it sent before it died may still arrive.
            let lost = self.rng.coin();
            let delay = self.delay();
            let at = self.now + delay + late.as_nanos() as u64;
            let Some(link) = self.net.conns.get_mut(&conn) else { continue };
            let e = &mut link.ends[end];
            e.closed = true;
            e.dead = Some(io::ErrorKind::ConnectionReset);
            e.inbox.clear();
            wake.extend(e.wakers());
            if lost {
                e.flight.clear();
            }
            let at = if lost { at } else { at.max(e.last_arrival) };
            self.set_timer(at, Event::Reset { conn, end: 1 - end });
        }
        wake
    }

    pub(crate) fn net_reset_some(&mut self) -> Option<Vec<Waker>> {
        let living: Vec<u64> = self
            .net
            .conns
            .iter()
            .filter(|(_, l)| l.ends.iter().all(|e| e.dead.is_none() && !e.closed))
            .map(|(id, _)| *id)
            .collect();
        if living.is_empty() {
            return None;
        }
        let conn = *self.rng.pick(&living);
        Some(self.break_link(conn))
    }

    /// The connection breaks for both ends, now and soon. What one end has under way may still arrive.
    fn break_link(&mut self, conn: u64) -> Vec<Waker> {
        self.trace.count("net_reset");
        let first = self.rng.index(2);
        let (lost, delay) = ([self.rng.coin(), self.rng.coin()], self.delay());
        let now = self.now;
        if self.rng.chance(self.net.faults.late_ppm) {
            // The server lets go of the old connection as soon as the client is back: mostly just before
            // that.
            let most = *self.rng.pick(&[300_000, 3_000_000, 100_000_000, LATE_MAX.as_nanos() as u64]);
            let late = self.rng.range(1, most);
            let link = self.net.conns.get_mut(&conn);
            if let Some(link) = link.filter(|l| !l.ends[0].flight.is_empty() && l.ends[0].stalled.is_none()) {
                link.ends[0].stalled = Some(now);
                self.set_timer(now + late, Event::Late { conn });
                return self.reset_end(conn, 0, io::ErrorKind::ConnectionReset);
            }
        }
        let Some(link) = self.net.conns.get_mut(&conn) else { return Vec::new() };
        for (e, lost) in link.ends.iter_mut().zip(lost) {
            if lost {
                e.flight.clear();
            }
        }
        let at = (now + delay).max(link.ends[first].last_arrival);
        self.set_timer(at, Event::Reset { conn, end: 1 - first });
        self.reset_end(conn, first, io::ErrorKind::ConnectionReset)
    }

    /// What a client had sent before its connection broke arrives; then the server hears of the break.
    pub(crate) fn late(&mut self, conn: u64) -> Vec<Waker> {
        let Some(link) = self.net.conns.get_mut(&conn) else { return Vec::new() };
        link.ends[0].stalled = None;
        let mut wake = Vec::new();
        while self.net.conns.get(&conn).is_some_and(|l| !l.ends[0].flight.is_empty()) {
            if self.net.conns[&conn].ends[0].stalled.is_some() {
                // A partition by now.
                return wake;
            }
            self.trace.count("net_reorder");
            wake.extend(self.deliver(conn, 0));
        }
        let at = self.now + self.delay();
        self.set_timer(at, Event::Reset { conn, end: 1 });
        wake
    }

    /// The user lets go of his end.
    fn close_end(&mut self, conn: u64, end: usize) -> Vec<Waker> {
        let Some(link) = self.net.conns.get_mut(&conn) else { return Vec::new() };
        let e = &mut link.ends[end];
        if e.closed {
            return Vec::new();
        }
        e.closed = true;
        e.inbox.clear();
        let wake = e.wakers();
        if e.dead.is_none() {
            self.launch(conn, end, Packet::Fin);
        }
        self.net_forget(conn);
        wake
    }

    /// Drops a link that neither end can use any more.
    fn net_forget(&mut self, conn: u64) {
        if self.net.conns.get(&conn).is_some_and(|l| l.ends.iter().all(|e| e.closed)) {
            self.net.conns.remove(&conn);
        }
    }
}

/// Enough of a frame to tell it from any other: the header holds checksums of itself and the body.
fn fold(bytes: &[u8]) -> u64 {
    let mut h = bytes.len() as u64;
    for w in bytes.chunks(8).take(8) {
        let mut b = [0; 8];
        b[..w.len()].copy_from_slice(w);
        h = h.rotate_left(23) ^ u64::from_le_bytes(b);
    }
    h
}

pub(crate) struct SimNet {
    pub(crate) core: Arc<Core>,
    pub(crate) node: u32,
    pub(crate) life: u64,
}

impl SimNet {
    fn alive(&self, s: &State) -> bool {
        s.nodes[self.node as usize].life == self.life
    }
}

fn dead_node() -> io::Error {
    io::Error::other("this node has crashed")
}

/// What the host with an address is called, for ever.
pub(crate) fn name_of(addr: IpAddr) -> String {
    format!("host-{}", addr.to_string().replace('.', "-"))
}

impl Net for SimNet {
    fn resolve(&self, name: &str) -> BoxFuture<io::Result<Vec<IpAddr>>> {
        let found = name.strip_prefix("host-").and_then(|n| n.replace('-', ".").parse().ok());
        Box::pin(async move { found.map(|a| vec![a]).ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }

    fn listen(&self, at: SocketAddr) -> BoxFuture<io::Result<Arc<dyn Listener>>> {
        let result = {
            let mut s = self.core.lock();
            if !self.alive(&s) {
                Err(dead_node())
            } else if s.net.owners.get(&at.ip()) != Some(&self.node) {
                Err(io::ErrorKind::AddrNotAvailable.into())
            } else if s.net.listeners.contains_key(&at) {
                Err(io::ErrorKind::AddrInUse.into())
            } else {
                s.net.next += 1;
                let id = s.net.next;
                let l = Accepting { id, node: self.node, queue: VecDeque::new(), waker: None };
                s.net.listeners.insert(at, l);
                Ok(Arc::new(SimListener { core: self.core.clone(), at, id }) as Arc<dyn Listener>)
            }
        };
        Box::pin(std::future::ready(result))
    }

    fn connect(&self, from: Option<IpAddr>, to: SocketAddr) -> BoxFuture<io::Result<Arc<dyn Conn>>> {
        let (core, node, life) = (self.core.clone(), self.node, self.life);
        Box::pin(async move {
            // Nobody answers for a machine without power; one whose process died refuses.
            let no_power = core.lock().rng.coin();
            let mut again = CONNECT_AGAIN.iter();
            let delay = loop {
                let sent = core.lock().first_packet(node, life, to, no_power)?;
                match sent {
                    Some(delay) => break delay,
                    None => match again.next() {
                        Some(later) => sleep(&core, *later).await,
                        None => {
                            sleep(&core, CONNECT_LAST).await;
                            return Err(io::ErrorKind::TimedOut.into());
                        }
                    },
                }
            };
            sleep(&core, Duration::from_nanos(delay)).await;
            let (conn, wake) = establish(&core, node, life, from, to)?;
            if let Some(w) = wake {
                w.wake();
            }
            Ok(Arc::new(SimConn { core, conn, end: 0, peer: to }) as Arc<dyn Conn>)
        })
    }
}

impl State {
    /// How long a first packet is under way; `None` if nothing comes back. A machine that is down has
    /// `no_power`, or no server only.
    fn first_packet(
        &mut self,
        node: u32,
        life: u64,
        to: SocketAddr,
        no_power: bool,
    ) -> io::Result<Option<u64>> {
        if self.nodes[node as usize].life != life {
            return Err(dead_node());
        }
        let Some(&peer) = self.net.owners.get(&to.ip()) else {
            return Err(io::ErrorKind::HostUnreachable.into());
        };
        let cut = self.net.blocked.contains(&(node, peer)) || self.net.blocked.contains(&(peer, node));
        let silent = !self.nodes[peer as usize].up && no_power;
        Ok((!cut && !silent).then(|| self.delay()))
    }
}

fn establish(
    core: &Core,
    node: u32,
    life: u64,
    from: Option<IpAddr>,
    to: SocketAddr,
) -> io::Result<(u64, Option<Waker>)> {
    let mut s = core.lock();
    let s = &mut *s;
    if s.nodes[node as usize].life != life {
        return Err(dead_node());
    }
    let own = &s.nodes[node as usize].addrs;
    let ip = match from {
        Some(ip) if own.contains(&ip) => ip,
        None if !own.is_empty() => own[0],
        _ => return Err(io::ErrorKind::AddrNotAvailable.into()),
    };
    if s.rng.chance(s.net.faults.refuse_ppm) {
        s.trace.count("net_refused");
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    s.net.next += 1;
    let id = s.net.next;
    let peer = match s.net.listeners.get_mut(&to) {
        Some(l) if l.queue.len() < BACKLOG && s.nodes[l.node as usize].up => l,
        _ => return Err(io::ErrorKind::ConnectionRefused.into()),
    };
    peer.queue.push_back(id);
    let local = SocketAddr::new(ip, 512 + (id % 512) as u16);
    let ends = [End::new(node, local), End::new(peer.node, to)];
    let wake = peer.waker.take();
    s.net.conns.insert(id, Link { ends });
    s.trace.add(id << 16 | 7);
    Ok((id, wake))
}

struct SimListener {
    core: Arc<Core>,
    at: SocketAddr,
    id: u64,
}

impl Listener for SimListener {
    fn accept(&self) -> BoxFuture<io::Result<Arc<dyn Conn>>> {
        let (core, at, id) = (self.core.clone(), self.at, self.id);
        Box::pin(std::future::poll_fn(move |cx| {
            let mut s = core.lock();
            let Some(l) = s.net.listeners.get_mut(&at).filter(|l| l.id == id) else {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            };
            let Some(conn) = l.queue.pop_front() else {
                l.waker = Some(cx.waker().clone());
                return Poll::Pending;
            };
            let Some(peer) = s.net.conns.get(&conn).map(|l| l.ends[0].addr) else {
                // It was over before anybody looked.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            };
            drop(s);
            Poll::Ready(Ok(Arc::new(SimConn { core: core.clone(), conn, end: 1, peer }) as Arc<dyn Conn>))
        }))
    }

    fn local_addr(&self) -> SocketAddr {
        self.at
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let (old, mut wake) = {
            let mut s = self.core.lock();
            if s.net.listeners.get(&self.at).is_none_or(|l| l.id != self.id) {
                return;
            }
            let old = s.net.listeners.remove(&self.at).expect("just seen");
            let mut wake = Vec::new();
            for conn in &old.queue {
                wake.extend(s.close_end(*conn, 1));
            }
            (old, wake)
        };
        wake.extend(old.waker);
        wake.into_iter().for_each(Waker::wake);
    }
}

struct SimConn {
    core: Arc<Core>,
    conn: u64,
    end: usize,
    peer: SocketAddr,
}

impl SimConn {
    fn let_go(&self) {
        let wake = self.core.lock().close_end(self.conn, self.end);
        wake.into_iter().for_each(Waker::wake);
    }
}

fn closed_here() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was closed on this side")
}

fn link_client(s: &State, conn: u64) -> Option<u32> {
    s.net.conns.get(&conn).map(|l| l.ends[0].node)
}

/// An answer to connect that says that the client is new.
fn tells_of_eviction(bytes: &[u8]) -> bool {
    let Ok((f, _)) = Frame::decode(bytes) else { return false };
    let answer = f.header.kind == FrameKind::ConnectReply && f.header.status == 0;
    answer && wire::decode_body::<ReplyContext, ConnectReply>(&f.body).is_ok_and(|(_, r)| r.new_client)
}

/// Takes the frame if the window has room.
fn try_send(
    s: &mut State,
    conn: u64,
    end: usize,
    bytes: &mut Option<Vec<u8>>,
) -> (Option<io::Result<()>>, Vec<Waker>) {
    let Some(link) = s.net.conns.get_mut(&conn) else { return (Some(Err(closed_here())), Vec::new()) };
    let e = &link.ends[end];
    if let Some(kind) = e.dead {
        return (Some(Err(kind.into())), Vec::new());
    }
    if e.closed {
        return (Some(Err(closed_here())), Vec::new());
    }
    if e.flight_bytes > WINDOW_BYTES {
        return (None, Vec::new());
    }
    let mut bytes = bytes.take().expect("sent once");
    let mut wake = Vec::new();
    if s.rng.chance(s.net.faults.corrupt_ppm) {
        let bit = s.rng.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        s.trace.count("net_bit_flip");
    }
    let breaks = s.rng.chance(s.net.faults.reset_ppm);
    let is_request = |b: &[u8]| Frame::decode(b).is_ok_and(|(f, _)| f.header.kind == FrameKind::Request);
    if s.rng.chance(s.net.faults.duplicate_ppm) && is_request(&bytes) {
        s.trace.count("net_duplicate");
        s.launch(conn, end, Packet::Frame(bytes.clone()));
    }
    let client = link_client(s, conn);
    if end == 1 && Some(s.net.untold) == client.map(Untold::To) && tells_of_eviction(&bytes) {
        s.trace.count("eviction_untold");
        s.net.untold = s.net.conns.get(&conn).map_or(Untold::Off, |l| Untold::From(l.ends[1].node));
        return (Some(Ok(())), s.break_link(conn));
    }
    s.launch(conn, end, Packet::Frame(bytes));
    if breaks {
        wake = s.break_link(conn);
    }
    (Some(Ok(())), wake)
}

impl Conn for SimConn {
    fn send(&self, f: Frame) -> BoxFuture<io::Result<()>> {
        let (core, conn, end) = (self.core.clone(), self.conn, self.end);
        let mut bytes = Some(f.encode());
        Box::pin(std::future::poll_fn(move |cx| {
            let mut s = core.lock();
            let (result, wake) = try_send(&mut s, conn, end, &mut bytes);
            if result.is_none()
                && let Some(l) = s.net.conns.get_mut(&conn)
            {
                l.ends[end].senders.push(cx.waker().clone());
            }
            drop(s);
            wake.into_iter().for_each(Waker::wake);
            result.map_or(Poll::Pending, Poll::Ready)
        }))
    }

    fn recv(&self) -> BoxFuture<io::Result<Frame>> {
        let (core, conn, end) = (self.core.clone(), self.conn, self.end);
        Box::pin(std::future::poll_fn(move |cx| {
            let mut s = core.lock();
            let Some(link) = s.net.conns.get_mut(&conn) else { return Poll::Ready(Err(closed_here())) };
            let e = &mut link.ends[end];
            if e.closed {
                return Poll::Ready(Err(closed_here()));
            }
            if let Some(bytes) = e.inbox.pop_front() {
                let other = &mut link.ends[1 - end];
                other.flight_bytes = other.flight_bytes.saturating_sub(bytes.len());
                let wake = std::mem::take(&mut other.senders);
                drop(s);
                wake.into_iter().for_each(Waker::wake);
                let frame = Frame::decode(&bytes).map(|(f, _)| f);
                return Poll::Ready(
                    frame.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string())),
                );
            }
            if let Some(kind) = e.dead {
                return Poll::Ready(Err(kind.into()));
            }
            if e.eof {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            e.receiver = Some(cx.waker().clone());
            Poll::Pending
        }))
    }

    fn recv_within(&self, share: &Arc<Share>) -> BoxFuture<io::Result<Received>> {
        let (next, share, core) = (self.recv(), share.clone(), self.core.clone());
        Box::pin(async move {
            let received = share.admit(next.await?);
            if matches!(received, Received::Dropped(_)) {
                core.lock().trace.count("no_memory");
            }
            Ok(received)
        })
    }

    fn close(&self) {
        self.let_go();
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }
}

impl Drop for SimConn {
    fn drop(&mut self) {
        self.let_go();
    }
}
