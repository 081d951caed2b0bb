//! Frames over TCP.
//!
//! A sender writes to the socket itself while it takes everything; what the socket does not take waits in
//! a bounded queue for the connection's writer task. Bulk bytes are never copied on their way out, and on
//! their way in only as far as they came together with the header.

use super::Entered;
use super::exec::Exec;
use super::helper;
use super::reactor::{Registration, Side};
use super::reserved;
use super::stream;
use crate::buffer::{self, Buffer};
use crate::inbound::{Received, Room, Share};
use crate::{BoxFuture, Conn, Listener, Net, Stream, StreamListener, lock};
use bytes::{Buf, Bytes, BytesMut};
use model::mutex::Mutex;
use rustix::net::sockopt;
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use wire::frame::{HEADER_BYTES, Lengths};
use wire::{Frame, Header};

/// Bytes a connection may hold for its peer before senders wait, in KiB.
const QUEUE_MAX_KIB: u32 = 64 << 10;
/// Bytes asked of the socket when no frame is under way: most small messages come whole.
const READ_AHEAD_BYTES: usize = 16 << 10;
const LISTEN_BACKLOG: u32 = 1024;
/// A connection that nothing was heard on for so long is probed …
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// … so often, and given up after this many probes without an answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_PROBES: u32 = 4;
/// Sent bytes that the peer's kernel does not acknowledge for so long end the connection.
const USER_TIMEOUT_MS: u32 = 20_000;
/// How long a closed connection goes on sending what it had taken.
const LINGER: Duration = Duration::from_secs(3);
/// Bulk of at least this size is received into memory of its own.
const APART_MIN_BYTES: usize = 128 << 10;
/// Pause of an acceptor while the host has no file descriptors or memory left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bytes and frames that are taken from one connection before others have their turn.
const TURN_BYTES: usize = 4 << 20;
const TURN_FRAMES: usize = 64;

/// A connected socket that does not block.
#[allow(clippy::disallowed_types)] // the production side of the boundary
type Socket = std::net::TcpStream;

pub(super) struct RealNet {
    pub(super) handle: Handle,
    pub(super) exec: Arc<Exec>,
}

impl Net for RealNet {
    fn listen(&self, at: SocketAddr) -> BoxFuture<io::Result<Arc<dyn Listener>>> {
        let (handle, exec) = (self.handle.clone(), self.exec.clone());
        Box::pin(Entered::new(handle.clone(), async move {
            let socket = new_socket(at.ip())?;
            socket.set_reuseaddr(true)?;
            socket.bind(at)?;
            let inner = socket.listen(LISTEN_BACKLOG)?;
            let local = inner.local_addr()?;
            Ok(Arc::new(RealListener { handle, exec, inner: Arc::new(inner), local }) as Arc<dyn Listener>)
        }))
    }

    fn connect(&self, from: Option<IpAddr>, to: SocketAddr) -> BoxFuture<io::Result<Arc<dyn Conn>>> {
        let (handle, exec) = (self.handle.clone(), self.exec.clone());
        Box::pin(Entered::new(handle.clone(), async move {
            let stream = reserved::connect(from, to).await?;
            RealConn::start(&handle, &exec, stream.into_std()?, to)
        }))
    }

    fn stream(&self, to: SocketAddr) -> BoxFuture<io::Result<Arc<dyn Stream>>> {
        stream::connect(&self.handle, to)
    }

    fn listen_streams(&self, at: SocketAddr) -> BoxFuture<io::Result<Arc<dyn StreamListener>>> {
        stream::listen(&self.handle, at)
    }

    fn resolve(&self, name: &str) -> BoxFuture<io::Result<Vec<IpAddr>>> {
        stream::resolve(&self.handle, name)
    }
}

pub(super) fn new_socket(ip: IpAddr) -> io::Result<TcpSocket> {
    match ip {
        IpAddr::V4(_) => TcpSocket::new_v4(),
        IpAddr::V6(_) => TcpSocket::new_v6(),
    }
}

struct RealListener {
    handle: Handle,
    exec: Arc<Exec>,
    inner: Arc<TcpListener>,
    local: SocketAddr,
}

