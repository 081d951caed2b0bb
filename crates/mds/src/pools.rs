//! OST pools as this metadata target knows them: who is in them, whose turn it is in each, and where what
//! does not fit goes (spilling).

use crate::alloc::Allocator;
use crate::osts::Osts;
use model::mutex::Mutex;
use model::{Errno, LayoutSpec, pool};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Pools that are tried one after the other because the one before is too full.
const SPILLS_MAX: usize = 10;
/// Names of pools without members that were complained of.
const COMPLAINTS_MAX: usize = model::limits::POOLS_MAX;

/// What changes of one pool.
#[derive(Default)]
struct Members {
    osts: BTreeSet<u16>,
    /// Where new objects go when it is too full; empty: nowhere else.
    spill_target: String,
}

/// One pool.
pub struct OstPool {
    pub name: String,
    members: Mutex<Members>,
    /// Each pool takes turns of its own.
    pub(crate) allocator: Mutex<Allocator>,
    /// Percent in use from which on it spills; 0: it never does.
    pub spill_threshold_pct: AtomicU64,
    /// Files whose objects went elsewhere.
    pub spill_hit: AtomicU64,
}

impl OstPool {
    pub fn osts(&self) -> BTreeSet<u16> {
        self.members.lock().osts.clone()
    }

    pub fn spill_target(&self) -> String {
        self.members.lock().spill_target.clone()
    }
}

/// All pools of the file system.
#[derive(Default)]
pub struct Pools {
    table: Mutex<BTreeMap<String, Arc<OstPool>>>,
    complaints: Mutex<BTreeSet<String>>,
    /// How often others came to be in pools.
    changes: AtomicU64,
}

impl Pools {
    /// These are the file system's pools now. What an administrator set of those that stay is kept.
    pub fn configure(&self, all: &[model::Pool]) {
        let mut table = self.table.lock();
        let before: Vec<_> = table.values().map(|p| (p.name.clone(), p.osts())).collect();
        table.retain(|name, _| all.iter().any(|p| p.name == *name));
        for p in all {
            let known = table.entry(p.name.clone()).or_insert_with(|| {
                Arc::new(OstPool {
                    name: p.name.clone(),
                    members: Mutex::default(),
                    allocator: Mutex::default(),
                    spill_threshold_pct: AtomicU64::new(0),
                    spill_hit: AtomicU64::new(0),
                })
            });
            known.members.lock().osts = p.osts.iter().copied().collect();
        }
        assert_eq!(table.len(), all.len(), "a pool is in the configuration once");
        if !table.values().map(|p| (p.name.clone(), p.osts())).eq(before) {
            self.changes.fetch_add(1, Relaxed);
        }
        drop(table);
        self.complaints.lock().retain(|name| !all.iter().any(|p| p.name == *name && !p.osts.is_empty()));
    }

    /// How often others came to be in pools.
    pub fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    pub fn get(&self, name: &str) -> Option<Arc<OstPool>> {
        self.table.lock().get(name).cloned()
    }

    /// By name.
    pub fn list(&self) -> Vec<Arc<OstPool>> {
        self.table.lock().values().cloned().collect()
    }

    /// One in which objects can be.
    fn with_members(&self, name: &str) -> Option<Arc<OstPool>> {
        self.get(name).filter(|p| !p.members.lock().osts.is_empty())
    }

