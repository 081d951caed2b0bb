//! What the kernel keeps of names and attributes, and how it is made to forget.
//!
//! The kernel is told for how long it may use what an answer says: as long as the mount may, never longer
//! than the life of a lease, so that it stops by itself even if this daemon is frozen or cut off. When a
//! lease goes, a thread of its own makes the kernel forget, and only then is the lease given back:
//!
//! * Attributes (and access lists): FUSE_NOTIFY_INVAL_INODE without data. It takes no lock of the inode. An
//!   answer that is still on its way was asked for before, which the kernel knows by its attribute version;
//!   that works for LOOKUP, GETATTR, STATX and READDIRPLUS, so their attributes may be kept, and those of a
//!   new file in the answer to CREATE with some care (`making.rs`). The kernel may have been answered about
//!   an inode that it has not made yet: then it does not find it, and is told again until it does or forgets
//!   it.
//! * Names: FUSE_NOTIFY_INC_EPOCH (Linux 6.16), which takes no lock at all; invalidating a name would take
//!   the lock of its directory, which a local create may hold while it waits for another mount, which waits
//!   for us. All names are looked up again after it. Older kernels keep no names. READDIRPLUS does not
//!   compare epochs: it shows no inodes.

use crate::abi::{self, NotifyInvalInode};
use crate::bridge::Bridge;
use crate::making::Making;
use crate::nodes::Nodes;
use crate::pages::Pages;
use crate::reply::Channel;
use client::{CacheHolder, CancelOnDrop, Revoked};
use model::mutex::Mutex;
use model::{Errno, Fid, Map};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;
use world::sync::oneshot;
use world::{Instant, World};
use zerocopy::IntoBytes;

/// An inode that the kernel was told of but has not made is invalidated again after so long.
const TRY_AGAIN: Duration = Duration::from_millis(1);
/// By then whatever the kernel was told has run out: no life of a lease is longer.
const TRY_MAX: Duration = Duration::from_secs(150);
/// How long somebody waits for the kernel to forget everything. What is left then runs out by itself.
const FORGET_ALL_MAX: Duration = Duration::from_secs(5);
/// Directories of which the kernel has names are remembered up to this number; then all are taken for such.
const DIRS_MAX: usize = 65_536;

enum Job {
    Revoked(Vec<Revoked>, CancelOnDrop),
    Changed(Fid),
    All(SyncSender<()>),
    End,
}

/// The kernel's caches of one mount.
pub struct Kernel {
    world: World,
    channel: Arc<Channel>,
    jobs: Sender<Job>,
    /// Attributes may be kept; names too.
    attrs: AtomicBool,
    names: AtomicBool,
    /// Until when the kernel may use names of a directory.
    dirs: Mutex<Map<Fid, Instant>>,
    pub making: Making,
    pages: Arc<Pages>,
}

impl Kernel {
    /// Keeps nothing before [`Kernel::start`]. The receiver is for [`run`].
    pub fn new(world: World, channel: Arc<Channel>, pages: Arc<Pages>) -> (Arc<Kernel>, Jobs) {
        let (jobs, rx) = self::channel();
        let k = Kernel {
            world,
            channel,
            jobs,
            attrs: AtomicBool::new(false),
            names: AtomicBool::new(false),
            dirs: Mutex::default(),
            making: Making::default(),
            pages,
        };
        (Arc::new(k), Jobs(rx))
    }

    /// From now on the kernel may keep what it can be made to forget.
    pub fn start(&self, minor: u32) {
        self.attrs.store(true, Relaxed);
        self.names.store(minor >= abi::MINOR_EPOCH, Relaxed);
    }

    /// The session is over.
    pub fn stop(&self) {
        self.attrs.store(false, Relaxed);
        self.names.store(false, Relaxed);
        let _ = self.jobs.send(Job::End);
        self.pages.stop();
    }

    pub fn keeps_attrs(&self) -> bool {
        self.attrs.load(Relaxed)
    }

    pub fn keeps_names(&self) -> bool {
        self.names.load(Relaxed)
    }

    /// The kernel is about to be told that it may use names of this directory for so long. Before it is
    /// decided that it may.
    pub fn note_names(&self, dir: Fid, life: Duration) {
        let now = self.world.now();
        let mut d = self.dirs.lock();
        if d.len() >= DIRS_MAX && !d.contains_key(&dir) {
            d.retain(|_, until| *until > now);
        }
        let until = d.entry(dir).or_insert(now);
        *until = (*until).max(now.plus(life));
        assert!(*until >= now, "the kernel is told what it may use from now on");
    }

    /// Names of these directories lead elsewhere, or do not any more. Takes no lock of the kernel: also for
    /// the handler of a request that changes names in a way the kernel does not know of.
    pub fn forget_names(&self, dirs: impl Iterator<Item = Fid>) {
        let now = self.world.now();
        let some = {
            let mut d = self.dirs.lock();
            let some = dirs.fold(false, |some, f| some | d.remove(&f).is_some_and(|until| until > now));
            if some {
                // All names go with the epoch.
                d.clear();
            }
            some
        };
        if some && let Err(e) = self.channel.notify(abi::NOTIFY_INC_EPOCH, &[]) {
            tracing::error!("the kernel cannot be made to look names up again: {e}");
        }
    }

