//! enqueue: flock and POSIX range locks. (Extent locks of single operations: `locks.rs`.)

use super::Locks;
use crate::stats::Verb;
use crate::{PosixLock, R};
use model::{Errno, Fid};
use wire::msg::enqueue::{LockKind, LockMode, LockSpec};
use world::BoxFuture;

impl Locks<'_> {
    /// F_SETLK, or F_SETLKW with `wait`; dropping the future stops waiting. `EAGAIN`: somebody else has it;
    /// `EDEADLK`: waiting would never end.
    pub fn setlk(self, fid: Fid, lock: PosixLock, wait: bool) -> BoxFuture<R<()>> {
        let fs = self.0.clone();
        Box::pin(async move {
            if lock.start > lock.end {
                return Err(Errno::EINVAL);
            }
            let spec = lock.spec(fs.meta.locks.new_id(), fid);
            Locks(&fs).lock_counted(spec, wait).await
        })
    }

    /// flock(2); an owner that has one gets the new mode instead.
    pub fn flock(self, fid: Fid, owner: u64, pid: u32, mode: LockMode, wait: bool) -> BoxFuture<R<()>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let id = fs.meta.locks.new_id();
            let spec = LockSpec { id, fid, kind: LockKind::Flock, mode, owner, pid, start: 0, end: u64::MAX };
            Locks(&fs).lock_counted(spec, wait).await
        })
    }

    async fn lock_counted(self, spec: LockSpec, wait: bool) -> R<()> {
        if !wait {
            return self.0.run(Verb::Flock, self.0.locks.lock(spec, false)).await;
        }
        // Another process may keep a lock as long as it likes: a soft mount does not bound this.
        let start = self.0.cx.world.now();
        self.0.cx.hold.passed().await;
        let r = self.0.locks.lock(spec, true).await;
        self.0.count(Verb::Flock, start);
        r
    }

    /// Waits until what was asked for a file and is not wanted any more is given back: whoever unlocks the
    /// file then is not met by it. Waits for servers that are away as well.
    pub async fn settle(self, fid: Fid) {
        self.0.locks.unsettled.settle(fid).await;
    }

    /// Whether this owner has POSIX locks on the file (so that close must drop them).
    pub fn has_posix_locks(self, fid: Fid, owner: u64) -> bool {
        self.0.meta.locks.has_posix_locks(fid, owner)
    }
}
