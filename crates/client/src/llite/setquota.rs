//! setquota: what users, groups and projects may use.

use super::Admin;
use crate::stats::Verb;
use crate::{Call, R};
use model::quota::LimitOrder;
use model::{Errno, TargetKind};
use wire::msg::setquota::Setquota;
use world::BoxFuture;

impl Admin<'_> {
    /// `EPERM` if root of this host is not root there, `EINVAL` for limits of root, `ENODEV` before the mount
    /// knows a metadata target.
    pub fn setquota(self, call: Call, order: LimitOrder) -> BoxFuture<R<()>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let msg = Setquota { order };
            let mdt = fs.lmv.targets_of(TargetKind::Mdt).into_iter().next().ok_or(Errno::ENODEV)?;
            fs.run(Verb::Setquota, async { mdt.call(fs.cx.of(&call), msg).await }).await
        })
    }
}
