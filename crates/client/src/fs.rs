//! The mounted file system itself: what all operations share.

use crate::atimes::Atimes;
use crate::data::{CACHED_DEFAULT_MB, Data, content_share};
use crate::errseq::ErrorBook;
use crate::fids::Fids;
use crate::locate::Locate;
use crate::locks::Rollbacks;
use crate::meta::Meta;
use crate::opens::Opens;
use crate::ops::RecentSpace;
use crate::params::Params;
use crate::pending::Pending;
use crate::stats::{Stats, Verb};
use crate::targets::{Target, Targets};
use crate::wakeful::Wakeful;
use crate::{Call, R};
use ldlm::LockClient;
use model::{Errno, Fid, Nid};
use std::future::Future;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use wire::RequestContext;
use wire::msg::config::ConfigReply;
use world::{World, sync};

/// What was asked for at mount.
pub(crate) struct Settings {
    pub fsname: String,
    pub port: u16,
    pub bind: Option<IpAddr>,
    pub client_name: String,
    pub soft_timeout: Option<Duration>,
}

/// A mounted file system.
pub struct Fs {
    pub(crate) world: World,
    pub(crate) opt: Settings,
    /// Random: under it the servers keep what this mount has.
    pub(crate) uuid: [u8; 16],
    pub(crate) root: OnceLock<Fid>,
    pub(crate) mgs: OnceLock<Arc<Target>>,
    pub(crate) targets: Targets,
    pub(crate) config_changed: Arc<sync::Notify>,
    pub(crate) locate: Locate,
    pub(crate) fids: Fids,
    /// With the closures that give leases back, too.
    pub(crate) opens: Arc<Opens>,
    pub(crate) locks: LockClient,
    pub(crate) rollbacks: Rollbacks,
    pub(crate) params: Params,
    pub(crate) meta: Meta,
    pub(crate) pending: Pending,
    pub(crate) atimes: Atimes,
    pub(crate) recent_space: RecentSpace,
    pub(crate) stats: Stats,
    /// What went wrong in the background, and who was told.
    pub(crate) told: Arc<ErrorBook>,
    /// Changes of directories are durable when they return.
    dirsync: AtomicBool,
    pub(crate) data: Data,
    pub(crate) wakeful: Wakeful,
    read_only: AtomicBool,
    /// Reads leave access times as they are.
    noatime: AtomicBool,
    closed: AtomicBool,
    next_trace: AtomicU64,
}

impl Fs {
    pub(crate) fn new(world: World, opt: Settings, read_only: bool) -> Arc<Fs> {
        // Handles of an earlier mount on this host can never come again: seconds above, random below.
        let first = ((world.wall().sec as u64) << 32) | (world.random_u64() >> 33);
        Arc::new(Fs {
            uuid: world.random_uuid(),
            opt,
            root: OnceLock::new(),
            mgs: OnceLock::new(),
            targets: Targets::default(),
            config_changed: Arc::new(sync::Notify::new()),
            locate: Locate::new(),
            fids: Fids::new(),
            opens: Arc::new(Opens::new(first)),
            locks: LockClient::new(),
            rollbacks: Rollbacks::default(),
            params: Params::new(),
            meta: Meta::new(content_share(CACHED_DEFAULT_MB << 20)),
            pending: Pending::default(),
            atimes: Atimes::default(),
            recent_space: RecentSpace::default(),
            stats: Stats::new(world.wall()),
            told: Arc::default(),
            dirsync: AtomicBool::new(false),
            data: Data::new(first, world.wall()),
            wakeful: Wakeful::default(),
            read_only: AtomicBool::new(read_only),
            noatime: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            next_trace: AtomicU64::new(world.random_u64()),
            world,
        })
    }

    /// The directory that the mount shows as its root.
    pub fn root(&self) -> Fid {
        *self.root.get().unwrap_or(&Fid::ROOT)
    }

    pub fn fsname(&self) -> String {
        self.opt.fsname.clone()
    }

    /// 16 hex digits: `fsname-INSTANCE` names this mount in `lfs getname` and `lctl dl`.
    pub fn instance(&self) -> String {
        self.uuid[..8].iter().map(|b| format!("{b:02x}")).collect()
    }

    pub fn fs_uuid(&self) -> [u8; 16] {
        self.config().fs_uuid
    }

    /// The target map as last told by the MGS.
    pub fn config(&self) -> ConfigReply {
        self.targets.config().unwrap_or(ConfigReply {
            version: 0,
            fsname: self.opt.fsname.clone(),
            fs_uuid: [0; 16],
            targets: Vec::new(),
            params: Vec::new(),
            extra: Vec::new(),
        })
    }

    /// Refuses changes with `EROFS` from now on, or allows them (`remount,ro`, `remount,rw`).
    pub fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Relaxed);
    }

    /// A request of the kernel came. True: see to it that processors stay awake ([`Fs::stay_awake`]).
    pub fn request_came(&self) -> bool {
        self.wakeful.came(|| self.world.now())
    }

    /// Until requests of the kernel come seldom.
    pub async fn stay_awake(&self) {
        self.wakeful.hold(&self.world).await;
    }

    /// Changes of directories are durable when they return (`-o dirsync`, `-o sync`), or soon after.
    pub fn set_dirsync(&self, on: bool) {
        self.dirsync.store(on, Ordering::Relaxed);
    }

    pub(crate) fn is_dirsync(&self) -> bool {
        self.dirsync.load(Ordering::Relaxed)
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
        self.noatime.store(on, Ordering::Relaxed);
    }

    pub(crate) fn is_noatime(&self) -> bool {
        self.noatime.load(Ordering::Relaxed)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// `EROFS` on a read-only mount.
    pub(crate) fn writable(&self) -> R<()> {
        if self.is_read_only() { Err(Errno::EROFS) } else { Ok(()) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns whether it was open until now.
    pub(crate) fn close_mount(&self) -> bool {
        let was_open = !self.closed.swap(true, Ordering::Relaxed);
        self.config_changed.notify_one();
        was_open
    }

    /// What a request says of its caller.
    pub(crate) fn ctx(&self, call: &Call) -> RequestContext {
        RequestContext {
            cred: call.cred.clone(),
            jobid: self.params.jobid(call),
            client_nid: self.opt.bind.map_or(String::new(), |addr| Nid { addr, net: 0 }.to_string()),
            deadline_ms: self
                .opt
                .soft_timeout
                .map_or(0, |d| u32::try_from(d.as_millis()).unwrap_or(u32::MAX)),
            trace_id: self.next_trace.fetch_add(1, Ordering::Relaxed),
            client_time: self.world.wall(),
            ..RequestContext::default()
        }
    }

    /// As [`Fs::ctx`], of the client itself: cleaning up, and what was permitted when a file was opened.
    pub(crate) fn own_ctx(&self) -> RequestContext {
        self.ctx(&Call::default())
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
            let start = self.world.now();
            let call = async {
                let r = call.await;
                if r.is_ok() && verb.changes_names() && self.dirsync.load(Ordering::Relaxed) {
                    self.commit_names().await?;
                }
                r
            };
            let r = match self.opt.soft_timeout {
                None => call.await,
                Some(d) => self.world.timeout(d, call).await.unwrap_or_else(|| {
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
        self.stats.add(verb, self.world.now().since(start).as_micros() as u64);
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        self.config_changed.notify_one(); // ends the task that watches the configuration
    }
}
