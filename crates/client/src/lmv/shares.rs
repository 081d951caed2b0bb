//! More of what an owner may have, for an object target whose share is used up.

use super::Lmv;
use crate::R;
use crate::base::shares::ShareSource;
use model::nodemap::Owner;
use model::{Errno, TargetKind};
use wire::msg::acquire::Acquire;
use wire::msg::makeroom::Makeroom;
use world::BoxFuture;

impl ShareSource for Lmv {
    fn acquire(&self, owner: Owner, ost: u16, bytes: u64) -> BoxFuture<R<()>> {
        let (mdt, ctx) = (self.targets_of(TargetKind::Mdt).into_iter().next(), self.cx.own());
        Box::pin(async move {
            // Without a metadata target nobody has opened a file.
            let mdt = mdt.ok_or(Errno::EDQUOT)?;
            match mdt.call(ctx, Acquire::new(owner, ost, bytes)).await {
                // It is of an earlier version, and limits nobody: the object target knows of limits of a
                // later one.
                Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Err(Errno::EDQUOT),
                done => done,
            }
        })
    }

    fn make_room(&self, ost: u16, bytes: u64) -> BoxFuture<R<()>> {
        let (mdt, cx) = (self.targets_of(TargetKind::Mdt).into_iter().next(), self.cx.clone());
        Box::pin(async move {
            if cx.shares.has_no_trash(ost, cx.world.now()) {
                return Err(Errno::ENOSPC);
            }
            let done = mdt.ok_or(Errno::ENOSPC)?.call(cx.own(), Makeroom { ost, bytes }).await;
            // An earlier version does not know the message: then it stays at what was said.
            if let Err(Errno::ENOSPC | Errno::EOPNOTSUPP | Errno::ENOSYS) = done {
                cx.shares.no_trash_on(ost, cx.world.now());
            }
            done
        })
    }
}
