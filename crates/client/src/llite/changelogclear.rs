//! changelogclear: a consumer of a changelog needs records up to one no more (`lfs changelog_clear`).

use super::Admin;
use crate::stats::Verb;
use crate::{Call, R};
use model::TargetId;
use wire::msg::changelogclear::Changelogclear;
use world::BoxFuture;

impl Admin<'_> {
    /// `EPERM` if root of this host is not root there, `ENODEV` if there is no such metadata target, `ENOENT`
    /// if it has no such consumer, `EINVAL` if the record is not there yet.
    pub fn changelog_clear(
        self,
        call: Call,
        target: TargetId,
        consumer: String,
        end: u64,
    ) -> BoxFuture<R<()>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let msg = Changelogclear { consumer, end };
            let work = async { Admin(&fs).mdt(target)?.call(fs.cx.of(&call), msg).await };
            fs.run(Verb::Changelog, work).await
        })
    }
}
