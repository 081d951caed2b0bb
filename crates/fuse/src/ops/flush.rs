//! FLUSH: a descriptor is being closed, perhaps by a process that is exiting and cannot be interrupted. POSIX
//! says that all record locks of the process on the file go with it.

use super::Cx;
use crate::abi::FlushIn;
use crate::process::{Fate, fate};
use crate::reply::{Answer, Reply};
use model::Errno;
use std::sync::atomic::Ordering;
use std::time::Duration;
use world::sync::oneshot;

/// A closing process waits no longer than this for its locks to be free; the rest happens behind its back.
const PATIENCE: Duration = Duration::from_millis(700);

pub async fn run(cx: Cx, a: FlushIn) -> Answer {
    let fid = cx.fid()?;
    let b = cx.bridge.clone();
    let locks = client::Locks(&b.fs).has_posix_locks(fid, a.lock_owner);
    let exiting = || fate(cx.tid, 0) == Fate::Dying;
    if !locks && (b.writeback.is_idle() || exiting()) {
        // Nothing to wait for, or nobody who could be told.
        tell_errors(&cx, a.fh)?;
        return Ok(Reply::empty());
    }
    let unlocking = locks.then(|| b.releases.begin(fid));
    let (tx, done) = oneshot::channel();
    let work = b.clone();
    b.world.spawn("flush", async move {
        let unlocked =
            if locks { client::Locks(&work.fs).unlk(fid, a.lock_owner, 0, u64::MAX).await } else { Ok(()) };
        drop(unlocking);
        if let Err(e) = unlocked {
            tracing::warn!(%fid, "locks of a closed file could not be given back: {e}");
        }
        work.writeback.settle(fid).await;
        work.slow_close.store(false, Ordering::Relaxed);
        let _ = tx.send(());
    });
    // A process with a thousand descriptors must not wait for each when the servers are away.
    if b.slow_close.load(Ordering::Relaxed) && exiting() {
        return Ok(Reply::empty());
    }
    match b.world.timeout(PATIENCE, done).await {
        Some(_) => tell_errors(&cx, a.fh)?,
        None => b.slow_close.store(true, Ordering::Relaxed),
    }
    Ok(Reply::empty())
}

/// What went wrong behind the writer's back is said at its close, unless an fsync told it before. The next
/// fsync tells it all the same: this may be the close of a child that inherited the descriptor.
fn tell_errors(cx: &Cx, fh: u64) -> Result<(), Errno> {
    cx.bridge.handles.file(fh).map_or(Ok(()), |h| h.file.error_at_close())
}