    /// `EINVAL` if what somebody asks for names a pool that is not there or has no members, or OSTs that are
    /// not in it.
    pub fn check(&self, spec: &LayoutSpec) -> Result<(), Errno> {
        if spec.pool.is_empty() || spec.pool == pool::IGNORE {
            return Ok(());
        }
        let pool = self.with_members(&spec.pool).ok_or(Errno::EINVAL)?;
        if holds_named(&pool.osts(), spec) { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Where `pool` spills to. `EINVAL`: that is no pool's name; `ENOENT`: there is no such pool; `ELOOP`:
    /// that one spills, perhaps by way of others, into this one.
    pub fn set_spill_target(&self, pool: &OstPool, target: &str) -> Result<(), Errno> {
        is_spill_target(target)?;
        // What is set for good is set again with every configuration, also when the pool is gone since.
        if pool.spill_target() == target {
            return Ok(());
        }
        let mut next = target.to_string();
        // Each pool is passed once at most, unless there is a loop.
        for _ in 0..=model::limits::POOLS_MAX {
            if next.is_empty() {
                break;
            }
            if next == pool.name {
                return Err(Errno::ELOOP);
            }
            match self.get(&next) {
                None if next == target => return Err(Errno::ENOENT),
                None => break,
                Some(p) => next = p.spill_target(),
            }
        }
        pool.members.lock().spill_target = target.to_string();
        Ok(())
    }

    /// Says once that files that should be in a pool go to any OST.
    fn complain(&self, name: &str) {
        let mut told = self.complaints.lock();
        if told.len() < COMPLAINTS_MAX && told.insert(name.to_string()) {
            tracing::warn!(
                "new files should be in pool '{name}', which is not there or has no OSTs: they go to all OSTs \
                 (lctl pool_new, pool_add; lfs setstripe -p for the directory)"
            );
        }
    }
}

/// Whether a pool may spill to what is called so: `EINVAL`. Empty: nowhere.
pub fn is_spill_target(name: &str) -> Result<(), Errno> {
    if name.is_empty() || pool::name_is_valid(name) { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Whether the OSTs that somebody named are among these; it is if nobody named any.
fn holds_named(osts: &BTreeSet<u16>, spec: &LayoutSpec) -> bool {
    let first = u16::try_from(spec.stripe_start).ok();
    spec.osts.iter().chain(&first).all(|i| osts.contains(i))
}

impl Osts {
    /// Whether a pool is so full that new objects go to the one that it spills to.
    pub fn spills(&self, pool: &OstPool) -> bool {
        let threshold = pool.spill_threshold_pct.load(Relaxed);
        let target = pool.spill_target();
        if threshold == 0 || self.pools.with_members(&target).is_none() {
            return false;
        }
        // As `lfs df` shows it.
        let (taken, available) = self.space_of(&pool.osts());
        let whole = taken + available;
        whole > 0 && taken * 100 >= whole * u128::from(threshold)
    }

    /// The settings, to which nothing is inherited any more, with the pool from which OSTs are to be chosen
    /// now: none where the one that they name is gone or has no OSTs, or OSTs outside of it were named; the
    /// one that it spills to where it is too full.
    pub fn placed(&self, spec: LayoutSpec) -> LayoutSpec {
        let name = self.pool_for(&spec);
        LayoutSpec { pool: name, ..spec }
    }

    fn pool_for(&self, spec: &LayoutSpec) -> String {
        if spec.pool.is_empty() || spec.pool == pool::IGNORE {
            return String::new();
        }
        let Some(first) = self.pools.with_members(&spec.pool) else {
            self.pools.complain(&spec.pool);
            return String::new();
        };
        let named = !spec.osts.is_empty() || spec.stripe_start >= 0;
        if named {
            return if holds_named(&first.osts(), spec) { first.name.clone() } else { String::new() };
        }
        let mut pool = first.clone();
        for _ in 0..SPILLS_MAX {
            match self.pools.with_members(&pool.spill_target()).filter(|_| self.spills(&pool)) {
                Some(next) => pool = next,
                None => break,
            }
        }
        if pool.name != first.name {
            first.spill_hit.fetch_add(1, Relaxed);
        }
        pool.name.clone()
    }

    /// The pool that limits where `spec` may go, as [`Osts::placed`] said it; `None`: any OST.
    pub(crate) fn limits(&self, spec: &LayoutSpec) -> Option<(Arc<OstPool>, BTreeSet<u16>)> {
        let pool = self.pools.with_members(&spec.pool)?;
        let osts = pool.osts();
        // It may have changed meanwhile.
        (!osts.is_empty() && holds_named(&osts, spec)).then_some((pool, osts))
    }
}
