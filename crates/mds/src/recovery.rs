//! After a restart: every client that was known comes back and says what it had open and locked, before
//! anybody else is served; who does not come in time is evicted. Then files without names or opens go.
//!
//! A resent create is answered from its stored reply without reaching the target; clients therefore reclaim the
//! handles of requests under way too (one that was not executed names no file and is lost, which is no harm).
//! Handles and lock ids are the clients' choice: saying something twice is harmless.

use crate::schema::key;
use crate::service::Mdt;
use crate::shared::lock;
use model::planted::{self, Bug};
use model::{Errno, TargetId, Timestamp};
use rpc::{ClientId, Service};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use wire::Op;
use world::{Either, select};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Recovering,
    Serving,
    Stopped,
}

/// What `recovery_status` shows.
#[derive(Default, Debug)]
pub struct Report {
    /// There was something to recover.
    pub needed: bool,
    pub start: Timestamp,
    pub end: Timestamp,
    pub clients: usize,
    pub evicted: usize,
}

/// How often the recovery task looks whether the window passed (it may be changed meanwhile).
const TICK: Duration = Duration::from_millis(250);

impl Mdt {
    /// Waits until requests of this kind may be served. `ESHUTDOWN` once the target stops.
    pub(crate) async fn admitted(&self, op: Op) -> Result<(), Errno> {
        let always = matches!(op, Op::Ping | Op::Disconnect | Op::Reclaim | Op::GetParam | Op::Statfs)
            || planted::on(Bug::NoRecoveryWindow);
        let mut phase = self.phase.subscribe();
        let seen = phase.wait_for(|p| always || *p != Phase::Recovering).await.map(|p| *p);
        match seen {
            Ok(Phase::Stopped) | Err(_) => Err(Errno::ESHUTDOWN),
            Ok(_) => Ok(()),
        }
    }

    pub(crate) fn start_recovery(self: &Arc<Self>, needed: bool) {
        let mdt = self.clone();
        if !needed {
            self.world.spawn("mdt orphans", async move { mdt.purge_orphans().await });
            return;
        }
        *lock(&self.recovered) = Report {
            needed: true,
            start: self.world.wall(),
            clients: self.core_read().clients.len(),
            ..Report::default()
        };
        self.world.spawn("mdt recovery", async move { mdt.recovery_window().await });
    }

    /// True if the target stopped meanwhile.
    pub(crate) async fn pause(&self, d: Duration) -> bool {
        let mut stopping = self.stopping.subscribe();
        let stopped = async move { stopping.wait_for(|s| *s).await.is_ok() };
        matches!(select(stopped, self.world.sleep(d)).await, Either::Left(_))
    }

    async fn recovery_window(self: Arc<Self>) {
        let start = self.world.now();
        let mut rounds = 1;
        while *self.phase.borrow() == Phase::Recovering {
            let window = Duration::from_secs(self.shared.params.number("recovery_time_soft"));
            if self.world.now().since(start) >= window * rounds {
                rounds += 1;
                self.close_window(rounds > 2);
            }
            if self.pause(TICK).await {
                return;
            }
        }
    }

    /// The time is up: clients that never connected are evicted. Those that did but are not done get as much
    /// time again; then (`all`) the others no longer wait for them.
    fn close_window(self: &Arc<Self>, all: bool) {
        let missing: Vec<ClientId> = {
            let mut core = self.core_write();
            for c in core.clients.values_mut().filter(|c| c.connected && all) {
                c.waived = true;
            }
            core.clients.iter().filter(|(_, c)| !c.connected).map(|(id, _)| *id).collect()
        };
        for client in missing {
            match self.evict_absent(client) {
                Ok(true) => lock(&self.recovered).evicted += 1,
                Ok(false) => {}
                Err(e) => tracing::error!("evicting client {client} failed: {e}"),
            }
        }
        self.check_recovery();
    }

    /// Takes a client out that never came back, all in one step: if it connects a moment later it is a new one.
    /// It has no opens and no locks, since those come with its reclaim. False if it is connected after all.
    fn evict_absent(&self, client: ClientId) -> Result<bool, store::StoreError> {
        let mut core = self.core_write();
        let Some(c) = core.clients.get(&client).filter(|c| !c.connected) else { return Ok(false) };
        tracing::warn!(
            "{}: client {client} ({} at {}) did not come back in time and is evicted",
            TargetId::mdt(self.cfg.index).label(&self.cfg.fsname),
            c.name,
            c.address
        );
        let mut txn = store::Txn::new();
        txn.delete(key::client(&client.0));
        self.db.delete_replies(&client.0, &mut txn)?;
        self.db.submit(txn)?;
        core.clients.remove(&client);
        Ok(true)
    }

    /// Ends recovery if nobody is missing any more.
    pub(crate) fn check_recovery(self: &Arc<Self>) {
        let done = self.core_read().all_reclaimed();
        let ended = done
            && self.phase.send_if_modified(|p| {
                let was = *p == Phase::Recovering;
                if was {
                    *p = Phase::Serving;
                }
                was
            });
        if ended {
            lock(&self.recovered).end = self.world.wall();
            let mdt = self.clone();
            self.world.spawn("mdt orphans", async move { mdt.purge_orphans().await });
        }
    }
}

/// `recovery_status`, in Lustre's words.
pub fn status(mdt: &Mdt) -> String {
    let r = lock(&mdt.recovered);
    if !r.needed {
        return "status: INACTIVE\n".into();
    }
    let mut s = String::new();
    let core = mdt.core_read();
    let done = core.clients.values().filter(|c| c.reclaimed).count();
    let connected = core.clients.values().filter(|c| c.connected).count();
    if *mdt.phase.borrow() == Phase::Recovering {
        let window = i64::try_from(mdt.shared.params.number("recovery_time_soft")).unwrap_or(i64::MAX);
        let left = (r.start.sec + window - mdt.world.wall().sec).max(0);
        let _ = writeln!(s, "status: RECOVERING\nrecovery_start: {}\ntime_remaining: {left}", r.start.sec);
        let _ = writeln!(s, "connected_clients: {connected}/{}\ncompleted_clients: {done}", r.clients);
        let _ = writeln!(s, "evicted_clients: {}", r.evicted);
    } else {
        let took = r.end.sec - r.start.sec;
        let _ = writeln!(s, "status: COMPLETE\nrecovery_start: {}\nrecovery_duration: {took}", r.start.sec);
        let _ = writeln!(s, "completed_clients: {}/{}", r.clients - r.evicted.min(r.clients), r.clients);
        let _ = writeln!(s, "last_transno: {}\nVBR: DISABLED\nIR: ENABLED", mdt.last_committed());
    }
    s
}
