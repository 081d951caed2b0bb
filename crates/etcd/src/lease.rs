//! A lease that is kept: the right to act for the others, and when to stop relying on it.

use crate::client::{Error, Etcd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use world::{Either, Instant, select, sync};

/// Renewals within a term.
const BEATS: u32 = 6;
const ADOPT_PATIENCE: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(200);

struct Shared {
    /// Nanoseconds of the world's clock.
    good_until: AtomicU64,
    over: AtomicBool,
    changed: sync::Notify,
}

/// A lease of etcd, renewed in the background. It is relied on for half a term after the start of the last
/// renewal that etcd answered: whoever comes next waits for the whole term, on etcd's clock. Once it was not
/// good it never is again. Dropping it ends the renewals.
pub struct Lease {
    etcd: Arc<Etcd>,
    id: i64,
    shared: Arc<Shared>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Shared {
    fn end(&self) {
        self.over.store(true, Relaxed);
        self.changed.notify_waiters();
    }

    fn held(&self, now: Instant) -> bool {
        if !self.over.load(Relaxed) && now.0 < self.good_until.load(Relaxed) {
            return true;
        }
        self.end();
        false
    }
}

impl Lease {
    /// A new one.
    pub async fn take(etcd: &Arc<Etcd>, term: Duration) -> Result<Lease, Error> {
        let start = etcd.world.now();
        let id = etcd.grant(term).await?;
        Ok(Lease::kept(etcd, id, start, term))
    }

    /// Goes on with one that a dead process of the same owner took with the same term; `None`: it is over.
    pub async fn adopt(etcd: &Arc<Etcd>, id: i64, term: Duration) -> Result<Option<Lease>, Error> {
        let start = etcd.world.now();
        let there = etcd.keep_alive(id, ADOPT_PATIENCE).await?;
        Ok(there.then(|| Lease::kept(etcd, id, start, term)))
    }

    fn kept(etcd: &Arc<Etcd>, id: i64, start: Instant, term: Duration) -> Lease {
        let shared = Arc::new(Shared {
            good_until: AtomicU64::new(start.plus(term / 2).0),
            over: AtomicBool::new(false),
            changed: sync::Notify::new(),
        });
        etcd.world.spawn("etcd-lease", renew(etcd.clone(), id, term, shared.clone()));
        Lease { etcd: etcd.clone(), id, shared }
    }

    pub fn id(&self) -> i64 {
        self.id
    }

    /// False: somebody else may act by now, or soon.
    pub fn held(&self) -> bool {
        self.shared.held(self.etcd.world.now())
    }

    /// Waits until it is not good any more.
    pub async fn lost(&self) {
        loop {
            let mut changed = Box::pin(self.shared.changed.notified());
            changed.as_mut().enable();
            if !self.held() {
                return;
            }
            let now = self.etcd.world.now();
            let left = Instant(self.shared.good_until.load(Relaxed)).since(now);
            select(changed, self.etcd.world.sleep(left + Duration::from_millis(1))).await;
        }
    }

    /// Gives it back: its keys are gone at once.
    pub async fn end(&self) -> Result<(), Error> {
        self.shared.end();
        self.etcd.revoke(self.id).await
    }
}

async fn renew(etcd: Arc<Etcd>, id: i64, term: Duration, shared: Arc<Shared>) {
    loop {
        let mut changed = Box::pin(shared.changed.notified());
        changed.as_mut().enable();
        if shared.over.load(Relaxed) {
            return;
        }
        if let Either::Left(()) = select(changed, etcd.world.sleep(term / BEATS)).await {
            continue;
        }
        let start = etcd.world.now();
        if !shared.held(start) {
            return;
        }
        let left = Instant(shared.good_until.load(Relaxed)).since(start);
        match etcd.keep_alive(id, left).await {
            Ok(true) if shared.held(etcd.world.now()) => {
                shared.good_until.fetch_max(start.plus(term / 2).0, Relaxed);
            }
            Ok(true) => return,
            Ok(false) => {
                tracing::warn!("the lease in etcd is over: another host may act now");
                return shared.end();
            }
            Err(e) => {
                tracing::warn!("cannot renew the lease in etcd: {e}");
                // Some refusals come at once.
                etcd.world.sleep(AGAIN).await;
            }
        }
    }
}
