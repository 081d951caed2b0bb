//! cancel: gives flock and POSIX range locks back.

use crate::base::Detached;
use crate::stats::Verb;
use crate::{Fs, R};
use model::{Errno, Fid};
use std::sync::Arc;
use wire::msg::cancel::{Cancel, CancelWhat};
use wire::msg::enqueue::LockKind;
use world::BoxFuture;

impl Fs {
    /// F_UNLCK of a range; what the owner does not have is no error.
    pub fn unlk(self: Arc<Self>, fid: Fid, owner: u64, start: u64, end: u64) -> BoxFuture<R<()>> {
        Box::pin(async move {
            if start > end {
                return Err(Errno::EINVAL);
            }
            self.unlock(fid, LockKind::Posix, owner, start, end).await
        })
    }

    pub fn funlock(self: Arc<Self>, fid: Fid, owner: u64) -> BoxFuture<R<()>> {
        Box::pin(async move { self.unlock(fid, LockKind::Flock, owner, 0, u64::MAX).await })
    }

    /// Forgets the range first: a reclaim in between must not take it again. Goes on when the caller goes away.
    async fn unlock(self: &Arc<Self>, fid: Fid, kind: LockKind, owner: u64, start: u64, end: u64) -> R<()> {
        let fs = self.clone();
        let work = async move {
            if kind == LockKind::Posix {
                fs.rollbacks.unlocked(fid, owner);
            }
            fs.meta.locks.unlocked(fid, kind, owner, start, end);
            let what = CancelWhat::Range { kind, owner, start, end };
            fs.lmv.mdc_of(fid).await?.target.call(fs.cx.own(), Cancel { fid, what }).await
        };
        self.run(Verb::Flock, Detached::plain(&self.cx.world, "client-unlock", work)).await
    }
}