impl Listener for RealListener {
    fn accept(&self) -> BoxFuture<io::Result<Arc<dyn Conn>>> {
        let (handle, exec, inner) = (self.handle.clone(), self.exec.clone(), self.inner.clone());
        Box::pin(Entered::new(handle.clone(), async move {
            loop {
                match inner.accept().await {
                    Ok((stream, peer)) => {
                        let conn = stream
                            .into_std()
                            .and_then(|s| RealConn::start(&handle, &exec, s, unmapped(peer)));
                        match conn {
                            Ok(c) => return Ok(c),
                            Err(e) => tracing::debug!("connection from {peer} was gone at once: {e}"),
                        }
                    }
                    Err(e) => wait_out(e).await?,
                }
            }
        }))
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

/// Errors of accept(2) that concern one connection or pass by themselves.
#[allow(clippy::disallowed_methods)] // the production side of the boundary
pub(super) async fn wait_out(e: io::Error) -> io::Result<()> {
    match e.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
            tracing::warn!("cannot accept connections for the moment: {e}");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            Ok(())
        }
        Some(
            libc::ECONNABORTED
            | libc::EINTR
            | libc::EPROTO
            | libc::EPERM
            | libc::ENETDOWN
            | libc::EHOSTUNREACH,
        ) => Ok(()),
        _ => Err(e),
    }
}

/// `::ffff:10.0.0.1` of a dual-stack socket is 10.0.0.1 to everybody else.
fn unmapped(a: SocketAddr) -> SocketAddr {
    SocketAddr::new(a.ip().to_canonical(), a.port())
}

/// Pieces of a frame that one system call takes.
const SLICES_MAX: usize = 64;

/// A frame, or what is left of it, on its way out.
struct Outbound {
    head: Bytes,
    body: Bytes,
    /// Pieces that follow each other, the first one perhaps begun.
    bulk: VecDeque<Bytes>,
    trailer: Bytes,
    _room: OwnedSemaphorePermit,
}

impl Outbound {
    fn remaining(&self) -> usize {
        self.parts().map(Bytes::len).sum()
    }

    fn parts(&self) -> impl Iterator<Item = &Bytes> {
        [&self.head, &self.body].into_iter().chain(&self.bulk).chain([&self.trailer])
    }

    fn advance(&mut self, mut n: usize) {
        let bulk = self.bulk.iter_mut();
        for part in [&mut self.head, &mut self.body].into_iter().chain(bulk).chain([&mut self.trailer]) {
            let k = n.min(part.len());
            part.advance(k);
            n -= k;
        }
        while self.bulk.front().is_some_and(Bytes::is_empty) {
            self.bulk.pop_front();
        }
        assert!(n == 0, "the socket took more than it was given");
    }
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Outbound>,
    failed: Option<(io::ErrorKind, String)>,
}

impl Queue {
    /// Writes what the socket takes. True: everything is out.
    fn flush(&mut self, mut w: &Socket) -> io::Result<bool> {
        while let Some(front) = self.frames.front_mut() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut count = 0;
            for p in front.parts().filter(|p| !p.is_empty()).take(SLICES_MAX) {
                slices[count] = IoSlice::new(p);
                count += 1;
            }
            match w.write_vectored(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => front.advance(n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if front.remaining() == 0 {
                self.frames.pop_front();
            }
        }
        Ok(true)
    }
}

#[derive(Default)]
struct Reader {
    /// Events up to which the socket was emptied.
    emptied: u64,
    /// Bytes and frames taken since it was found empty.
    bytes: usize,
    frames: usize,
    /// Bytes of the next header and whatever came with it.
    ahead: BytesMut,
    partial: Option<Partial>,
    /// A frame for which there is no room, and how many of its bytes are still to come.
    unwanted: Option<(Header, usize)>,
    /// Longer frames are none.
    at_most: Option<usize>,
}

/// A frame whose header is checked, and its bytes so far.
struct Partial {
    header: Header,
    lengths: Lengths,
    /// The body, and what is behind it unless that is apart.
    first: BytesMut,
    /// The bulk if it is large, and how much of it came: memory of just its size, which can be used again,
    /// and kept without holding more.
    apart: Option<(Buffer, usize)>,
    /// The checksum behind such a bulk.
    trailer: BytesMut,
    room: Option<Room>,
}

impl Partial {
    /// Memory for a frame, and as much of it as came already.
    fn begin(header: Header, lengths: Lengths, room: Option<Room>, ahead: &mut BytesMut) -> Partial {
        let apart = lengths.bulk >= APART_MIN_BYTES;
        let len = if apart { lengths.body } else { lengths.total() };
        let mut first = BytesMut::with_capacity(len);
        first.extend_from_slice(&ahead[..len.min(ahead.len())]);
        ahead.advance(first.len());
        let apart = apart.then(|| {
            let mut b = buffer::bulk(lengths.bulk);
            let have = b.len().min(ahead.len());
            b[..have].copy_from_slice(&ahead[..have]);
            ahead.advance(have);
            (b, have)
        });
        let mut trailer = BytesMut::new();
        if apart.is_some() {
            let have = lengths.trailer().min(ahead.len());
            trailer.extend_from_slice(&ahead.split_to(have));
        }
        Partial { header, lengths, first, apart, trailer, room }
    }

