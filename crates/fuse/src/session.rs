//! A living mount: worker threads that read requests, run them and answer.
//!
//! A worker polls an operation itself for a moment (a hand-over between threads costs more than the whole
//! round trip); one that takes longer goes on on the runtime, so that workers are never stuck and always read
//! the next INTERRUPT.

use crate::abi::{self, MAX_IO_BYTES, REQUEST_MAX_BYTES};
use crate::bridge::Bridge;
use crate::interrupt::Kind;
use crate::kernel::{self, Kernel};
use crate::mount::{self, KernelRoot, Mounted};
use crate::nodes::{Generations, Nodes};
use crate::ops::{self, Cx, kind_of};
use crate::options::FileLocks;
use crate::pages::Pages;
use crate::reply::{Answer, Channel, Reply, ReplyOnDrop};
use crate::request::{self, Op, parse_header, parse_request};
use crate::writeback::Writeback;
use bytes::Bytes;
use client::Fs;
use client::control::{Request, Response};
use model::Errno;
use model::debug::VFSTRACE;
use model::metrics::{Page, Scrape, Side};
use model::param::EVERYTHING;
use model::span::Kind as SpanKind;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use world::buffer::{Buffer, Pool};
use world::span::{self, Span};
use world::sync::watch;
use world::sys::mounts::Unmount;
use world::{BoxFuture, Either, Instant, World, block_on, select};

/// How a worker waits for an operation when others are there to read.
const PATIENCE: Duration = Duration::from_millis(10);
/// When it is the last one, or many operations wait in the background already.
const IMPATIENCE: Duration = Duration::from_micros(500);
/// Operations in the background from which on the servers count as slow.
const MANY: usize = 8;
/// WRITE data below this is copied, so that a small write does not hold a large buffer.
const COPY_BELOW_BYTES: usize = 64 << 10;
/// Buffers for requests that are kept for reuse; more are made when needed and freed afterwards.
const POOL_MAX_BUFFERS: usize = 16;
/// How long the client may take to say good-bye after the unmount.
const GOOD_BYE: Duration = Duration::from_secs(5);
/// How long an interrupted wait for a lock may take to end.
const GIVE_BACK: Duration = Duration::from_millis(500);
/// How long `umount -f` is given to finish before the dead mount is detached.
const FORCED: Duration = Duration::from_millis(300);

/// How to run a mount.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Worker threads, at least 2.
    pub threads: usize,
    /// Ask the kernel for READDIRPLUS.
    pub readdirplus: bool,
    /// Names and attributes may stay in the kernel while the mount has leases on them.
    pub kernel_cache: bool,
    /// Whom locks of files keep out.
    pub locks: FileLocks,
}

impl Default for Config {
    fn default() -> Config {
        Config { threads: 6, readdirplus: true, kernel_cache: true, locks: FileLocks::Shared }
    }
}

/// Where a session stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Mounted, the kernel's first request is not answered yet.
    Starting,
    Ready,
    /// Unmounted, or the connection was aborted.
    Ended,
    /// The kernel and the daemon cannot work together.
    Failed(String),
}

struct Shared {
    bridge: Arc<Bridge>,
    pool: Arc<Pool>,
    state: watch::Sender<State>,
    dir: PathBuf,
    minor: u32,
    /// Workers that wait for a request.
    idle: AtomicUsize,
    /// Workers that have not ended.
    alive: AtomicUsize,
    kernel_cache: bool,
}

/// A mounted file system that is being served. Dropping it changes nothing: the session lives until the
/// unmount.
pub struct Session {
    shared: Arc<Shared>,
}

