//! setquota: what users, groups and projects may use.

use super::Admin;
use crate::stats::Verb;
use crate::{Call, R};
use model::quota::LimitOrder;
use model::{Errno, TargetKind};
use wire::msg::connect::FEATURE_POOL_LIMITS;
use wire::msg::setquota::Setquota;
use world::BoxFuture;

impl Admin<'_> {
    /// `EPERM` if root of this host is not root there, `EINVAL` for limits of root, `ENODEV` before the mount
    /// knows a metadata target, `ENOENT` for a pool or directory that is not there, `EOPNOTSUPP` for limits
    /// by pool where the server is of a version that knows none.
    pub fn setquota(self, call: Call, order: LimitOrder) -> BoxFuture<R<()>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let by_pool = matches!(order, LimitOrder::Pool { .. });
            let msg = Setquota { order };
            let mdt = fs.lmv.targets_of(TargetKind::Mdt).into_iter().next().ok_or(Errno::ENODEV)?;
            if by_pool {
                mdt.import.connected().await?;
                if mdt.import.peer_features() & FEATURE_POOL_LIMITS == 0 {
                    return Err(Errno::EOPNOTSUPP);
                }
            }
            fs.run(Verb::Setquota, async { mdt.call(fs.cx.of(&call), msg).await }).await
        })
    }
}