    fn is_whole(&self) -> bool {
        match &self.apart {
            None => self.first.len() == self.lengths.total(),
            Some((b, have)) => {
                self.first.len() == self.lengths.body
                    && *have == b.len()
                    && self.trailer.len() == self.lengths.trailer()
            }
        }
    }

    fn decode(self) -> Result<Received, wire::FrameError> {
        assert!(self.is_whole(), "a frame is decoded when all of it came");
        let frame = match self.apart {
            None => Frame::decode_rest(self.header, self.lengths, self.first.freeze()),
            Some((b, _)) => {
                let (body, bulk) = (self.first.freeze(), b.freeze());
                Frame::decode_apart(self.header, self.lengths, body, bulk, &self.trailer)
            }
        };
        Ok(Received::Frame(frame?, self.room))
    }

    /// Reads once of what is missing; what came, and what was asked for.
    fn fill(&mut self, socket: &Socket) -> io::Result<(usize, usize)> {
        let body = self.lengths.body;
        match &mut self.apart {
            None => recv_more(socket, &mut self.first, self.lengths.total()),
            Some(_) if self.first.len() < body => recv_more(socket, &mut self.first, body),
            Some((b, have)) if *have == b.len() => {
                recv_more(socket, &mut self.trailer, self.lengths.trailer())
            }
            Some((b, have)) => {
                let want = b.len() - *have;
                let (n, _) = rustix::net::recv(socket, &mut b[*have..], rustix::net::RecvFlags::empty())?;
                *have += n;
                Ok((n, want))
            }
        }
    }
}

/// Reads once what is missing to `len` bytes; what came, and what was asked for.
fn recv_more(socket: &Socket, buffer: &mut BytesMut, len: usize) -> io::Result<(usize, usize)> {
    assert!(buffer.len() <= len, "no more of a frame came than it has");
    let want = len - buffer.len();
    buffer.reserve(want);
    let room = &mut buffer.spare_capacity_mut()[..want];
    let ((init, _), _) = rustix::net::recv(socket, room, rustix::net::RecvFlags::empty())?;
    let n = init.len();
    let len = buffer.len() + n;
    // SAFETY: recv(2) initialised the first `n` bytes of the spare capacity.
    #[allow(unsafe_code)]
    unsafe {
        buffer.set_len(len);
    }
    Ok((n, want))
}

struct Shared {
    peer: SocketAddr,
    reader: Mutex<Reader>,
    /// Dropped before the socket.
    events: Registration,
    socket: Socket,
    queue: Mutex<Queue>,
    room: Arc<Semaphore>,
    /// There is something in the queue, or the connection is closing.
    work: Notify,
    closed: AtomicBool,
}

struct RealConn {
    exec: Arc<Exec>,
    shared: Arc<Shared>,
}

impl RealConn {
    fn start(
        timers: &Handle,
        exec: &Arc<Exec>,
        socket: Socket,
        peer: SocketAddr,
    ) -> io::Result<Arc<dyn Conn>> {
        socket.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_PROBES)?;
        sockopt::set_tcp_user_timeout(&socket, USER_TIMEOUT_MS)?;
        if peer.ip().is_loopback() {
            // Within a host there is no path whose rate is to be found out. A control that paces what is sent
            // (bbr) does so with timers, and lets less be under way than one message has. Where it cannot be
            // chosen it stays as it is.
            let _ = sockopt::set_tcp_congestion(&socket, "reno");
        }
        let events = exec.reactor.register(socket.as_fd())?;
        let shared = Arc::new(Shared {
            peer,
            reader: Mutex::default(),
            events,
            socket,
            queue: Mutex::default(),
            room: Arc::new(Semaphore::new(QUEUE_MAX_KIB as usize)),
            work: Notify::new(),
            closed: AtomicBool::new(false),
        });
        exec.spawn("net-write", Box::pin(write_rest(timers.clone(), shared.clone())));
        Ok(Arc::new(RealConn { exec: exec.clone(), shared }))
    }
}