/// Starts to serve what [`crate::mount`] made. Returns at once; the session may be shown on its directory
/// when it is ready ([`Session::ready`]).
pub fn serve(
    world: &World,
    fs: Arc<Fs>,
    mounted: Mounted,
    config: Config,
) -> io::Result<(Session, KernelRoot)> {
    let abort = mount::abort_file(mounted.minor)
        .inspect_err(|e| tracing::warn!("no way to abort the connection (fusectl): {e}"))
        .ok();
    // The kernel refuses changes itself; this keeps reads from storing access times.
    client::Admin(&fs).set_read_only(mounted.read_only);
    client::Admin(&fs).set_dirsync(mounted.dirsync);
    let first = Arc::new(Channel::new(mounted.device));
    let generations = Generations::new(&client::Admin(&fs).fs_uuid(), world.random_u64());
    let nodes = Arc::new(Nodes::new(generations));
    let writeback = Arc::new(Writeback::default());
    let (pages, given_up) = Pages::new(world.clone(), first.clone(), nodes.clone(), writeback.clone());
    let (kernel, jobs) = Kernel::new(world.clone(), first.clone(), pages.clone());
    client::Pages(&fs).set_keeper(kernel.clone());
    let bridge = Bridge::new(world.clone(), fs, kernel, nodes, writeback, &config, abort);
    let bridge = Arc::new(bridge);
    let threads = config.threads.max(2);
    let shared = Arc::new(Shared {
        bridge,
        pool: Pool::new(REQUEST_MAX_BYTES, POOL_MAX_BUFFERS),
        state: watch::channel(State::Starting).0,
        dir: mounted.dir,
        minor: mounted.minor,
        idle: AtomicUsize::new(0),
        alive: AtomicUsize::new(threads),
        kernel_cache: config.kernel_cache,
    });
    let mut channels = Vec::new();
    for _ in 1..threads {
        // Where cloning is not possible the workers share one descriptor.
        channels.push(first.try_clone().map_or_else(|_| first.clone(), Arc::new));
    }
    channels.push(first);
    for (n, channel) in channels.into_iter().enumerate() {
        let s = shared.clone();
        world::sys::thread(&format!("fuse-{n}"), move || worker(&s, &channel))?;
    }
    pages.start()?;
    world::sys::thread("fuse-given-up", move || pages.finish(&given_up))?;
    let s = shared.clone();
    world::sys::thread("fuse-forget", move || kernel::run(&s.bridge, &jobs))?;
    let s = shared.clone();
    world::sys::thread("fuse-watch", move || s.bridge.table.watch(|| s.bridge.world.now()))?;
    Ok((Session { shared }, mounted.kernel_root))
}

impl Session {
    /// Waits until the kernel's first request is answered.
    pub async fn ready(&self) -> Result<(), String> {
        let mut rx = self.shared.state.subscribe();
        let state = rx.wait_for(|s| *s != State::Starting).await;
        match state.as_deref() {
            Ok(State::Ready) => Ok(()),
            Ok(State::Failed(why)) => Err(why.clone()),
            _ => Err("unmounted before it was ready".to_string()),
        }
    }

    /// Waits for the end: unmounted by anybody, or aborted. The client has said good-bye to the servers by
    /// then.
    pub async fn wait(&self) {
        let mut rx = self.shared.state.subscribe();
        let _ = rx.wait_for(|s| matches!(s, State::Ended | State::Failed(_))).await;
    }

    pub fn state(&self) -> State {
        self.shared.state.borrow().clone()
    }

    /// Answers a request about the mount, without the kernel's part in it: nothing here waits for a server
    /// that is away. `EINVAL`: it is about a file.
    pub async fn ask(&self, request: Request) -> Response {
        match client::admin::answer_of_mount(&self.shared.bridge.fs, 0, request).await {
            Ok(r) => Response::Ok(r),
            Err(e) => Response::Error(e),
        }
    }

    /// What the mount has in numbers. `version`: of the program.
    pub fn metrics(&self, version: &str) -> Page {
        let fs = &self.shared.bridge.fs;
        let at = self.shared.dir.to_string_lossy();
        let mut s = Scrape::new(Side::Mount(&at), version);
        s.add(&fs.params(EVERYTHING));
        s.add_health(self.unhealthy().is_empty());
        s.finish()
    }

