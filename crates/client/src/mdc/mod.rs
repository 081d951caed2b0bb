//! One metadata target (MDT), and what this mount keeps of its names, attributes and small files: under
//! leases.
//!
//! [`Mdc`] puts it together. Its parts have their own state, and know the session but not the whole:
//! [`MetaCache`] is the cache with the leases (`cache` holds what is known and by which rules, `known`
//! answers from it, `lease` gives it back, `ahead` brings more, `mapped` is what a kernel has of it),
//! [`SmallFiles`] fetches data (`fetch`), [`Fids`] has numbers for new files, [`Opens`] are the open files
//! that the server may have to be told of.
//!
//! `changing` keeps this mount's own changes apart from what is known. `untold` is what was executed here and
//! the server does not know of yet: `own` gets directories for that, `rules`, `cache/owned` and `execute` do
//! it, `log` holds it, `batch` sends it. `atimes` are access times that can wait.
//!
//! Nothing is used longer than the server may be sure of: a target that was not heard of for the life of a
//! lease ([`rpc::lease_life`]) may have given this client up and let others change what it keeps. A session
//! with a restarted target, or one that evicted this client, begins with an empty cache; other targets' are
//! not touched.
//!
//! Permission is not checked on what is answered from here: `llite` does, or the kernel.

mod ahead;
mod atimes;
mod batch;
mod cache;
mod changing;
mod content;
mod execute;
mod fetch;
mod fids;
mod follow;
mod getattr;
mod known;
mod lease;
mod listing;
mod locate;
mod log;
mod mapped;
mod meta_cache;
mod opens;
mod own;
pub(crate) mod params;
pub(crate) mod privileges;
mod rules;
mod session;
mod small;
mod untold;

#[cfg(test)]
mod tests;

pub(crate) use cache::{Cache, Outcome, Part};
pub(crate) use changing::Changing;
pub(crate) use content::{CONTENT_MAX_BYTES, Came, Edit};
pub(crate) use known::{Found, fitting};
pub(crate) use locate::{Locate, ROOT_MDT};
pub(crate) use meta_cache::MetaCache;
pub(crate) use opens::{FileState, Opens, ReadTimes, is_read_write, owner_of};
pub(crate) use small::brought;

use crate::base::Context;
use crate::session::Target;
use atimes::Atimes;
use fids::Fids;
use ldlm::LockClient;
use model::{Fid, Nid, TargetId, TargetKind};
use small::SmallFiles;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use untold::UntoldOps;

/// `lru_size`: files with leases.
pub(crate) const LRU_FILES_DEFAULT: usize = 131_072;
/// `lru_max_age`, as Lustre has it.
pub(crate) const LRU_AGE_DEFAULT: Duration = Duration::from_secs(3900);
/// `statahead_max`: entries of a directory fetched at a time because they may be asked for next.
pub(crate) const STATAHEAD_DEFAULT: usize = 8192;

/// What the metadata targets of a mount share: settings, counters, and what is looked up by the number of a
/// handle or lock.
pub(crate) struct Shared {
    pub locate: Arc<Locate>,
    pub opens: Arc<Opens>,
    /// File locks.
    pub locks: LockClient,
    /// Bytes of small files' data and extended attributes that are kept.
    pub content_bytes: Arc<AtomicU64>,
    /// `lru_size`: files with leases, of each target.
    pub lru_files: AtomicUsize,
    /// `lru_max_age`, milliseconds.
    pub max_age: AtomicU64,
    pub statahead_max: AtomicU64,
    /// `md_writeback`=0.
    pub writeback_off: AtomicBool,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub revoked: AtomicU64,
    pub fetched_ahead: AtomicU64,
    /// Runs of stat-ahead, and those that were in vain because others change the directory.
    pub ahead_runs: AtomicU64,
    pub ahead_in_vain: AtomicU64,
    pub content_hits: AtomicU64,
    pub content_misses: AtomicU64,
    pub content_ahead: AtomicU64,
    /// Operations executed here, the batches in which they went, and those that were lost.
    pub executed: AtomicU64,
    pub batches: AtomicU64,
    pub lost: AtomicU64,
    /// Directories asked for, and refused.
    pub asked: AtomicU64,
    pub refused: AtomicU64,
}

impl Shared {
    /// Open handles count up from `first`.
    pub(crate) fn new(first: u64) -> Arc<Shared> {
        let n = || AtomicU64::new(0);
        Arc::new(Shared {
            locate: Arc::new(Locate::new()),
            opens: Arc::new(Opens::new(first)),
            locks: LockClient::new(),
            content_bytes: Arc::default(),
            lru_files: AtomicUsize::new(LRU_FILES_DEFAULT),
            max_age: AtomicU64::new(LRU_AGE_DEFAULT.as_millis() as u64),
            statahead_max: AtomicU64::new(STATAHEAD_DEFAULT as u64),
            writeback_off: AtomicBool::new(false),
            hits: n(),
            misses: n(),
            revoked: n(),
            fetched_ahead: n(),
            ahead_runs: n(),
            ahead_in_vain: n(),
            content_hits: n(),
            content_misses: n(),
            content_ahead: n(),
            executed: n(),
            batches: n(),
            lost: n(),
            asked: n(),
            refused: n(),
        })
    }

    fn count(&self, hit: bool) {
        if hit { &self.hits } else { &self.misses }.fetch_add(1, Relaxed);
    }

    /// Whether operations may be executed here at all (`md_writeback`).
    pub(crate) fn executes(&self) -> bool {
        !self.writeback_off.load(Relaxed)
    }
}

/// This mount's side of one MDT: the session, what is kept and what is untold.
pub(crate) struct Mdc {
    pub cx: Arc<Context>,
    pub target: Arc<Target>,
    pub shared: Arc<Shared>,
    pub meta: Arc<MetaCache>,
    pub small: Arc<SmallFiles>,
    pub fids: Arc<Fids>,
    pub untold: UntoldOps,
    atimes: Atimes,
}

impl Mdc {
    /// The session with an MDT, which is made with it; it connects at its first call. `content_max`: bytes of
    /// small files that may be kept.
    pub(crate) fn new(
        cx: &Arc<Context>,
        shared: &Arc<Shared>,
        content_max: u64,
        id: TargetId,
        nids: Vec<Nid>,
    ) -> Arc<Mdc> {
        assert!(id.kind == TargetKind::Mdt, "names lie on metadata targets");
        Arc::new_cyclic(|me: &Weak<Mdc>| {
            let target = Target::new(cx, id, nids, me.clone());
            let meta = MetaCache::new(cx, shared, &target, content_max);
            Mdc {
                small: SmallFiles::new(&meta),
                fids: Fids::new(cx, &target, &shared.locate),
                untold: UntoldOps::default(),
                atimes: Atimes::default(),
                cx: cx.clone(),
                target,
                shared: shared.clone(),
                meta,
            }
        })
    }

    /// Whether a file lies on this target.
    pub(crate) fn is_home_of(&self, fid: Fid) -> bool {
        self.shared.locate.mdt_of(fid) == self.target.id.index
    }
}
