//! Group locks: processes anywhere that name the same group read and write a file together, and see to it themselves that
//! they do not get into each other's way. Everybody else waits until the last of them has unlocked, or closed the file.
//!
//! Each object is locked as a whole for the group ([`wire::msg::extent::ExtentMode::Group`]). What this mount writes is
//! kept as ever and written at the latest by the unlock; what it reads may be older than what another member has written
//! since the lock was taken. The server does not lose patience with a group: its users take the time that they take.

use super::File;
use super::pin::{Pins, StripeRequest};
use crate::ops::O_ACCMODE;
use crate::osc::{Group, LockRequest};
use crate::stats::Verb;
use crate::{Fs, OpenFile, R};
use model::{Errno, Fid, FileType, Layout};
use std::sync::Arc;
use world::BoxFuture;

/// An open file's part in a group; given back when dropped, but for the locks themselves.
pub(crate) struct GroupLock {
    file: Arc<File>,
    gid: u64,
    pins: Option<Pins>,
}

impl Drop for GroupLock {
    fn drop(&mut self) {
        self.pins = None;
        let mut g = self.file.group.lock().expect("no panic while locked");
        let (_, users) = g.as_mut().expect("this one is among its users");
        *users -= 1;
        if *users == 0 {
            *g = None;
        }
        drop(g);
        self.file.changed.notify_waiters();
    }
}

impl Fs {
    /// Locks an open file for a group; without `wait` EAGAIN if it cannot be had at once. `EINVAL` for group 0 and a file
    /// that has a group lock through this handle, `EBADF` for one that is not open for writing.
    pub fn group_lock(self: Arc<Self>, open: Arc<OpenFile>, gid: u64, wait: bool) -> BoxFuture<R<()>> {
        Box::pin(async move { self.run(Verb::Flock, self.take_group(&open, gid, wait)).await })
    }

    /// `EINVAL` if this handle does not have this group's lock. Everything that this mount wrote is on the servers then;
    /// what could not be written is the error.
    pub fn group_unlock(self: Arc<Self>, open: Arc<OpenFile>, gid: u64) -> BoxFuture<R<()>> {
        Box::pin(async move {
            let work = async {
                let held = {
                    let mut slot = open.group.lock().expect("no panic while locked");
                    slot.take_if(|g| g.gid == gid).ok_or(Errno::EINVAL)?
                };
                self.leave_group(held).await?;
                open.errors.check()
            };
            self.run(Verb::Flock, work).await
        })
    }

    pub(crate) async fn group_unlock_closed(self: &Arc<Self>, open: &OpenFile) {
        let held = open.group.lock().expect("no panic while locked").take();
        if let Some(g) = held {
            // What could not be written the next fsync tells; any other error is the end of the mount.
            let _ = self.leave_group(g).await;
        }
    }

    async fn leave_group(self: &Arc<Self>, held: GroupLock) -> R<()> {
        let file = held.file.clone();
        let written = file.flush().await;
        drop(held);
        if file.group.lock().expect("no panic while locked").is_none() {
            file.give_up_locks().await;
        }
        written
    }

    async fn take_group(self: &Arc<Self>, open: &OpenFile, gid: u64, wait: bool) -> R<()> {
        let taken = |o: &OpenFile| o.group.lock().expect("no panic while locked").is_some();
        if gid == 0 || taken(open) {
            return Err(Errno::EINVAL);
        }
        // It keeps everybody else from the file: who may only read could do that to its owner.
        if open.flags & O_ACCMODE == 0 {
            return Err(Errno::EBADF);
        }
        let layout = self.objects_of(open.fid).await?;
        let file = self.data_file(open.fid, &layout).await?.ok_or(Errno::EOPNOTSUPP)?;
        let (mut held, first) = Self::join_group(&file, gid, wait).await?;
        if first {
            // What is kept under other locks may not be what members see.
            file.flush().await?;
            file.give_up_locks().await;
        }
        let group = Some(Group { gid, wait });
        let whole = LockRequest { group, ..LockRequest::new(true, 0, u64::MAX) };
        let wants: Vec<StripeRequest> =
            (0..file.objects.len()).map(|stripe| StripeRequest { stripe, lock: whole }).collect();
        held.pins = Some(file.pin_all(&self.cx.world, &wants).await?);
        let mut slot = open.group.lock().expect("no panic while locked");
        if slot.is_some() {
            return Err(Errno::EINVAL);
        }
        *slot = Some(held);
        Ok(())
    }

    /// Files with data have objects before they are locked.
    async fn objects_of(self: &Arc<Self>, fid: Fid) -> R<Arc<Layout>> {
        for _ in 0..2 {
            let e = self.getattr_entry(self.cx.own(), fid).await?;
            if e.attr.kind != FileType::Regular {
                return Err(Errno::EINVAL);
            }
            match e.layout.as_ref().filter(|l| l.stripe_count() > 0 && l.mdt_component().is_none()) {
                Some(l) => return Ok(Arc::new(l.clone())),
                None => self.grow(fid).await?,
            }
        }
        Err(Errno::EOPNOTSUPP)
    }

    /// On one mount there is one group at a time, as between mounts. Whether it is the first of them.
    async fn join_group(file: &Arc<File>, gid: u64, wait: bool) -> R<(GroupLock, bool)> {
        loop {
            let mut changed = Box::pin(file.changed.notified());
            changed.as_mut().enable();
            {
                let mut g = file.group.lock().expect("no panic while locked");
                let users = match *g {
                    None => Some(0),
                    Some((id, users)) => (id == gid).then_some(users),
                };
                if let Some(n) = users {
                    *g = Some((gid, n + 1));
                    return Ok((GroupLock { file: file.clone(), gid, pins: None }, n == 0));
                }
            }
            if !wait {
                return Err(Errno::EAGAIN);
            }
            changed.await;
        }
    }
}
