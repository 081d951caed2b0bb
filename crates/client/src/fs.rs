//! The mounted file system itself: what all operations share.

use crate::R;
use crate::base::{Context, Settings};
use crate::locks::Rollbacks;
use crate::lov::{CACHED_DEFAULT_MB, Lov};
use crate::mdc;
use crate::mgc::Mgc;
use crate::ops::RecentSpace;
use crate::osc::ObjectCache;
use crate::pages::Writing;
use crate::stats::{Stats, Verb};
use crate::targets::Targets;
use crate::wakeful::Wakeful;
use model::{Errno, Fid};
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use wire::msg::config::ConfigReply;
use world::{World, sync};

/// A mounted file system.
pub struct Fs {
    pub(crate) cx: Arc<Context>,
    pub(crate) root: OnceLock<Fid>,
    pub(crate) mgc: OnceLock<Arc<Mgc>>,
    pub(crate) targets: Targets,
    pub(crate) config_changed: Arc<sync::Notify>,
    pub(crate) rollbacks: Rollbacks,
    /// What all MDCs share.
    pub(crate) meta: Arc<mdc::Shared>,
    pub(crate) recent_space: RecentSpace,
    pub(crate) stats: Stats,
    pub(crate) lov: Arc<Lov>,
    /// Writes beside which pages may be filled.
    pub(crate) writing: Writing,
    /// A task looks after pages of which the locks may be lost.
    pub(crate) watching_pages: AtomicBool,
    pub(crate) wakeful: Wakeful,
}

impl Fs {
    pub(crate) fn new(world: World, opt: Settings, read_only: bool) -> Arc<Fs> {
        // Handles of an earlier mount on this host can never come again: seconds above, random below.
        let first = ((world.wall().sec as u64) << 32) | (world.random_u64() >> 33);
        let now = world.wall();
        let cx = Arc::new(Context::new(world, opt, read_only, first));
        let meta = mdc::Shared::new(first);
        let cache = ObjectCache::new(cx.clone(), CACHED_DEFAULT_MB << 20, meta.content_bytes.clone());
        Arc::new(Fs {
            root: OnceLock::new(),
            mgc: OnceLock::new(),
            targets: Targets::default(),
            config_changed: Arc::new(sync::Notify::new()),
            rollbacks: Rollbacks::default(),
            meta,
            recent_space: RecentSpace::default(),
            stats: Stats::new(now),
            lov: Arc::new(Lov::new(cx.clone(), cache, now)),
            writing: Writing::default(),
            watching_pages: AtomicBool::new(false),
            wakeful: Wakeful::default(),
            cx,
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

    pub fn fs_uuid(&self) -> [u8; 16] {
        self.config().fs_uuid
    }

    /// The target map as last told by the MGS.
    pub fn config(&self) -> ConfigReply {
        self.targets.config().unwrap_or(ConfigReply {
            version: 0,
            fsname: self.cx.opt.fsname.clone(),
            fs_uuid: [0; 16],
            targets: Vec::new(),
            params: Vec::new(),
            extra: Vec::new(),
        })
    }

    /// Refuses changes with `EROFS` from now on, or allows them (`remount,ro`, `remount,rw`).
    pub fn set_read_only(&self, read_only: bool) {
        self.cx.read_only.store(read_only, Ordering::Relaxed);
    }

    /// A request of the kernel came. True: see to it that processors stay awake ([`Fs::stay_awake`]).
    pub fn request_came(&self) -> bool {
        self.wakeful.came(|| self.cx.world.now())
    }

    /// Until requests of the kernel come seldom.
    pub async fn stay_awake(&self) {
        self.wakeful.hold(&self.cx.world).await;
    }

    /// Changes of directories are durable when they return (`-o dirsync`, `-o sync`), or soon after.
    pub fn set_dirsync(&self, on: bool) {
        self.cx.dirsync.store(on, Ordering::Relaxed);
    }

    /// statfs(2) is answered within a second, whoever answers (`-o lazystatfs`, `llite.*.lazystatfs`), or soon after.
    pub fn set_lazystatfs(&self, on: bool) {
        self.recent_space.lazy.store(on, Ordering::Relaxed);
    }

    pub(crate) fn is_lazystatfs(&self) -> bool {
        self.recent_space.lazy.load(Ordering::Relaxed)
    }

    /// Reads leave access times as they are (`-o noatime`), or change them as relatime wants it.
    pub fn set_noatime(&self, on: bool) {
        self.cx.noatime.store(on, Ordering::Relaxed);
    }

    /// Returns whether it was open until now.
    pub(crate) fn close_mount(&self) -> bool {
        let was_open = self.cx.close();
        self.config_changed.notify_one();
        was_open
    }

    /// Counts a call, and bounds it on a soft mount.
    ///
    /// Boxed: what an operation keeps while it waits would otherwise be part of everything above it. Boxed before it is
    /// wrapped, or it would be part of each stage of the wrapping, and copied with all of them.
    pub(crate) fn run<'a, T: Send + 'a>(
        &'a self,
        verb: Verb,
        call: impl Future<Output = R<T>> + Send + 'a,
    ) -> std::pin::Pin<Box<dyn Future<Output = R<T>> + Send + 'a>> {
        let call: std::pin::Pin<Box<dyn Future<Output = R<T>> + Send + 'a>> = Box::pin(call);
        Box::pin(async move {
            let start = self.cx.world.now();
            let call = async {
                let r = call.await;
                if r.is_ok() && verb.changes_names() && self.cx.is_dirsync() {
                    self.commit_names().await?;
                }
                r
            };
            let r = match self.cx.opt.soft_timeout {
                None => call.await,
                Some(d) => self.cx.world.timeout(d, call).await.unwrap_or_else(|| {
                    tracing::warn!("{verb:?} gave up after {d:?} (soft mount)");
                    Err(Errno::EIO)
                }),
            };
            self.count(verb, start);
            r.map_err(|e| {
                if e.public() != e {
                    tracing::error!("{verb:?} failed with {e}, which is between servers and clients only");
                }
                e.public()
            })
        })
    }

    /// Counts a call that may wait for others as long as it takes.
    pub(crate) fn count(&self, verb: Verb, start: world::Instant) {
        self.stats.add(verb, self.cx.world.now().since(start).as_micros() as u64);
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        self.config_changed.notify_one(); // ends the task that watches the configuration
    }
}
