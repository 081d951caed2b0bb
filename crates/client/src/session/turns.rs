//! `max_rpcs_in_flight`.

use crate::R;
use model::Errno;
use model::mutex::Mutex;
use std::sync::Arc;
use world::{World, sync};

/// So many at a time, as an administrator may change it.
#[derive(Clone)]
pub(crate) struct Turns(Arc<TurnsInner>);

struct TurnsInner {
    free: sync::Semaphore,
    limit: Mutex<usize>,
}

impl Turns {
    pub(crate) fn new(limit: usize) -> Turns {
        Turns(Arc::new(TurnsInner { free: sync::Semaphore::new(limit), limit: Mutex::new(limit) }))
    }

    pub(crate) async fn take(&self) -> R<sync::SemaphorePermit<'_>> {
        self.0.free.acquire().await.map_err(|_| Errno::ESHUTDOWN)
    }

    pub(crate) fn limit(&self) -> usize {
        *self.0.limit.lock()
    }

    /// Holds for new requests at once; fewer than are under way now are reached as those end.
    pub(crate) fn set_limit(&self, n: usize, world: &World) {
        let mut limit = self.0.limit.lock();
        if n > *limit {
            self.0.free.add_permits(n - *limit);
        } else if n < *limit {
            let excess = *limit - n;
            let owed = excess - self.0.free.forget_permits(excess);
            if owed > 0 {
                let me = self.0.clone();
                world.spawn("client-rpcs-in-flight", async move {
                    if let Ok(p) = me.free.acquire_many(owed as u32).await {
                        p.forget();
                    }
                });
            }
        }
        *limit = n;
    }
}
