//! Group locks, as a process asks for them ([`crate::lov::GroupLock`]).

use super::O_ACCMODE;
use super::opens::following_layout;
use super::{Data, run_now};
use crate::stats::Verb;
use crate::{Fs, OpenHandle, R};
use model::{Errno, Fid, FileType, Layout};
use std::sync::Arc;
use world::BoxFuture;

impl Fs {
    /// Locks an open file for a group; without `wait` EAGAIN if it cannot be had at once. `EINVAL` for group
    /// 0 and a file that has a group lock through this handle, `EBADF` for one that is not open for writing.
    pub fn group_lock(self: Arc<Self>, open: Arc<OpenHandle>, gid: u64, wait: bool) -> BoxFuture<R<()>> {
        Box::pin(async move { self.run(Verb::Flock, self.data.take_group(&open, gid, wait)).await })
    }

    /// `EINVAL` if this handle does not have this group's lock. Everything that this mount wrote is on the
    /// servers then; what could not be written is the error.
    pub fn group_unlock(self: Arc<Self>, open: Arc<OpenHandle>, gid: u64) -> BoxFuture<R<()>> {
        Box::pin(async move {
            let work = async {
                let held = {
                    let mut slot = open.group.lock();
                    slot.take_if(|g| g.gid == gid).ok_or(Errno::EINVAL)?
                };
                held.leave().await?;
                open.errors.check()
            };
            run_now(&self, Verb::Flock, work).await
        })
    }
}

impl Data {
    pub(crate) async fn group_unlock_closed(self: &Arc<Self>, open: &OpenHandle) {
        let held = open.group.lock().take();
        if let Some(g) = held {
            // What could not be written the next fsync tells; any other error is the end of the mount.
            let _ = g.leave().await;
        }
    }

    async fn take_group(self: &Arc<Self>, open: &OpenHandle, gid: u64, wait: bool) -> R<()> {
        let taken = |o: &OpenHandle| o.group.lock().is_some();
        if gid == 0 || taken(open) {
            return Err(Errno::EINVAL);
        }
        // It keeps everybody else from the file: who may only read could do that to its owner.
        if open.flags & O_ACCMODE == 0 {
            return Err(Errno::EBADF);
        }
        let held = following_layout!(self, open.fid, async {
            let layout = self.objects_of(open.fid).await?;
            let file = self.data_file(open.fid, &layout).await?.ok_or(Errno::EOPNOTSUPP)?;
            file.lock_group(gid, wait).await
        })?;
        let mut slot = open.group.lock();
        if slot.is_some() {
            return Err(Errno::EINVAL);
        }
        *slot = Some(held);
        Ok(())
    }

    /// Files with data have objects before they are locked.
    async fn objects_of(self: &Arc<Self>, fid: Fid) -> R<Arc<Layout>> {
        for _ in 0..2 {
            let e = self.lmv.getattr_entry(self.cx.own(), fid).await?;
            if e.attr.kind != FileType::Regular {
                return Err(Errno::EINVAL);
            }
            match e.layout.as_ref().filter(|l| l.has_objects() && l.mdt_component().is_none()) {
                // The group's locks are on all objects that the file is ever to have.
                Some(l) if !l.is_complete() => {
                    return Ok(self.layouts.instantiate(fid, (0, l.end())).await?.1);
                }
                Some(l) => return Ok(Arc::new(l.clone())),
                None => self.grow(fid).await?,
            }
        }
        Err(Errno::EOPNOTSUPP)
    }
}
