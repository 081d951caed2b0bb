//! After a reconnect: what an eviction cost, what must be reclaimed, what is sent again.
//!
//! A request keeps slot and xid over any number of resends; the server executes it once
//! (`server/slots.rs`). Only an eviction breaks that promise, because it deletes the slots: what may have
//! been executed fails then.

use crate::call::Outbox;
use crate::import::{Core, ImportState};
use model::Errno;
use std::sync::Arc;
use wire::msg::connect::ConnectReply;
use wire::msg::reclaim::{Reclaim, ReclaimReply};

impl Core {
    /// The server answered a connect: forgets what the eviction made unknowable, notes what is owed.
    /// True if this client was evicted.
    pub fn adopt_session(&self, reply: &ConnectReply) -> bool {
        let mut failed = Vec::new();
        let evicted = {
            let mut g = self.lock();
            let evicted = reply.new_client && g.last_epoch != 0;
            // An unfinished reclaim or good-bye of the old connection starts anew, with a new xid.
            g.slots[0] = None;
            if evicted {
                for s in &mut g.slots {
                    if s.as_ref().is_some_and(|f| f.req.modifies) {
                        failed.extend(s.take());
                    }
                }
            }
            g.reclaim_owed |= reply.recovering || evicted;
            g.recovering = reply.recovering;
            evicted
        };
        for mut f in failed {
            f.req.finish(Err(Errno::EIO));
        }
        evicted
    }

    /// Reclaims if need be, then opens the session for calls: everything unanswered again, with the flag
    /// that says so, in the order of its xids, then what waited.
    pub async fn recover(self: &Arc<Core>) {
        let (owed, recovering) = {
            let g = self.lock();
            (g.reclaim_owed, g.recovering)
        };
        if owed {
            self.set_state(ImportState::Recover);
            if !self.reclaim(recovering).await {
                return;
            }
            self.lock().reclaim_owed = false;
        }
        let target = self.target_number();
        let mut out = Outbox::default();
        {
            let mut g = self.lock();
            out.link = g.link.clone();
            let mut again: Vec<(u64, u16)> = Vec::new();
            for (i, s) in g.slots.iter().enumerate().skip(1) {
                again.extend(s.as_ref().map(|f| (f.xid, i as u16)));
            }
            again.sort_unstable();
            let now = self.world.now();
            for s in g.slots.iter_mut().flatten() {
                s.sent = now;
            }
            out.frames.extend(again.into_iter().map(|(_, slot)| g.frame(target, slot, true)));
            g.ever_full = true;
            g.refused = None;
        }
        self.set_state(ImportState::Full);
        self.lock().pump(target, self.world.now(), &mut out);
        self.send_out(out);
    }

    /// False if the connection went away meanwhile.
    async fn reclaim(self: &Arc<Core>, recovering: bool) -> bool {
        let mut pieces = self.cfg.hooks.reclaim();
        if pieces.is_empty() && !recovering {
            return true;
        }
        for p in &mut pieces {
            p.last = false;
        }
        match pieces.last_mut() {
            Some(p) => p.last = true,
            None => pieces.push(Reclaim { opens: Vec::new(), locks: Vec::new(), last: true }),
        }
        let mut lost = ReclaimReply { lost_opens: Vec::new(), lost_locks: Vec::new() };
        for p in pieces {
            match self.control(p).await {
                Ok(r) => {
                    lost.lost_opens.extend(r.lost_opens);
                    lost.lost_locks.extend(r.lost_locks);
                }
                Err(Errno::ENOTCONN) => return false,
                Err(e) => tracing::warn!(target = %self.label(), "reclaim failed: {e}"),
            }
        }
        self.cfg.hooks.reclaimed(lost);
        true
    }
}