    /// The targets in use that the mount has no session with, a line each; none: it is healthy.
    pub fn unhealthy(&self) -> Vec<String> {
        let all = client::Admin(&self.shared.bridge.fs).targets();
        let away = all.iter().filter(|t| t.active && t.state != "FULL");
        away.map(|t| format!("{} is {}", t.uuid.trim_end_matches("_UUID"), t.state)).collect()
    }

    /// Looks now and then how fast servers answer, until the mount ends.
    pub async fn keep_probing(&self) {
        client::Admin(&self.shared.bridge.fs).keep_probing().await;
    }

    pub fn dir(&self) -> &std::path::Path {
        &self.shared.dir
    }

    /// Takes the mount out of sight; the session ends when its last user is gone, at once with `Force`.
    pub fn unmount(&self, how: Unmount) -> io::Result<()> {
        world::sys::mounts::unmount(&self.shared.dir, how)
    }

    /// Everything fails from now on (as root's FS_IOC_SHUTDOWN).
    pub fn shut_down(&self) {
        let b = self.shared.bridge.clone();
        self.shared.bridge.world.spawn("fuse-shutdown", async move { b.shut_down().await });
    }

    /// Requests that wait for servers, open handles, known nodes.
    pub fn counts(&self) -> (usize, usize, usize) {
        let b = &self.shared.bridge;
        (b.table.count(), b.handles.count(), b.nodes.count())
    }
}

/// A wait for a lock was interrupted: what it asked for must not be granted to it any more when its caller
/// goes on.
async fn give_back(b: &Bridge, node: u64) {
    let Ok(fid) = b.nodes.fid(node) else { return };
    if b.world.timeout(GIVE_BACK, client::Locks(&b.fs).settle(fid)).await.is_none() {
        tracing::debug!(%fid, "a lock that nobody waits for any more is not given back yet");
    }
}

/// Tells the kernel that this thread serves a file system: to get memory for it, the kernel must not wait for
/// pages to be written back to that very file system.
fn declare_io_flusher() {
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: prctl with plain numbers touches no memory of ours.
    if unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } != 0 {
        tracing::debug!("PR_SET_IO_FLUSHER: {}", io::Error::last_os_error());
    }
}

fn worker(s: &Arc<Shared>, channel: &Arc<Channel>) {
    declare_io_flusher();
    let aborted = loop {
        let mut buf = s.pool.get();
        s.idle.fetch_add(1, Ordering::AcqRel);
        let got = channel.read(&mut buf);
        let idle = s.idle.fetch_sub(1, Ordering::AcqRel);
        assert!(idle > 0, "whoever waits for a request is counted");
        match got {
            Ok(n) => {
                // A defect in one operation is that operation's EIO (see ReplyOnDrop), not the mount's end.
                let run = std::panic::AssertUnwindSafe(|| s.request(channel, buf, n));
                if std::panic::catch_unwind(run).is_err() {
                    tracing::error!("a request made the daemon panic");
                }
            }
            Err(e) => match e.raw_os_error() {
                // ENOENT: the request was interrupted before it was read.
                Some(libc::EINTR | libc::EAGAIN | libc::ENOENT) => {}
                Some(libc::ENODEV) => break false,
                Some(libc::ECONNABORTED) => break true,
                _ => {
                    tracing::error!("reading from /dev/fuse failed: {e}");
                    break true;
                }
            },
        }
    };
    let alive = s.alive.fetch_sub(1, Ordering::AcqRel);
    assert!(alive > 0, "whoever ends had not ended");
    if alive == 1 {
        s.end(aborted);
    }
}

/// What is told of an operation when it is over, if somebody wants that: what it is, whose, since when.
struct Trace {
    told: Option<(String, Instant)>,
    span: Option<Span>,
}

