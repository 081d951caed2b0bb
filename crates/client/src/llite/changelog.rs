//! changelog: records of what was changed on a metadata target (`lfs changelog`).

use super::Admin;
use crate::session::Target;
use crate::stats::Verb;
use crate::{Call, R};
use model::{Errno, TargetId, TargetKind};
use std::sync::Arc;
use wire::msg::changelog::{Changelog, ChangelogReply};
use world::BoxFuture;

impl Admin<'_> {
    /// Some records, none of which a crash could take back; what this mount did before is among them. `EPERM`
    /// if root of this host is not root there, `ENODEV` if there is no such metadata target, `ENOENT` if it
    /// has no such consumer.
    pub fn changelog(self, call: Call, target: TargetId, msg: Changelog) -> BoxFuture<R<ChangelogReply>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async { Admin(&fs).mdt(target)?.call(fs.cx.of(&call), msg).await };
            fs.run(Verb::Changelog, work).await
        })
    }

    /// The session with a metadata target.
    pub(super) fn mdt(self, target: TargetId) -> R<Arc<Target>> {
        let all = self.0.lmv.all_targets();
        let is_it = |t: &Arc<Target>| t.id == target && target.kind == TargetKind::Mdt;
        all.into_iter().find(is_it).ok_or(Errno::ENODEV)
    }
}
