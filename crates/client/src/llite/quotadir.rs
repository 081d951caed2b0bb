//! quotadir: which directories have a quota.

use super::Admin;
use crate::stats::Verb;
use crate::{Call, R};
use model::{Errno, TargetKind};
use wire::msg::quotadir::{Quotadir, QuotadirReply};
use world::BoxFuture;

impl Admin<'_> {
    /// As [`Quotadir`] says; `EOPNOTSUPP` from a metadata server of an earlier version, `ENODEV` before the
    /// mount knows one.
    pub fn quotadir(self, call: Call, msg: Quotadir) -> BoxFuture<R<QuotadirReply>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let mdt = fs.lmv.targets_of(TargetKind::Mdt).into_iter().next().ok_or(Errno::ENODEV)?;
            fs.run(Verb::Quotadir, async { mdt.call(fs.cx.of(&call), msg).await }).await
        })
    }
}