impl Trace {
    fn of(r: &request::Request, b: &Bridge) -> Trace {
        let wanted = tracing::enabled!(target: VFSTRACE, tracing::Level::DEBUG);
        let h = &r.header;
        let what = || {
            let at = b.nodes.fid(h.nodeid).map_or_else(|_| format!("node {}", h.nodeid), |f| f.to_string());
            format!("{} on {at} for user {} (pid {})", r.op.text(), h.uid, h.pid)
        };
        Trace {
            told: wanted.then(|| (what(), b.world.now())),
            span: span::wanted().then(|| Span::root(&b.world, SpanKind::Client, what())),
        }
    }

    /// The operation, whose requests are parts of it.
    fn around(&self, f: BoxFuture<Answer>) -> BoxFuture<Answer> {
        match &self.span {
            Some(s) => Box::pin(Span::around(Some(s.at), f)),
            None => f,
        }
    }

    fn ended(self, answer: &Answer, b: &Bridge) {
        let status = || answer.as_ref().err().map_or("ok", |e| e.text());
        if let Some((what, begun)) = self.told {
            let us = b.world.now().since(begun).as_micros();
            tracing::debug!(target: VFSTRACE, "{what}: {} after {us} us", status());
        }
        if let Some(s) = self.span {
            assert_eq!(s.at.trace, s.at.span, "an operation is the first span of its trace");
            s.end(&b.world, status());
        }
    }
}

impl Shared {
    fn request(self: &Arc<Self>, channel: &Arc<Channel>, buf: Buffer, n: usize) {
        let mut request = match parse_request(&buf[..n]) {
            Ok(r) => r,
            Err(e) => {
                let Ok(h) = parse_header(&buf[..n]) else {
                    tracing::error!("unreadable request: {e}");
                    return;
                };
                tracing::debug!(opcode = h.opcode, "refused request: {e}");
                return channel.answer(h.unique, &Err(e.errno()));
            }
        };
        let h = request.header;
        let b = &self.bridge;
        if client::Pages(&b.fs).request_came() {
            let fs = b.fs.clone();
            b.world.spawn("stay-awake", async move { client::Pages(&fs).stay_awake().await });
        }
        tracing::trace!(unique = h.unique, node = h.nodeid, tid = h.pid, op = ?request.op, "request");
        match &request.op {
            Op::Forget(f) => return b.nodes.forget(h.nodeid, f.nlookup),
            Op::BatchForget(all) => return all.iter().for_each(|f| b.nodes.forget(f.nodeid, f.nlookup)),
            Op::Interrupt(i) => return b.table.interrupt(i.unique, b.world.now()),
            Op::Init(i) => return self.init(channel, h.unique, i),
            Op::Release(a) | Op::Releasedir(a) => {
                let rest = ops::release::run(&Cx::new(b.clone(), &h), *a);
                channel.answer(h.unique, &Ok(Reply::empty()));
                if let Some(f) = rest {
                    self.in_background(f);
                }
                return;
            }
            _ if b.is_dead() => return channel.answer(h.unique, &Err(Errno::EIO)),
            _ => {}
        }
        if ops::is_waited_for(&request.op) {
            b.kernel.making.end(h.pid);
        }
        let kind = kind_of(&request.op);
        if kind == Kind::Direct {
            b.table.note_caller(h.pid, b.world.now());
        }
        let data = match &request.op {
            Op::Write(_, r) if r.len() < COPY_BELOW_BYTES => Bytes::copy_from_slice(&buf[r.clone()]),
            Op::Write(_, r) => buf.share(r.clone()),
            _ => Bytes::new(),
        };
        let trace = Trace::of(&request, b);
        let pending = ReplyOnDrop::new(channel.clone(), h.unique);
        let mut cx = Cx::new(b.clone(), &h);
        cx.groups = std::mem::take(&mut request.groups);
        let f = trace.around(ops::start(cx, request, data));
        match b.world.block_on_for(f, self.patience()) {
            Ok(answer) => {
                pending.answer(&answer);
                trace.ended(&answer, b);
            }
            Err(f) => self.hand_over((pending, trace), h, kind, f),
        }
    }

