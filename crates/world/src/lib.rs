//! The only place that touches the outside: clock, network, disk, randomness, threads.
//!
//! Everything else is written against [`World`], so that the simulator (`sim`) can run the same code in
//! one thread with virtual time, a lossy network and disks that forget what was not flushed.
//! `real` is production, `mem` a disk in memory with a crash model.

use inbound::{Received, Share};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub mod buffer;
pub mod faulty;
pub mod future;
pub mod gate;
pub mod host;
pub mod inbound;
pub mod ioctl;
pub mod jumps;
pub mod mapping;
pub mod mem;
pub mod pause;
pub mod real;
pub mod rng;
pub mod span;
pub mod sys;

pub use future::{Either, block_on, select};
/// Channels, semaphores and the like: they work on any executor and hold no clock.
pub use tokio::sync;

pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Time in nanoseconds since an arbitrary start; it never goes back, and runs while the host sleeps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Instant(pub u64);

impl Instant {
    pub fn plus(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Whole seconds of this clock.
    pub fn seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// Zero if `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

pub trait Clock: Send + Sync {
    fn now(&self) -> Instant;
    fn wall(&self) -> model::Timestamp;
    /// A point in time before which more may have passed than [`Clock::now`] says: the host's clocks stood
    /// still (a paused virtual machine), which shows when somebody sets the wall clock. What was learned
    /// before it is asked again before it is relied on. Zero if that was never seen; a few nanoseconds, no
    /// system call.
    fn jumped(&self) -> Instant;
    fn sleep(&self, d: Duration) -> BoxFuture<()>;
}

/// A connection that carries whole frames, in order. Dropping the last handle closes it.
pub trait Conn: Send + Sync {
    /// Queues a frame; completes when the connection took it (back-pressure). An error is final.
    fn send(&self, f: wire::Frame) -> BoxFuture<io::Result<()>>;
    /// The next frame. `UnexpectedEof` when the peer closed; `InvalidData` (with the reason in the text)
    /// when what came was no frame: the connection is of no use any more. One receiver at a time.
    fn recv(&self) -> BoxFuture<io::Result<wire::Frame>>;
    /// As `recv`, with memory from this share. What finds no room is read and forgotten, but for its header.
    /// Connections in memory have the frame already.
    fn recv_within(&self, share: &Arc<Share>) -> BoxFuture<io::Result<Received>> {
        let (next, share) = (self.recv(), share.clone());
        Box::pin(async move { Ok(share.admit(next.await?)) })
    }
    /// From now on a frame with more bytes behind its header is no frame (`InvalidData`), known before there
    /// is memory for it. Without a word the limits of frames hold. Connections in memory need not heed it.
    fn expect_at_most(&self, _bytes: usize) {}
    fn close(&self);
    fn peer(&self) -> SocketAddr;
}

pub trait Listener: Send + Sync {
    fn accept(&self) -> BoxFuture<io::Result<Arc<dyn Conn>>>;
    fn local_addr(&self) -> SocketAddr;
}

/// A connection that carries bytes, for protocols that are not Nacre's. Dropping the last handle closes it.
pub trait Stream: Send + Sync {
    /// All of it, or an error, which is final.
    fn send(&self, bytes: bytes::Bytes) -> BoxFuture<io::Result<()>>;
    /// What came, at most `limit` bytes; none at the end. One receiver at a time.
    fn recv(&self, limit: usize) -> BoxFuture<io::Result<bytes::Bytes>>;
}

/// Takes connections that carry bytes.
pub trait StreamListener: Send + Sync {
    fn accept(&self) -> BoxFuture<io::Result<Arc<dyn Stream>>>;
    fn local_addr(&self) -> SocketAddr;
}

/// Ports below this one are an administrator's.
pub const RESERVED_PORTS: u16 = 1024;

pub trait Net: Send + Sync {
    fn listen(&self, at: SocketAddr) -> BoxFuture<io::Result<Arc<dyn Listener>>>;
    /// `from` binds the source address, if given. The source port is below 1024 if this process may have such
    /// a one ([`RESERVED_PORTS`]).
    fn connect(&self, from: Option<IpAddr>, to: SocketAddr) -> BoxFuture<io::Result<Arc<dyn Conn>>>;
    /// Networks that only know frames refuse it.
    fn stream(&self, _to: SocketAddr) -> BoxFuture<io::Result<Arc<dyn Stream>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
    /// Listens for such connections. Networks that only know frames refuse it.
    fn listen_streams(&self, _at: SocketAddr) -> BoxFuture<io::Result<Arc<dyn StreamListener>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
    /// The addresses of a host's name.
    fn resolve(&self, name: &str) -> BoxFuture<io::Result<Vec<IpAddr>>> {
        let found = name.parse().map(|a| vec![a]).map_err(|_| io::ErrorKind::Unsupported.into());
        Box::pin(async { found })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    pub write: bool,
    pub create: bool,
    /// With `create`: fail if it exists.
    pub exclusive: bool,
    pub truncate: bool,
}

impl OpenMode {
    pub const READ: OpenMode = OpenMode { write: false, create: false, exclusive: false, truncate: false };
    pub const WRITE: OpenMode = OpenMode { write: true, create: false, exclusive: false, truncate: false };
    pub const CREATE: OpenMode = OpenMode { write: true, create: true, exclusive: false, truncate: false };
    pub const CREATE_NEW: OpenMode = OpenMode { write: true, create: true, exclusive: true, truncate: false };
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileStat {
    pub len: u64,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes.
    pub total: u64,
    pub free: u64,
    pub available: u64,
    pub files: u64,
    pub files_free: u64,
}

/// Files on a host. Paths are absolute. Calls block; long ones belong into [`World::blocking`].
/// What was written is in the page cache (it survives a killed process) and durable after `sync_data`;
/// a created, renamed or removed name is durable after `sync_dir` of its directory.
pub trait Disk: Send + Sync {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    fn mkdir(&self, path: &str) -> io::Result<()>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn unlink(&self, path: &str) -> io::Result<()>;
    fn rmdir(&self, path: &str) -> io::Result<()>;
    /// Names in a directory, sorted.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    fn exists(&self, path: &str) -> io::Result<bool>;
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// Makes `to`, a new file, with what `from` has now, written or not; both share their blocks until one of
    /// them is written. Durable after [`Disk::sync_tree`]. `EOPNOTSUPP`: this file system cannot; `EXDEV`:
    /// they lie on two. On an error there is no `to`.
    fn clone_file(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
    /// Everything in and below a folder is durable afterwards, names and contents; what else lies on the same
    /// file system may be as well.
    fn sync_tree(&self, dir: &str) -> io::Result<()> {
        for name in self.list(dir)? {
            let path = format!("{dir}/{name}");
            match self.sync_tree(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                    self.open(&path, OpenMode::READ)?.sync_data()?;
                }
                done => done?,
            }
        }
        self.sync_dir(dir)
    }
    fn space(&self, path: &str) -> io::Result<DiskSpace>;
    /// Whether what a path lies on has heads to move. False if the host does not know.
    fn is_rotational(&self, _path: &str) -> bool {
        false
    }
    /// The host's number of the file system that a path lies on; `None` if it does not know. It may change
    /// when the host is started anew.
    fn device(&self, _path: &str) -> Option<u64> {
        None
    }
}

pub trait DiskFile: Send + Sync {
    /// Bytes read; short only at the end of the file.
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize>;
    /// The same for data in bulk, which may come past the page cache.
    fn read_bulk_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        self.read_at(buf, off)
    }
    /// All of it, or an error.
    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<()>;
    /// The same for data in bulk, which may go past the page cache; durable after `sync_data` as well.
    fn write_bulk_at(&self, buf: &[u8], off: u64) -> io::Result<()> {
        self.write_at(buf, off)
    }
    fn stat(&self) -> io::Result<FileStat>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// fdatasync: contents and the size are durable afterwards.
    fn sync_data(&self) -> io::Result<()>;
    /// From now on reads show what the medium has. Flushes the file first; if that fails, then or earlier, it
    /// is no error of this call: a host keeps pages that it could not write, counts them as written
    /// (`sync_data` succeeds from then on), and this takes them away from the readers. An error: the host can
    /// neither give up what it keeps nor write it.
    fn drop_cached(&self) -> io::Result<()>;
    /// fallocate(2): bits keep-size 1, punch-hole 2, zero-range 0x10.
    fn allocate(&self, mode: u32, off: u64, len: u64) -> io::Result<()>;
    /// Start of the next data at or after `off`; `None` if there is none.
    fn seek_data(&self, off: u64) -> io::Result<Option<u64>>;
    /// Start of the next hole at or after `off` (the end of the file counts); `None` if `off` is behind the
    /// end.
    fn seek_hole(&self, off: u64) -> io::Result<Option<u64>>;
    /// Takes the host's exclusive lock on the file (flock, no waiting); false if somebody else has it.
    fn try_lock(&self) -> io::Result<bool>;
    /// Gives that lock up, before the last who uses the file lets go of it. Without effect if nobody has it.
    fn unlock(&self) -> io::Result<()>;
}

pub trait Rand: Send + Sync {
    fn fill(&self, buf: &mut [u8]);
}

pub trait Spawn: Send + Sync {
    fn spawn(&self, name: &'static str, f: BoxFuture<()>);
    /// Runs `f` where blocking does no harm.
    fn run_blocking(&self, f: Box<dyn FnOnce() + Send>) -> BoxFuture<()>;
    /// The same for something short: at once on this thread, if it can be spared.
    fn run_briefly(&self, f: Box<dyn FnOnce() + Send>) -> BoxFuture<()> {
        self.run_blocking(f)
    }
    /// Polls `f` on this thread, which is none of a task, for at most `patience` of real time. Whether it is
    /// ready.
    fn block_on_for(&self, f: Pin<&mut (dyn Future<Output = ()> + Send)>, patience: Duration) -> bool {
        future::block_on_for(f, patience)
    }
}

/// One node's access to everything outside the program.
#[derive(Clone)]
pub struct World {
    pub clock: Arc<dyn Clock>,
    pub net: Arc<dyn Net>,
    pub disk: Arc<dyn Disk>,
    pub rand: Arc<dyn Rand>,
    pub tasks: Arc<dyn Spawn>,
}

impl World {
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    pub fn wall(&self) -> model::Timestamp {
        self.clock.wall()
    }

    /// See [`Clock::jumped`].
    pub fn jumped(&self) -> Instant {
        self.clock.jumped()
    }

    pub fn sleep(&self, d: Duration) -> BoxFuture<()> {
        self.clock.sleep(d)
    }

    pub fn spawn(&self, name: &'static str, f: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(name, Box::pin(f));
    }

    pub fn random_u64(&self) -> u64 {
        let mut b = [0; 8];
        self.rand.fill(&mut b);
        u64::from_le_bytes(b)
    }

    pub fn random_uuid(&self) -> [u8; 16] {
        let mut b = [0; 16];
        self.rand.fill(&mut b);
        b[6] = (b[6] & 0x0f) | 0x40;
        b[8] = (b[8] & 0x3f) | 0x80;
        b
    }

    pub fn random_key(&self) -> [u8; 32] {
        let mut b = [0; 32];
        self.rand.fill(&mut b);
        b
    }

    /// Polls `f` on this thread, which is none of a task, for at most `patience` of real time; gives it back
    /// unfinished after that, to be spawned. The thread may run other tasks meanwhile.
    pub fn block_on_for<T: Send>(&self, mut f: BoxFuture<T>, patience: Duration) -> Result<T, BoxFuture<T>> {
        let mut out = None;
        {
            let run = std::pin::pin!(async { out = Some((&mut f).await) });
            self.tasks.block_on_for(run, patience);
        }
        out.ok_or(f)
    }

    /// Runs `f` on a thread that may block.
    pub fn blocking<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        self.blocking_by(f, |f| self.tasks.run_blocking(f))
    }

    /// As [`World::blocking`], for calls of some hundred microseconds at most: where another thread is at
    /// hand to look after the rest, no thread is woken to make the call nor to hear of its end.
    pub fn blocking_briefly<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        self.blocking_by(f, |f| self.tasks.run_briefly(f))
    }

    fn blocking_by<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        f: F,
        how: impl FnOnce(Box<dyn FnOnce() + Send>) -> BoxFuture<()>,
    ) -> impl Future<Output = T> + Send + 'static {
        let traced = span::current().map(|at| (self.clone(), span::Span::part_of_code::<F>(self, at)));
        let (tx, rx) = sync::oneshot::channel();
        let run = how(Box::new(move || {
            let _ = tx.send(f());
        }));
        async move {
            run.await;
            if let Some((world, span)) = traced {
                span.end(&world, "ok");
            }
            rx.await.expect("the blocking task ran to its end")
        }
    }

    /// `None` when `d` passed first; the future is dropped then.
    pub async fn timeout<T>(&self, d: Duration, f: impl Future<Output = T> + Send) -> Option<T> {
        match select(f, self.sleep(d)).await {
            Either::Left(v) => Some(v),
            Either::Right(()) => None,
        }
    }
}

/// Locks `m` whether or not a holder panicked: what it guards is kept valid at each step.
pub(crate) fn lock<T>(m: &model::mutex::Mutex<T>) -> model::mutex::MutexGuard<'_, T> {
    m.lock_whole()
}
