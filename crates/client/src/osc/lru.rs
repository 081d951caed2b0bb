//! How many locks on data a mount keeps: `lru_size` and `lock_count` of
//! `ldlm.namespaces.FSNAME-OSTxxxx-osc-INSTANCE`. What is kept under a lock goes with it: `lru_size=clear` is
//! how users drop what a mount has of its files' data.

use super::Osc;
use super::object::Object;
use crate::R;
use crate::base::params::lru_size;
use model::limits::LEASES_PER_CLIENT_MAX_FILES;
use model::param::{Decl, Param, Preset, Scope, Setting, Table};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use world::sync;

/// Locks that may be wanted at most: as many as an MDT grants leases to one client.
const LRU_MAX: usize = LEASES_PER_CLIENT_MAX_FILES;

/// Locks on the objects of one OST.
#[derive(Default)]
pub(crate) struct HeldLocks {
    /// Locks that are held.
    pub held: AtomicUsize,
    /// Most locks that are kept when nobody uses them; 0: as many as the mount's other bounds let.
    most: AtomicUsize,
    /// A task gives locks up that are too many.
    trimming: AtomicBool,
    /// Orders to give all up that are not done; one that comes while one is under way is done behind it.
    clearing: AtomicUsize,
    cleared: sync::Notify,
}

pub(crate) static LDLM: Table<Osc> = Table {
    scopes: &[Scope::LdlmOsc],
    params: &[
        Param::settable(
            Decl::words(
                "lru_size",
                "",
                |text| lru_size(text, LRU_MAX).map(drop),
                "Locks on data that are kept while nobody uses them; 0: as many as memory allows; 'clear' gives them back now, with what is kept under them.",
            )
            .by_default(Preset::Number(0)),
            |o, ()| o.lru.most.load(Ordering::Relaxed).into(),
            |o, (), v| set_lru_size(o, &v),
        ),
        Param::shown(Decl::gauge("lock_count", "", "Locks on data that this mount holds."), |o, ()| {
            o.lru.held.load(Ordering::Relaxed).into()
        }),
        Param::shown(
            Decl::gauge("lock_unused_count", "", "Those of them that no operation uses at the moment."),
            |o, ()| o.objects().iter().map(|o| o.lock().idle_locks().len()).sum::<usize>().into(),
        ),
    ],
};

fn set_lru_size(osc: &Osc, v: &Setting<'_>) -> R<()> {
    match lru_size(v.text, LRU_MAX)? {
        Some(most) => {
            osc.lru.most.store(most, Ordering::Relaxed);
            osc.trim_locks();
        }
        None => osc.clear_locks(),
    }
    Ok(())
}

/// Gives up what nobody uses, the least recently used objects first, until `enough` says so.
async fn give_up(mut objects: Vec<Arc<Object>>, enough: impl Fn() -> bool) {
    objects.sort_by_key(|o| o.used.load(Ordering::Relaxed));
    for o in objects {
        if enough() {
            return;
        }
        o.give_up_locks().await;
    }
}

impl Osc {
    /// A lock was granted: if there are too many now the least recently used go, in the background.
    pub(super) fn trim_locks(&self) {
        let most = self.lru.most.load(Ordering::Relaxed);
        let is_over = |lru: &HeldLocks| {
            let most = lru.most.load(Ordering::Relaxed);
            most > 0 && lru.held.load(Ordering::Relaxed) > most
        };
        if most == 0 || !is_over(&self.lru) || self.lru.trimming.swap(true, Ordering::SeqCst) {
            return;
        }
        let (objects, lru) = (self.objects(), self.lru.clone());
        self.cx.world.spawn("client-trim-locks", async move {
            give_up(objects, || !is_over(&lru)).await;
            lru.trimming.store(false, Ordering::SeqCst);
        });
    }

    /// Writes everything, and gives every lock back that nobody uses, in the background.
    fn clear_locks(&self) {
        if self.lru.clearing.fetch_add(1, Ordering::SeqCst) > 0 {
            return;
        }
        let (cache, id, lru) = (self.cache.clone(), self.target.id, self.lru.clone());
        self.cx.world.spawn("client-clear-locks", async move {
            loop {
                let orders = lru.clearing.load(Ordering::SeqCst);
                assert!(orders > 0, "what is done was ordered");
                let objects = cache.of_target(id);
                objects.iter().for_each(Object::kick);
                give_up(objects, || false).await;
                if lru.clearing.fetch_sub(orders, Ordering::SeqCst) == orders {
                    lru.cleared.notify_waiters();
                    return;
                }
            }
        });
    }

    /// Waits until all is given back that [`Osc::clear_locks`] is to give back.
    pub(crate) async fn locks_cleared(&self) {
        loop {
            let mut cleared = Box::pin(self.lru.cleared.notified());
            cleared.as_mut().enable();
            if self.lru.clearing.load(Ordering::SeqCst) == 0 {
                return;
            }
            cleared.await;
        }
    }
}
