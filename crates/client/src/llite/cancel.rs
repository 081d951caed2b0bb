//! cancel: gives flock and POSIX range locks back.

use super::{Locks, run_now};
use crate::R;
use crate::base::Detached;
use crate::stats::Verb;
use model::{Errno, Fid};
use wire::msg::cancel::{Cancel, CancelWhat};
use wire::msg::enqueue::LockKind;
use world::BoxFuture;

impl Locks<'_> {
    /// F_UNLCK of a range; what the owner does not have is no error.
    pub fn unlk(self, fid: Fid, owner: u64, start: u64, end: u64) -> BoxFuture<R<()>> {
        let fs = self.0.clone();
        Box::pin(async move {
            if start > end {
                return Err(Errno::EINVAL);
            }
            Locks(&fs).unlock(fid, LockKind::Posix, owner, start, end).await
        })
    }

    pub fn funlock(self, fid: Fid, owner: u64) -> BoxFuture<R<()>> {
        let fs = self.0.clone();
        Box::pin(async move { Locks(&fs).unlock(fid, LockKind::Flock, owner, 0, u64::MAX).await })
    }

    /// Forgets the range first: a reclaim in between must not take it again. Goes on when the caller goes
    /// away.
    async fn unlock(self, fid: Fid, kind: LockKind, owner: u64, start: u64, end: u64) -> R<()> {
        let fs = self.0.clone();
        let work = async move {
            if kind == LockKind::Posix {
                fs.locks.rollbacks.unlocked(fid, owner);
            }
            fs.meta.locks.unlocked(fid, kind, owner, start, end);
            let what = CancelWhat::Range { kind, owner, start, end };
            fs.lmv.mdc_of(fid).await?.target.call(fs.cx.own(), Cancel { fid, what }).await
        };
        run_now(self.0, Verb::Flock, Detached::plain(&self.0.cx.world, "client-unlock", work)).await
    }
}
