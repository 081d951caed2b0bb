//! RELEASE and RELEASEDIR: the last user of an open file is gone. The kernel is answered first: nobody waits
//! for the close, and the kernel has few places for requests in the background.

use super::Cx;
use crate::abi::{RELEASE_FLOCK_UNLOCK, ReleaseIn};
use crate::handles::Handle;
use world::BoxFuture;

/// What is left to do after the answer, if anything.
pub fn run(cx: &Cx, a: ReleaseIn) -> Option<BoxFuture<()>> {
    let h = match cx.bridge.handles.remove(a.fh)? {
        Handle::File(h) => h,
        Handle::Dir(_) => return None,
    };
    let fs = cx.fs();
    let fid = h.file.fid;
    let flock = a.release_flags & RELEASE_FLOCK_UNLOCK != 0;
    let owners: Vec<u64> =
        h.take_lock_owners().into_iter().filter(|o| client::Locks(&fs).has_posix_locks(fid, *o)).collect();
    let unlocking = (flock || !owners.is_empty()).then(|| cx.bridge.releases.begin(fid));
    Some(Box::pin(async move {
        if flock && let Err(e) = client::Locks(&fs).funlock(fid, a.lock_owner).await {
            tracing::warn!(%fid, "flock of a closed file could not be given back: {e}");
        }
        for o in owners {
            if let Err(e) = client::Locks(&fs).unlk(fid, o, 0, u64::MAX).await {
                tracing::warn!(%fid, "locks of a closed file could not be given back: {e}");
            }
        }
        drop(unlocking);
        if let Err(e) = fs.close(h.file.clone()).await {
            tracing::warn!(%fid, "close failed: {e}");
        }
    }))
}
