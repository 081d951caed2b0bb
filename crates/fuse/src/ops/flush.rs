//! FLUSH: a descriptor is being closed, perhaps by a process that is exiting and cannot be interrupted. POSIX says
//! that all record locks of the process on the file go with it.

use super::Cx;
use crate::abi::FlushIn;
use crate::reply::{Answer, Reply};
use std::time::Duration;
use world::sync::oneshot;

/// An exiting process waits no longer than this; the rest happens behind its back.
const PATIENCE: Duration = Duration::from_secs(1);

pub async fn run(cx: Cx, a: FlushIn) -> Answer {
    let fid = cx.fid()?;
    let (fs, wb) = (cx.fs(), cx.bridge.writeback.clone());
    let locks = fs.has_posix_locks(fid, a.lock_owner);
    if !locks && wb.is_idle() {
        wb.take_error(fid)?;
        return Ok(Reply::empty());
    }
    let (tx, done) = oneshot::channel();
    cx.bridge.world.spawn("flush", async move {
        wb.settle(fid).await;
        let unlocked = if locks { fs.unlk(fid, a.lock_owner, 0, u64::MAX).await } else { Ok(()) };
        if let Err(e) = unlocked {
            tracing::warn!(%fid, "locks of a closed file could not be given back: {e}");
        }
        let _ = tx.send(());
    });
    if cx.bridge.world.timeout(PATIENCE, done).await.is_some() {
        cx.bridge.writeback.take_error(fid)?;
    }
    Ok(Reply::empty())
}
