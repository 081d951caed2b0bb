//! Getting a directory for this mount alone, with all its names, before operations are executed in it.

use super::Mdc;
use super::cache::{Owned, Wants};
use model::Fid;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::msg::own::{Own, OwnReply};

/// Bytes of names in one answer.
const PAGE_BYTES: u32 = 1 << 20;
/// Steps on the way to a directory; more than these come to nothing.
const STEPS: usize = 3;

/// A directory is being asked for; over when dropped.
struct Asking<'a> {
    mdc: &'a Mdc,
    dir: Fid,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let was = self.mdc.untold.owning.lock().remove(&self.dir);
        assert!(was, "one asks for a directory at a time");
        self.mdc.untold.owned.notify_waiters();
    }
}

impl Mdc {
    /// Whether operations may be executed here in `dir`; asks for it if that is worth while, with `children`
    /// also for the inodes in it, and waits for room in the log.
    pub(super) async fn prepare(self: &Arc<Self>, dir: Fid, children: bool) -> bool {
        if !self.executes_here(dir) {
            return false;
        }
        self.pending_room().await;
        for _ in 0..STEPS {
            let wants = self.meta.lock().wants(dir, self.cx.world.now());
            match wants {
                Wants::Nothing => return self.meta.leases_good(),
                Wants::Never => return false,
                // Its answer is noted with its lease.
                Wants::Inode => {
                    if self.getattr_entry(self.cx.own(), dir).await.is_err() {
                        return false;
                    }
                }
                Wants::Lease { names } => {
                    if !self.own(dir, names || children, children).await {
                        return false;
                    }
                }
            }
        }
        false
    }

    /// The inodes in `dir`, too: once for a directory.
    pub(super) async fn prepare_children(self: &Arc<Self>, dir: Fid) -> bool {
        let now = self.cx.world.now();
        self.executes_here(dir) && self.meta.lock().ask_children(dir, now) && self.own(dir, true, true).await
    }

    /// False if it could not be had.
    async fn own(self: &Arc<Self>, dir: Fid, names: bool, children: bool) -> bool {
        let _asking = {
            let mut changed = Box::pin(self.untold.owned.notified());
            changed.as_mut().enable();
            if !self.untold.owning.lock().insert(dir) {
                // Somebody else asks: then it is there, or not to be had.
                changed.await;
                return true;
            }
            Asking { mdc: self, dir }
        };
        self.shared.asked.fetch_add(1, Relaxed);
        let mut cookie = 0;
        loop {
            let token = self.meta.token();
            let max_bytes = if names { PAGE_BYTES } else { 0 };
            let r: OwnReply = match self
                .target
                .call(self.cx.own(), Own { dir, cookie, max_bytes, children, knows_limits: true.into() })
                .await
            {
                Ok(r) => r,
                Err(_) => {
                    self.meta.with_cache(|c, now| c.left_alone.refused(dir, now));
                    return false;
                }
            };
            match self.meta.with_cache(|c, now| c.put_own(token, r, cookie, names, now)) {
                Owned::Done => return true,
                Owned::More(next) => cookie = next,
                Owned::Refused => {
                    self.shared.refused.fetch_add(1, Relaxed);
                    return false;
                }
            }
        }
    }
}