/// The writer task: sends what direct writes left over, until the connection is closed and its queue empty.
#[allow(clippy::disallowed_methods)] // the production side of the boundary
async fn write_rest(timers: Handle, s: Arc<Shared>) {
    loop {
        let drained = lock(&s.queue).frames.is_empty();
        if drained && s.closed.load(Ordering::Acquire) {
            break;
        }
        if drained {
            s.work.notified().await;
            continue;
        }
        if s.closed.load(Ordering::Acquire) {
            let flush = s.clone();
            let rest = async move { tokio::time::timeout(LINGER, flush.flush_all()).await };
            let _ = Entered::new(timers, rest).await;
            break;
        }
        tokio::select! {
            r = s.flush_all() => if r.is_err() { break },
            () = s.work.notified() => {}
        }
    }
    s.shut();
}

impl Shared {
    async fn flush_all(&self) -> io::Result<()> {
        loop {
            let seen = self.events.source.events(Side::Write);
            let done = {
                let mut q = lock(&self.queue);
                match q.flush(&self.socket) {
                    Ok(done) => done,
                    Err(e) => return Err(self.fail(&mut q, e)),
                }
            };
            if done {
                return Ok(());
            }
            std::future::poll_fn(|cx| match self.events.source.wait(Side::Write, seen, cx) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
        }
    }

    /// Remembers why the connection ended; senders and the receiver wake.
    fn fail(&self, q: &mut Queue, e: io::Error) -> io::Error {
        q.failed = Some((e.kind(), e.to_string()));
        q.frames.clear();
        self.room.close();
        self.closed.store(true, Ordering::Release);
        self.shut();
        self.work.notify_one();
        e
    }

    /// Ends both directions: the peer sees the end of the stream, our receiver wakes.
    fn shut(&self) {
        self.closed.store(true, Ordering::Release);
        self.room.close();
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.room.close();
        if lock(&self.queue).frames.is_empty() {
            self.shut();
        } else {
            // Wakes the receiver; the writer task sends the rest first.
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Read);
        }
        self.work.notify_one();
    }

    fn closed_error(&self) -> io::Error {
        match &lock(&self.queue).failed {
            Some((kind, why)) => io::Error::new(*kind, why.clone()),
            None => {
                io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was closed on this side")
            }
        }
    }

    async fn send(self: Arc<Self>, f: Frame) -> io::Result<()> {
        let (head, trailer) = f.encode_parts();
        let kib = ((HEADER_BYTES + f.body.len() + f.bulk.len()) >> 10) as u32 + 1;
        assert!(kib <= QUEUE_MAX_KIB, "the largest frame fits into a queue that is empty");
        let Ok(room) = self.room.clone().acquire_many_owned(kib).await else {
            return Err(self.closed_error());
        };
        let out = Outbound {
            head: Bytes::copy_from_slice(&head),
            body: f.body,
            bulk: f.bulk.parts().cloned().collect(),
            trailer: trailer.map_or_else(Bytes::new, |t| Bytes::copy_from_slice(&t)),
            _room: room,
        };
        let mut q = lock(&self.queue);
        if self.closed.load(Ordering::Acquire) {
            drop(q);
            return Err(self.closed_error());
        }
        let direct = q.frames.is_empty();
        q.frames.push_back(out);
        if direct {
            match q.flush(&self.socket) {
                Ok(true) => {}
                Ok(false) => self.work.notify_one(),
                Err(e) => return Err(self.fail(&mut q, e)),
            }
        }
        Ok(())
    }

    fn poll_recv(&self, share: Option<&Arc<Share>>, cx: &mut Context<'_>) -> Poll<io::Result<Received>> {
        let mut r = lock(&self.reader);
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Poll::Ready(Err(self.closed_error()));
            }
            if r.had_its_turn() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match r.next_frame(share) {
                Ok(Some(f)) => return Poll::Ready(Ok(f)),
                Ok(None) => {}
                Err(e) => {
                    let e = io::Error::new(io::ErrorKind::InvalidData, format!("from {}: {e}", self.peer));
                    return Poll::Ready(Err(e));
                }
            }
            let source = &self.events.source;
            let (seen, ended) = (source.events(Side::Read), source.ended());
            if r.emptied == seen && !ended {
                if source.wait(Side::Read, seen, cx) {
                    continue;
                }
                (r.bytes, r.frames) = (0, 0);
                return Poll::Pending;
            }
            match r.fill(&self.socket) {
                Ok(Filled::End) => {
                    let what = if r.between_frames() {
                        "the peer closed the connection"
                    } else {
                        "the peer closed the connection in the middle of a frame"
                    };
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, what)));
                }
                Ok(Filled::All) => {}
                // More would be an event more.
                Ok(Filled::Part) => r.emptied = seen,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && !ended => r.emptied = seen,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

