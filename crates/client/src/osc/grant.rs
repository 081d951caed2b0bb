//! Grant: space on the OST that it keeps for what this mount has dirty, so that a write that was accepted
//! here does not fail there for want of room.

use super::Osc;
use bytes::Bytes;
use model::mutex::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::msg::grant;
use world::Instant;

/// An OST that granted nothing is asked again after so long.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Less than this is not asked for.
const ASK_MIN_BYTES: u64 = 4 << 20;

#[derive(Default)]
pub(super) struct Grant {
    /// Bytes that no dirty byte uses; negative after the server forgot.
    left: i64,
    asking: bool,
    refused: Option<Instant>,
}

impl Osc {
    fn grant(&self) -> MutexGuard<'_, Grant> {
        self.grant.lock()
    }

    /// Uses grant; false if there is not so much.
    fn use_grant(&self, bytes: u64) -> bool {
        let mut g = self.grant();
        let ok = g.left >= bytes as i64;
        if ok {
            g.left -= bytes as i64;
            assert!(g.left >= 0, "what was used was there");
        }
        ok
    }

    /// Grant that is not needed after all.
    pub(crate) fn give_back_grant(&self, bytes: u64) {
        self.grant().left += bytes as i64;
    }

    /// Bytes of grant left.
    pub(crate) fn grant_left(&self) -> u64 {
        self.grant().left.max(0) as u64
    }

    /// The server restarted: what it granted is void.
    pub(super) fn forget_grant(&self) {
        let mut g = self.grant();
        g.left = 0;
        g.refused = None;
        drop(g);
        self.forget_keeps();
    }

    /// Uses grant for `bytes`; asks for more first if need be. False: the OST grants no more.
    pub(crate) async fn take_grant(self: &Arc<Self>, bytes: u64) -> bool {
        if self.use_grant(bytes) {
            if self.grant_left() < self.max_dirty.load(Ordering::Relaxed) / 4 {
                self.ask_grant();
            }
            return true;
        }
        loop {
            let mut answered = Box::pin(self.grant_answered.notified());
            answered.as_mut().enable();
            if !self.ask_grant() {
                return self.use_grant(bytes);
            }
            answered.await;
            if self.use_grant(bytes) {
                return true;
            }
            if self.grant().refused.is_some() {
                return false;
            }
        }
    }

    /// Asks for more in the background. False: it refused a moment ago.
    pub(super) fn ask_grant(self: &Arc<Self>) -> bool {
        let now = self.cx.world.now();
        {
            let mut g = self.grant();
            if g.refused.is_some_and(|t| now.since(t) < ASK_AGAIN) {
                return false;
            }
            if g.asking {
                return true;
            }
            g.asking = true;
        }
        let me = self.clone();
        self.cx.world.spawn("client-grant", async move {
            me.ask_grant_now().await;
            let was = std::mem::replace(&mut me.grant().asking, false);
            assert!(was, "one asks at a time");
            me.grant_answered.notify_waiters();
        });
        true
    }

    /// One question and its answer.
    pub(super) async fn ask_grant_now(&self) {
        let (have, want) = {
            let g = self.grant();
            let used = self.unwritten.load(Ordering::Relaxed);
            let max = self.max_dirty.load(Ordering::Relaxed);
            (g.left.max(0) as u64 + used, max.max(ASK_MIN_BYTES))
        };
        let r = self.target.call_now(self.cx.own(), grant::Grant { have, want }, Bytes::new()).await;
        let now = self.cx.world.now();
        if let Ok(r) = &r {
            self.limits_heard(r.reply.limits.0 == Some(true));
        }
        let mut g = self.grant();
        match r {
            Ok(r) if r.reply.have > have => {
                g.left += (r.reply.have - have) as i64;
                g.refused = None;
            }
            Ok(r) => {
                g.left -= (have - r.reply.have) as i64;
                g.refused = Some(now);
            }
            Err(_) => g.refused = Some(now),
        }
    }
}
