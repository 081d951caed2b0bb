//! Group locks: processes anywhere that name the same group read and write a file together, and see to it
//! themselves that they do not get into each other's way. Everybody else waits until the last of them has
//! unlocked, or closed the file.
//!
//! Each object is locked as a whole for the group ([`wire::msg::extent::ExtentMode::Group`]). What this mount
//! writes is kept as ever and written at the latest by the unlock; what it reads may be older than what
//! another member has written since the lock was taken. The server does not lose patience with a group: its
//! users take the time that they take.

use super::File;
use super::pin::{ObjectRequest, Pins};
use crate::R;
use crate::osc::{Group, LockRequest};
use model::Errno;
use std::sync::Arc;

/// An open file's part in a group; given back when dropped, but for the locks themselves.
pub(crate) struct GroupLock {
    file: Arc<File>,
    pub gid: u64,
    pins: Option<Pins>,
}

impl Drop for GroupLock {
    fn drop(&mut self) {
        self.pins = None;
        let mut g = self.file.group.lock();
        let (_, users) = g.as_mut().expect("this one is among its users");
        *users -= 1;
        if *users == 0 {
            *g = None;
        }
        drop(g);
        self.file.changed.notify_waiters();
    }
}

impl GroupLock {
    /// Everything that this mount wrote is on the servers then.
    pub(crate) async fn leave(self) -> R<()> {
        let file = self.file.clone();
        let written = file.flush().await;
        drop(self);
        if file.group.lock().is_none() {
            file.give_up_locks().await;
        }
        written
    }
}

impl File {
    /// Locks all objects for a group; without `wait` EAGAIN if that cannot be had at once.
    pub(crate) async fn lock_group(self: &Arc<Self>, gid: u64, wait: bool) -> R<GroupLock> {
        let (mut held, first) = self.join_group(gid, wait).await?;
        if first {
            // What is kept under other locks may not be what members see.
            self.flush().await?;
            self.give_up_locks().await;
        }
        let group = Some(Group { gid, wait });
        let whole = LockRequest { group, ..LockRequest::new(true, 0, u64::MAX) };
        let wants: Vec<ObjectRequest> =
            (0..self.objects.len()).map(|number| ObjectRequest { number, lock: whole }).collect();
        held.pins = Some(self.pin_all(&self.cx.world, &wants).await?);
        Ok(held)
    }

    /// On one mount there is one group at a time, as between mounts. Whether it is the first of them.
    async fn join_group(self: &Arc<Self>, gid: u64, wait: bool) -> R<(GroupLock, bool)> {
        loop {
            let mut changed = Box::pin(self.changed.notified());
            changed.as_mut().enable();
            {
                let mut g = self.group.lock();
                let users = match *g {
                    None => Some(0),
                    Some((id, users)) => (id == gid).then_some(users),
                };
                if let Some(n) = users {
                    *g = Some((gid, n + 1));
                    return Ok((GroupLock { file: self.clone(), gid, pins: None }, n == 0));
                }
            }
            if !wait {
                return Err(Errno::EAGAIN);
            }
            changed.await;
        }
    }
}