/// What came into a buffer.
enum Filled {
    All,
    /// Less than there was room for: the socket is empty.
    Part,
    End,
}

impl Reader {
    /// Whether others should go first now; says so once.
    fn had_its_turn(&mut self) -> bool {
        let long = self.bytes >= TURN_BYTES || self.frames >= TURN_FRAMES;
        if long {
            (self.bytes, self.frames) = (0, 0);
        }
        long
    }

    fn between_frames(&self) -> bool {
        self.partial.is_none() && self.unwanted.is_none() && self.ahead.is_empty()
    }

    /// The bytes of an unwanted frame go as they come; its header once all did.
    fn drop_unwanted(&mut self) -> Option<Header> {
        let (header, left) = self.unwanted.as_mut()?;
        let here = self.ahead.len().min(*left);
        self.ahead.advance(here);
        *left -= here;
        let done = (*left == 0).then_some(*header)?;
        self.unwanted = None;
        Some(done)
    }

    /// A frame, if all its bytes are here. Memory for a frame is reserved only once its header is checked.
    fn next_frame(&mut self, share: Option<&Arc<Share>>) -> Result<Option<Received>, wire::FrameError> {
        if self.unwanted.is_some() {
            return Ok(self.drop_unwanted().map(Received::Dropped));
        }
        if self.partial.is_none() {
            let Some(head) = self.ahead.first_chunk::<HEADER_BYTES>() else {
                return Ok(None);
            };
            let (header, lengths) = Frame::decode_header(head)?;
            if let Some(max) = self.at_most.filter(|max| lengths.total() > *max) {
                let len = lengths.total();
                return Err(wire::FrameError::TooLong { what: "a frame before its time", len, max });
            }
            self.ahead.advance(HEADER_BYTES);
            let room = share.map(|s| s.take(&header, lengths.total()));
            if matches!(room, Some(None)) {
                self.unwanted = Some((header, lengths.total()));
                self.frames += 1;
                return Ok(self.drop_unwanted().map(Received::Dropped));
            }
            self.partial = Some(Partial::begin(header, lengths, room.flatten(), &mut self.ahead));
        }
        if !self.partial.as_ref().is_some_and(Partial::is_whole) {
            return Ok(None);
        }
        self.frames += 1;
        self.partial.take().map(Partial::decode).transpose()
    }

    /// Reads once: what is missing of the frame under way, or some more.
    fn fill(&mut self, socket: &Socket) -> io::Result<Filled> {
        let (n, want) = match &mut self.partial {
            Some(p) => p.fill(socket)?,
            None => {
                let len = self.ahead.len() + READ_AHEAD_BYTES;
                recv_more(socket, &mut self.ahead, len)?
            }
        };
        assert!(n <= want, "no more came than was asked for");
        self.bytes += n;
        Ok(match n {
            0 => Filled::End,
            n if n < want => Filled::Part,
            _ => Filled::All,
        })
    }
}

impl Conn for RealConn {
    fn send(&self, f: Frame) -> BoxFuture<io::Result<()>> {
        helper::before_send(&self.exec);
        Box::pin(self.shared.clone().send(f))
    }

    fn recv(&self) -> BoxFuture<io::Result<Frame>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            loop {
                if let Received::Frame(f, _) = Recv(shared.clone(), None).await? {
                    return Ok(f);
                }
            }
        })
    }

    fn recv_within(&self, share: &Arc<Share>) -> BoxFuture<io::Result<Received>> {
        Box::pin(Recv(self.shared.clone(), Some(share.clone())))
    }

    fn expect_at_most(&self, bytes: usize) {
        lock(&self.shared.reader).at_most = Some(bytes);
    }

    fn close(&self) {
        self.shared.close();
    }

    fn peer(&self) -> SocketAddr {
        self.shared.peer
    }
}

impl Drop for RealConn {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Reads one frame; dropping it half-way loses nothing.
struct Recv(Arc<Shared>, Option<Arc<Share>>);

impl Future for Recv {
    type Output = io::Result<Received>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_recv(self.1.as_ref(), cx)
    }
}
