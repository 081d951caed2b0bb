//! The mounted file system itself: what all operations share.

use super::Admin;
use super::data::Data;
use super::locks::FileLocks;
use super::migrate::MOVEMENTS_AT_ONCE;
use super::names::Names;
use super::probe::Probes;
use super::recent_space::RecentSpace;
use crate::base::maintenance::Begun;
use crate::base::pmqos::PmQos;
use crate::base::{Context, Settings};
use crate::lmv::Lmv;
use crate::lov::{CACHED_DEFAULT_MB, Lov};
use crate::mdc;
use crate::osc::ObjectCache;
use crate::stats::{Stats, Verb};
use crate::{R, TargetState};
use model::{Errno, Fid, TargetId};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use wire::msg::config::ConfigReply;
use world::{World, sync};

/// A mounted file system.
pub struct Fs {
    pub(crate) cx: Arc<Context>,
    pub(crate) root: OnceLock<Fid>,
    pub(crate) lmv: Arc<Lmv>,
    pub(crate) locks: Arc<FileLocks>,
    pub(crate) data: Arc<Data>,
    pub(crate) names: Arc<Names>,
    /// What all MDCs share.
    pub(crate) meta: Arc<mdc::Shared>,
    pub(crate) recent_space: RecentSpace,
    pub(crate) stats: Stats,
    pub(crate) lov: Arc<Lov>,
    /// A task looks after pages of which the locks may be lost.
    pub(crate) watching_pages: AtomicBool,
    pub(crate) pmqos: PmQos,
    pub(crate) probes: Probes,
    /// See [`Fs::lists_layouts`].
    pub(crate) list_layouts: AtomicBool,
    /// Turns of files that this mount has moved.
    pub(crate) movements: sync::Semaphore,
}

impl Fs {
    pub(crate) fn new(world: World, opt: Settings, read_only: bool) -> Arc<Fs> {
        // Handles of an earlier mount on this host can never come again: seconds above, random below.
        let first = ((world.wall().sec as u64) << 32) | (world.random_u64() >> 33);
        let now = world.wall();
        let cx = Arc::new(Context::new(world, opt, read_only, first));
        let meta = mdc::Shared::new(first);
        let cache = ObjectCache::new(cx.clone(), CACHED_DEFAULT_MB << 20, meta.content_bytes.clone());
        let lov = Arc::new(Lov::new(cx.clone(), cache.clone(), now));
        Arc::new_cyclic(|me: &Weak<Fs>| {
            let lmv = Lmv::new(&cx, &meta, &cache, me.clone());
            let locks = FileLocks::new(&cx, &lmv, &meta);
            let data = Data::new(&lov, &locks, (&cx, &lmv, &meta));
            Fs {
                root: OnceLock::new(),
                names: Names::new(&data),
                data,
                lmv,
                locks,
                meta,
                recent_space: RecentSpace::default(),
                stats: Stats::new(now),
                lov,
                watching_pages: AtomicBool::new(false),
                pmqos: PmQos::default(),
                probes: Probes::new(now),
                list_layouts: AtomicBool::new(true),
                movements: sync::Semaphore::new(MOVEMENTS_AT_ONCE),
                cx,
            }
        })
    }

    /// The directory that the mount shows as its root.
    pub fn root(&self) -> Fid {
        *self.root.get().unwrap_or(&Fid::ROOT)
    }

    pub fn fsname(&self) -> String {
        self.cx.opt.fsname.clone()
    }

    /// 16 hex digits: `fsname-INSTANCE` names this mount in `lfs getname` and `lctl dl`.
    pub fn instance(&self) -> String {
        self.cx.uuid[..8].iter().map(|b| format!("{b:02x}")).collect()
    }

    /// The target map as last told by the MGS.
    pub fn config(&self) -> ConfigReply {
        self.lmv.config().unwrap_or(ConfigReply {
            version: 0,
            fsname: self.cx.opt.fsname.clone(),
            fs_uuid: [0; 16],
            targets: Vec::new(),
            params: Vec::new(),
            extra: Vec::new(),
        })
    }

    /// listxattr(2) names the layouts of files with objects, and the defaults of directories
    /// (`llite.*.list_layouts`).
    pub fn lists_layouts(&self) -> bool {
        self.list_layouts.load(Ordering::Relaxed)
    }

    /// statfs(2) is answered within a second, whoever answers (`-o lazystatfs`, `llite.*.lazystatfs`), or
    /// soon after.
    pub fn set_lazystatfs(&self, on: bool) {
        self.recent_space.lazy.store(on, Ordering::Relaxed);
    }

    pub(crate) fn is_lazystatfs(&self) -> bool {
        self.recent_space.lazy.load(Ordering::Relaxed)
    }

