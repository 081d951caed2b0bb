//! enqueue: flock and POSIX range locks. (Extent locks of single operations: `locks.rs`.)

use crate::stats::Verb;
use crate::{Fs, PosixLock, R};
use model::{Errno, Fid};
use std::sync::Arc;
use wire::msg::enqueue::{LockKind, LockMode, LockSpec};
use world::BoxFuture;

impl Fs {
    /// F_SETLK, or F_SETLKW with `wait`; dropping the future stops waiting. `EAGAIN`: somebody else has it;
    /// `EDEADLK`: waiting would never end.
    pub fn setlk(self: Arc<Self>, fid: Fid, lock: PosixLock, wait: bool) -> BoxFuture<R<()>> {
        Box::pin(async move {
            if lock.start > lock.end {
                return Err(Errno::EINVAL);
            }
            let spec = lock.spec(self.meta.locks.new_id(), fid);
            self.lock_counted(spec, wait).await
        })
    }

    /// flock(2); an owner that has one gets the new mode instead.
    pub fn flock(
        self: Arc<Self>,
        fid: Fid,
        owner: u64,
        pid: u32,
        mode: LockMode,
        wait: bool,
    ) -> BoxFuture<R<()>> {
        Box::pin(async move {
            let id = self.meta.locks.new_id();
            let spec = LockSpec { id, fid, kind: LockKind::Flock, mode, owner, pid, start: 0, end: u64::MAX };
            self.lock_counted(spec, wait).await
        })
    }

    async fn lock_counted(self: &Arc<Self>, spec: LockSpec, wait: bool) -> R<()> {
        if !wait {
            return self.run(Verb::Flock, self.lock(spec, false)).await;
        }
        // Another process may keep a lock as long as it likes: a soft mount does not bound this.
        let start = self.cx.world.now();
        let r = self.lock(spec, true).await;
        self.count(Verb::Flock, start);
        r
    }

    /// Whether this owner has POSIX locks on the file (so that close must drop them).
    pub fn has_posix_locks(&self, fid: Fid, owner: u64) -> bool {
        self.meta.locks.has_posix_locks(fid, owner)
    }
}