    fn patience(&self) -> Duration {
        let busy = self.idle.load(Ordering::Acquire) == 0 || self.bridge.table.count() >= MANY;
        if busy { IMPATIENCE } else { PATIENCE }
    }

    /// Lets the runtime finish a request.
    fn hand_over(
        &self,
        (pending, trace): (ReplyOnDrop, Trace),
        h: abi::InHeader,
        kind: Kind,
        f: BoxFuture<Answer>,
    ) {
        let b = self.bridge.clone();
        let cancelled = b.table.insert(h.unique, h.pid, kind, b.world.now());
        self.bridge.world.spawn("fuse-op", async move {
            let given_up = async { cancelled.await.unwrap_or(Errno::EINTR) };
            let answer = match select(f, given_up).await {
                Either::Left(a) => a,
                Either::Right(e) => {
                    if kind == Kind::LockWait {
                        give_back(&b, h.nodeid).await;
                    }
                    Err(e)
                }
            };
            b.table.remove(h.unique);
            pending.answer(&answer);
            trace.ended(&answer, &b);
        });
    }

    /// Work that nobody waits for.
    fn in_background(&self, f: BoxFuture<()>) {
        if let Err(f) = self.bridge.world.block_on_for(f, IMPATIENCE) {
            self.bridge.world.spawn("fuse-release", f);
        }
    }

    fn init(&self, channel: &Channel, unique: u64, i: &abi::InitIn) {
        match ops::negotiate(i, self.bridge.readdirplus, self.bridge.locks) {
            Ok(out) => {
                assert!(out.max_write as usize <= MAX_IO_BYTES);
                if self.kernel_cache {
                    self.bridge.kernel.start(i.minor);
                }
                channel.answer(unique, &Ok(Reply::of(&out)));
                tracing::info!(kernel = i.minor, flags = format!("{:#x}", out.flags), "mounted");
                self.state.send_replace(State::Ready);
            }
            Err((e, why)) => {
                channel.answer(unique, &Err(e));
                tracing::error!("{why}");
                self.state.send_replace(State::Failed(why));
            }
        }
    }

    /// The last worker's last act.
    fn end(&self, aborted: bool) {
        assert_eq!(self.alive.load(Ordering::Acquire), 0, "nobody reads requests any more");
        let b = &self.bridge;
        b.kernel.stop();
        b.table.cancel_all(Errno::ENOTCONN);
        b.table.end();
        if !aborted && !b.is_dead() {
            self.finish_forced_unmount();
        }
        let fs = b.fs.clone();
        if block_on(b.world.timeout(GOOD_BYE, fs.unmount())).is_none() {
            tracing::warn!("the servers were not there to say good-bye to");
        }
        tracing::info!("unmounted");
        if !matches!(*self.state.borrow(), State::Failed(_)) {
            self.state.send_replace(State::Ended);
        }
    }

    /// `umount -f` aborts the connection and then finds the mount busy with processes that were stuck a
    /// moment ago. A connection that was aborted never comes back: what is left of the mount is removed.
    fn finish_forced_unmount(&self) {
        let wait = world::sys::Deadline::after(FORCED);
        if wait.wait_for(|| mount::mounted_at(self.minor).is_empty().then_some(())).is_some() {
            return;
        }
        for dir in mount::mounted_at(self.minor) {
            match world::sys::mounts::unmount(&dir, Unmount::Lazy) {
                Ok(()) => tracing::info!("{} was unmounted by force while in use: detached", dir.display()),
                Err(e) => tracing::warn!("{} cannot be detached: {e}", dir.display()),
            }
        }
    }
}