    /// Counts a call, and bounds it on a soft mount.
    ///
    /// Boxed: what an operation keeps while it waits would otherwise be part of everything above it. Boxed
    /// before it is wrapped, or it would be part of each stage of the wrapping, and copied with all of them.
    pub(crate) fn run<'a, T: Send + 'a>(
        &'a self,
        verb: Verb,
        call: impl Future<Output = R<T>> + Send + 'a,
    ) -> Boxed<'a, T> {
        bounded(self, verb, verb.waits_when_closed(), Box::pin(call))
    }

    /// Counts a call that may wait for others as long as it takes.
    pub(crate) fn count(&self, verb: Verb, start: world::Instant) {
        self.stats.add(verb, self.cx.world.now().since(start).as_micros() as u64);
    }

    /// Operations executed here so far, of those answered, and of those known to be durable; for tests.
    pub fn pending_state(&self) -> (u64, u64, u64) {
        self.lmv.pending_state()
    }
}

/// An operation.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = R<T>> + Send + 'a>>;

/// As [`Fs::run`], also while the file system is closed: what gives locks back, and pages of mappings.
pub(crate) fn run_now<'a, T: Send + 'a>(
    fs: &'a Fs,
    verb: Verb,
    call: impl Future<Output = R<T>> + Send + 'a,
) -> Boxed<'a, T> {
    bounded(fs, verb, false, Box::pin(call))
}

/// As [`Fs::run`], and of the root also while the file system is closed: whoever asks the mount how it is
/// opens its root for that, for which the kernel asks for attributes and ACL.
pub(crate) fn run_unless_root<'a, T: Send + 'a>(
    fs: &'a Fs,
    fid: Fid,
    verb: Verb,
    call: impl Future<Output = R<T>> + Send + 'a,
) -> Boxed<'a, T> {
    bounded(fs, verb, fid != fs.root() && verb.waits_when_closed(), Box::pin(call))
}

/// Waits while the file system is closed, if this `waits`. What may change something counts from then on: a
/// mount is quiet when all that began before is over. Here is asked for all whose [`Verb::changes`] whether
/// they may change anything: who may not waits for nothing.
async fn begin(fs: &Fs, verb: Verb, waits: bool) -> R<Option<Begun<'_>>> {
    let is_asked = waits && verb.changes();
    if is_asked {
        fs.cx.writable()?;
    }
    loop {
        if waits {
            fs.cx.hold.passed().await;
        }
        if !verb.may_change() {
            return Ok(None);
        }
        let Some(begun) = fs.cx.hold.begin(waits) else { continue };
        // Changes may be refused by now that were not when this one came.
        if is_asked {
            fs.cx.writable()?;
        }
        return Ok(Some(begun));
    }
}

/// `waits`: while the file system is closed.
fn bounded<'a, T: Send + 'a>(fs: &'a Fs, verb: Verb, waits: bool, call: Boxed<'a, T>) -> Boxed<'a, T> {
    Box::pin(async move {
        let start = fs.cx.world.now();
        let call = async {
            let _begun = begin(fs, verb, waits).await?;
            let r = call.await;
            if r.is_ok() && verb.changes_names() && fs.cx.is_dirsync() {
                fs.data.commit_names().await?;
            }
            r
        };
        let r = match fs.cx.opt.soft_timeout {
            None => call.await,
            Some(d) => fs.cx.world.timeout(d, call).await.unwrap_or_else(|| {
                tracing::warn!("{verb:?} gave up after {d:?} (soft mount)");
                Err(Errno::EIO)
            }),
        };
        fs.count(verb, start);
        r.map_err(|e| {
            if e.public() != e {
                tracing::error!("{verb:?} failed with {e}, which is between servers and clients only");
            }
            e.public()
        })
    })
}

impl Admin<'_> {
    pub fn fs_uuid(self) -> [u8; 16] {
        self.0.config().fs_uuid
    }

    /// Refuses changes with `EROFS` from now on, or allows them (`remount,ro`, `remount,rw`).
    pub fn set_read_only(self, read_only: bool) {
        self.0.cx.read_only.store(read_only, Ordering::Relaxed);
    }

    /// Changes of directories are durable when they return (`-o dirsync`, `-o sync`), or soon after.
    pub fn set_dirsync(self, on: bool) {
        self.0.cx.dirsync.store(on, Ordering::Relaxed);
    }

    /// Reads leave access times as they are (`-o noatime`), or change them as relatime wants it.
    pub fn set_noatime(self, on: bool) {
        self.0.cx.noatime.store(on, Ordering::Relaxed);
    }

    /// The MGS and every target, as `lfs check` and `lctl dl` show them.
    pub fn targets(self) -> Vec<TargetState> {
        self.0.lmv.states()
    }

    /// `lctl recover`. `ENODEV`: the mount has no connection to it.
    pub fn reconnect(self, target: TargetId) -> R<()> {
        self.0.lmv.reconnect(target)
    }

    /// Waits until the leases are given back that could not be at once, because operations executed under
    /// them were not sent. `EAGAIN`: it takes longer than some seconds; they go back when the servers have
    /// taken the operations.
    pub async fn leases_dropped(self) -> R<()> {
        self.0.lmv.leases_dropped().await
    }
}
