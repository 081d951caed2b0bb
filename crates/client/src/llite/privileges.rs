//! What a program file loses when its data changes: set-id bits, unless the caller has CAP_FSETID, and file
//! capabilities (`security.capability`) always. As Linux does it (`file_remove_privs`), at every call that
//! writes: before the change, so that nobody can start the changed program with them.
//!
//! In the same place a file that became immutable or append-only after it was opened is kept from changes.
//!
//! Nearly every file has nothing of this. That is known under the lease on its inode, so such a write costs
//! no request.

use super::Data;
use crate::mdc::privileges::{Privileges, of};
use crate::{Call, R};
use model::attr::XATTR_CAPABILITY;
use model::perm::FLAG_APPEND;
use model::{Errno, Fid, SetAttr, perm};
use std::sync::Arc;
use wire::msg::lookup::Entry;

/// What is about to happen to a file's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Write,
    /// Bytes that are there go (fallocate(2) in most of its modes).
    Remove,
}

impl Data {
    /// Before a file's data changes. `set_id`: the caller is without CAP_FSETID. `EPERM` if its flags forbid
    /// the change.
    pub(crate) async fn drop_privileges(self: &Arc<Self>, fid: Fid, change: Change, set_id: bool) -> R<()> {
        let e = match self.lmv.inode_at_hand(fid) {
            Some(e) => e,
            // Who could keep set-id bits does not wait for a metadata server that is away.
            None if !set_id && self.is_last_known_plain(fid) => return Ok(()),
            None => self.lmv.getattr_entry(self.cx.own(), fid).await?,
        };
        perm::may_change_data(e.attr.flags, change == Change::Remove)?;
        self.drop_shown(&e, set_id).await
    }

    /// As [`Fs::drop_privileges`], before what was stored into pages is written: perhaps by any process that
    /// could. Pages of an ordinary file come out also while nothing can be asked.
    ///
    /// `EPERM` for an append-only file that nobody has open for anything else: Linux refuses the mapping, but
    /// the kernel does not know this of the file. What was mapped before the file became append-only, or
    /// immutable, may still be stored into.
    pub(crate) async fn drop_privileges_stored(self: &Arc<Self>, fid: Fid) -> R<()> {
        let set_id = self.meta.opens.is_stored_by_users(fid);
        let e = match self.lmv.inode_at_hand(fid) {
            Some(e) => e,
            None if self.is_last_known_plain(fid) => return Ok(()),
            None => match self.lmv.getattr_entry(self.cx.own(), fid).await {
                Err(_) if self.meta.opens.file(fid).is_some_and(|s| !s.privileged) => return Ok(()),
                r => r?,
            },
        };
        if e.attr.flags & FLAG_APPEND != 0 && !self.meta.opens.is_stored_over(fid) {
            return Err(Errno::EPERM);
        }
        self.drop_shown(&e, set_id).await
    }

    /// Without leases, because the server is silent: whether the inode of an open file showed nothing when it
    /// was seen last.
    fn is_last_known_plain(&self, fid: Fid) -> bool {
        !self.lmv.leases_good(fid) && self.meta.opens.file(fid).is_some_and(|s| !s.privileged)
    }

    async fn drop_shown(self: &Arc<Self>, e: &Entry, set_id: bool) -> R<()> {
        let shown = of(e);
        if shown == Privileges::None {
            return Ok(());
        }
        let fid = e.attr.fid;
        let capable = !e.plain && self.has_capability(fid).await?;
        let all = SetAttr { kill_suid_sgid: true, by_handle: true, ..SetAttr::default() };
        if set_id && (capable || shown == Privileges::SetId) {
            self.setattr_entry(self.cx.own(), fid, all).await.map(drop)
        } else if capable {
            match self.drop_xattr(&Call::default(), fid, XATTR_CAPABILITY.to_vec()).await {
                Ok(()) | Err(Errno::ENODATA) => Ok(()),
                // Of an append-only file nobody may remove an attribute; an append does.
                Err(Errno::EPERM) => self.setattr_entry(self.cx.own(), fid, all).await.map(drop),
                Err(e) => Err(e),
            }
        } else {
            Ok(())
        }
    }

    async fn has_capability(self: &Arc<Self>, fid: Fid) -> R<bool> {
        match self.xattr(&Call::default(), fid, XATTR_CAPABILITY.to_vec()).await {
            Ok(_) => Ok(true),
            Err(Errno::ENODATA) => Ok(false),
            Err(e) => Err(e),
        }
    }
}