    /// False if the kernel was told of this inode but has not made it yet.
    fn forget_inode(&self, nodes: &Nodes, fid: Fid) -> bool {
        let Some(nodeid) = nodes.id(fid) else { return true };
        self.forget_made(nodeid, fid) || nodes.id(fid).is_none()
    }

    /// As [`Kernel::forget_node`]; false, too, if it may not be done with a file that was just made.
    fn forget_made(&self, ino: u64, fid: Fid) -> bool {
        self.forget_node(ino)
            && match self.making.again(fid) {
                None => true,
                Some(now) => now && self.forget_node(ino),
            }
    }

    fn forget_node(&self, ino: u64) -> bool {
        let msg = NotifyInvalInode { ino, off: -1, len: 0 };
        match self.channel.notify(abi::NOTIFY_INVAL_INODE, msg.as_bytes()) {
            Ok(()) => true,
            Err(Errno::ENOENT) => false,
            Err(e) => {
                tracing::debug!(ino, "the kernel forgets nothing any more: {e}");
                true
            }
        }
    }

    /// Returns when the kernel uses nothing any more that it knew of the inode's attributes and access lists,
    /// and no word of that is on its way. For a change of a mode that the kernel does not see in the answer:
    /// while it is told to forget, it does not believe what it is told anew, and decides by what was before.
    pub async fn forgotten(&self, fid: Fid) {
        if self.keeps_attrs() {
            let (tx, rx) = oneshot::channel();
            let leave = CancelOnDrop::new(move || {
                let _ = tx.send(()); // who waited may have been interrupted
            });
            self.send(Job::Revoked(vec![Revoked { fid, names: false, inode: true }], leave));
            let _ = rx.await; // or the session is over
        }
    }

    fn send(&self, job: Job) {
        // After the end nobody takes it, and dropping it does what is left to do.
        drop(self.jobs.send(job));
    }
}

impl CacheHolder for Kernel {
    fn lapsed(&self, what: Vec<Revoked>, leave: CancelOnDrop) {
        if self.keeps_attrs() {
            self.send(Job::Revoked(what, leave));
        }
    }

    fn forget_all(&self) {
        if self.keeps_attrs() {
            let (tx, rx) = sync_channel(1);
            self.send(Job::All(tx));
            if rx.recv_timeout(FORGET_ALL_MAX) == Err(RecvTimeoutError::Timeout) {
                tracing::error!("the kernel does not forget what it keeps within {FORGET_ALL_MAX:?}");
            }
        }
    }

    fn forget_pages(&self, fid: Fid, ranges: Vec<(u64, u64)>, over: CancelOnDrop) {
        self.pages.forget(fid, ranges, over);
    }

    fn changed(&self, fid: Fid) {
        if self.keeps_attrs() {
            self.send(Job::Changed(fid));
        }
    }
}

/// What is to be forgotten.
pub struct Jobs(Receiver<Job>);

/// Inodes to be invalidated again, and what is to happen when all are.
struct Waiting {
    fids: Vec<Fid>,
    /// Given when this goes.
    _leave: Option<CancelOnDrop>,
    until: Instant,
}

/// Makes the kernel forget until the session ends: in a thread of its own.
pub fn run(b: &Bridge, jobs: &Jobs) {
    let (k, w) = (&b.kernel, &b.world);
    let mut waiting: Vec<Waiting> = Vec::new();
    loop {
        let job = if waiting.is_empty() {
            jobs.0.recv().ok()
        } else {
            match jobs.0.recv_timeout(TRY_AGAIN) {
                Ok(j) => Some(j),
                Err(RecvTimeoutError::Timeout) => {
                    let now = w.now();
                    waiting.retain_mut(|x| {
                        x.fids.retain(|f| !k.forget_inode(&b.nodes, *f));
                        !x.fids.is_empty() && x.until > now
                    });
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => None,
            }
        };
        let (fids, leave) = match job {
            None | Some(Job::End) => return,
            Some(Job::Changed(fid)) => (vec![fid], None),
            Some(Job::All(done)) => {
                k.forget_names(b.nodes.all().into_iter().map(|(_, fid)| fid));
                let left = b.nodes.all().into_iter().filter(|(id, fid)| !k.forget_made(*id, *fid));
                let left = left.map(|(_, fid)| fid).collect();
                let _ = done.send(());
                (left, None)
            }
            Some(Job::Revoked(what, leave)) => {
                k.forget_names(what.iter().filter(|l| l.names).map(|l| l.fid));
                let inodes = what.into_iter().filter(|l| l.inode).map(|l| l.fid);
                (inodes.collect(), Some(leave))
            }
        };
        let left: Vec<Fid> = fids.into_iter().filter(|f| !k.forget_inode(&b.nodes, *f)).collect();
        if !left.is_empty() {
            waiting.push(Waiting { fids: left, _leave: leave, until: w.now().plus(TRY_MAX) });
        }
    }
}
