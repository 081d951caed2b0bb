//! What the session with the metadata target says, and what a restarted one is told.

use super::Mdc;
use crate::session::{RECLAIM_BATCH, SessionOwner};
use bytes::Bytes;
use model::debug::DLMTRACE;
use model::planted::{self, Bug};
use model::{Errno, Fid};
use std::sync::Arc;
use wire::Op;
use wire::msg::cancel::{Cancel, CancelWhat};
use wire::msg::notify::{LeaseItem, Notify};
use wire::msg::reclaim::{Reclaim, ReclaimReply};
use world::BoxFuture;

impl SessionOwner for Mdc {
    fn reclaim(&self) -> Vec<Reclaim> {
        // Leases of the target's former life.
        let mut owned = Vec::new();
        if !planted::on(Bug::CacheKeptOverRestart) {
            owned = self.meta.clear_for_reclaim();
        }
        if planted::on(Bug::PendingNotReclaimed) {
            owned.clear();
        }
        self.reclaim_with(&owned)
    }

    fn reclaimed(&self, lost: &ReclaimReply) {
        self.reclaim_lost(lost);
    }

    fn request_lost(&self, op: Op, body: &Bytes, reply: &Bytes) {
        self.cx.request_lost(op, body, reply);
    }

    fn notice(self: Arc<Self>, n: Notify) {
        match n {
            Notify::LockGranted { id, errno } => self.lock_granted(id, errno),
            Notify::Revoke { items } => {
                let fids = || items.iter().map(|i| i.fid.to_string()).collect::<Vec<_>>().join(" ");
                tracing::debug!(target: DLMTRACE, "{} wants leases back: {}", self.target.id, fids());
                self.leases_revoked(&items);
            }
            // Of OSTs, of the MGS, of the session, and between servers.
            Notify::ConfigChanged { .. }
            | Notify::BlockExtent { .. }
            | Notify::ExtentGranted { .. }
            | Notify::GlimpseExtent { .. }
            | Notify::BulkLimit { .. }
            | Notify::Stopping
            | Notify::ClientEvicted { .. } => {}
        }
    }

    fn evicted(&self) {
        tracing::error!("{} evicted this client: calls that were under way fail", self.target.id);
        // Before: nothing may be made here with a FID that is not this client's any more.
        self.fids.forget();
        self.all_pending_lost(Errno::EIO);
    }

    fn has_barrier(&self) -> bool {
        self.has_pending()
    }

    fn pass_barrier(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move { self.tell_pending().await })
    }
}

impl Mdc {
    /// The server decided about a lock that waits. A grant that nobody wants any more is given back.
    fn lock_granted(self: &Arc<Self>, id: u64, errno: u16) {
        if let Some(stray) = self.shared.locks.on_granted(id, errno) {
            self.shared.locks.cancelled(id);
            let me = self.clone();
            self.cx.world.spawn("client-lock-cancel", async move { me.cancel(stray.fid, stray.what).await });
        }
    }

    /// Tells the server; failures are logged, for a lock that cannot be cancelled has no server any more.
    pub(crate) async fn cancel(&self, fid: Fid, what: CancelWhat) {
        let r = self.target.call(self.cx.own(), Cancel { fid, what }).await;
        if let Err(e) = r
            && !self.cx.is_closed()
        {
            tracing::warn!("a lock on {fid} cannot be cancelled: {e}");
        }
    }

    /// What a restarted MDT is told: open files and granted locks. Who waits asks again.
    /// `owned`: the exclusive leases under which there is something to be sent.
    fn reclaim_with(&self, owned: &[LeaseItem]) -> Vec<Reclaim> {
        let of_mdt = |fid: Fid| self.is_home_of(fid);
        // What the server has not heard of it need not keep.
        let known = |fid: Fid| of_mdt(fid) && !self.meta.is_made_here(fid);
        let opens = self.shared.opens.reclaim(known);
        let locks: Vec<_> = self.shared.locks.reclaim().into_iter().filter(|l| of_mdt(l.fid)).collect();
        tracing::info!(
            "{} recovers: {} open files, {} locks and {} exclusive leases are reclaimed",
            self.target.id,
            opens.len(),
            locks.len(),
            owned.len()
        );
        let opens = opens.chunks(RECLAIM_BATCH).map(|c| Reclaim { opens: c.to_vec(), ..Reclaim::default() });
        let locks = locks.chunks(RECLAIM_BATCH).map(|c| Reclaim { locks: c.to_vec(), ..Reclaim::default() });
        let owned = owned.chunks(RECLAIM_BATCH).map(|c| Reclaim { owned: c.to_vec(), ..Reclaim::default() });
        let mut all: Vec<Reclaim> = opens.chain(locks).chain(owned).collect();
        match all.last_mut() {
            Some(r) => r.last = true,
            None => all.push(Reclaim { last: true, ..Reclaim::default() }),
        }
        assert_eq!(all.iter().filter(|r| r.last).count(), 1, "a reclaim ends once");
        all
    }

    /// What could not be had back. A lost handle makes its operations fail by itself.
    fn reclaim_lost(&self, lost: &ReclaimReply) {
        let target = self.target.id;
        for handle in &lost.lost_opens {
            tracing::warn!("{target}: open file with handle {handle:#x} is gone");
        }
        for l in self.shared.locks.lost(&lost.lost_locks) {
            tracing::error!(
                "{target}: {:?} lock {:#x} on {} was lost to another client",
                l.kind,
                l.id,
                l.fid
            );
        }
    }
}
