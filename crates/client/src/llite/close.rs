//! close: the end of an open; carries the access time of the last read if relatime wants it stored.

use super::Names;
use super::{O_NOATIME, data_layout};
use crate::base::Detached;
use crate::mdc::ReadTimes;
use crate::mdc::{Edit, Outcome};
use crate::stats::Verb;
use crate::{Fs, OpenHandle, R};
use model::limits::RELATIME_SECS;
use model::perm::FLAG_NOATIME;
use model::{Fid, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::close::Close;
use world::BoxFuture;

/// How long a close waits for the objects' times, which decide about relatime: not for a dead OST.
const PATIENCE: Duration = Duration::from_secs(1);

impl Fs {
    /// Never fails for a handle that the server does not know (any more).
    pub fn close(self: Arc<Self>, file: Arc<OpenHandle>) -> BoxFuture<R<()>> {
        Box::pin(async move {
            let fs = self.clone();
            let work = async move {
                fs.data.group_unlock_closed(&file).await;
                let atime = fs.names.atime_to_store(&file).await;
                fs.names.close_handle(file.fid, file.handle, atime).await;
                Ok(())
            };
            self.run(Verb::Close, Detached::plain(&self.cx.world, "client-close", work)).await
        })
    }
}

impl Names {
    /// Forgets the handle, then tells the server if it may know of it: a reclaim in between must not open it
    /// again. If it does not, an access time follows by itself.
    pub(crate) async fn close_handle(self: &Arc<Self>, fid: Fid, handle: u64, atime: Option<Timestamp>) {
        let Some(job) = self.meta.opens.forget(handle) else {
            if let Some(t) = atime {
                match self.lmv.mdc_of(fid).await {
                    Ok(mdc) => mdc.store_atime(fid, handle, t).await,
                    Err(e) => tracing::warn!("the access time of {fid} is not stored: {e}"),
                }
            }
            return;
        };
        let r = match self.lmv.mdc_of(fid).await {
            Ok(mdc) => {
                // Only then does a close change the inode, or end it.
                let nameless = || self.lmv.known_entry(fid).is_none_or(|e| e.attr.nlink == 0);
                let change = (atime.is_some() || nameless()).then(|| mdc.changing_inode(fid));
                let r = mdc.target.call(self.cx.own_for(&job), Close { fid, handle, atime }).await;
                if let Some(c) = change {
                    let entries = r.iter().filter_map(|r| r.entry.as_deref()).cloned().collect();
                    let outcome = Outcome { entries, edit: Edit::Nothing, ..Outcome::default() };
                    c.done(outcome, r.as_ref().err().copied());
                }
                r.map(drop)
            }
            Err(e) => Err(e),
        };
        if let Err(e) = r
            && !self.cx.is_closed()
        {
            tracing::warn!("close of {fid}: {e}");
        }
    }

    async fn atime_to_store(self: &Arc<Self>, file: &OpenHandle) -> Option<Timestamp> {
        if file.flags & O_NOATIME != 0 || self.cx.is_read_only() || self.cx.is_noatime() {
            return None;
        }
        let times = *file.times.lock();
        let last_read = times.last_read?;
        let known = self.lmv.known_entry(file.fid);
        if known.as_ref().is_some_and(|e| e.attr.flags & FLAG_NOATIME != 0) {
            return None; // nor does the server take it
        }
        if let Some(e) = known.filter(|e| data_layout(e).is_none()) {
            let a = &e.attr;
            let times = ReadTimes { atime: a.atime, mtime: a.mtime, ctime: a.ctime, ..times };
            return is_due(&times, last_read).then_some(last_read);
        }
        if is_due(&times, last_read) {
            return Some(last_read);
        }
        // The inode's times do not ask for it; the objects may have been written since.
        let layout = self.meta.opens.file(file.fid)?.layout?;
        if layout.mdt_component().is_some() {
            return Some(last_read); // the server knows when its data was written, and decides
        }
        let attrs = self.cx.world.timeout(PATIENCE, self.data.glimpse_layout(&layout)).await?.ok()?;
        attrs.iter().any(|a| a.mtime >= times.atime).then_some(last_read)
    }
}

fn is_due(t: &ReadTimes, last_read: Timestamp) -> bool {
    t.atime <= t.mtime || t.atime <= t.ctime || last_read.sec.saturating_sub(t.atime.sec) >= RELATIME_SECS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relatime_stores_what_find_needs() {
        let at = |sec| Timestamp { sec, nsec: 0 };
        let t = |atime, mtime, ctime| ReadTimes {
            atime: at(atime),
            mtime: at(mtime),
            ctime: at(ctime),
            last_read: None,
        };
        assert!(is_due(&t(5, 5, 5), at(6)));
        assert!(is_due(&t(5, 4, 9), at(10)));
        assert!(!is_due(&t(9, 4, 5), at(10)));
        assert!(is_due(&t(9, 4, 5), at(9 + RELATIME_SECS)));
    }
}
