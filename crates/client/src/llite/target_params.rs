//! What the servers of targets say of themselves: their parameters and statistics.

use super::Admin;
use crate::R;
use model::{Errno, Fid, TargetId};
use std::time::Duration;
use wire::msg::param::GetParam;
use world::BoxFuture;

/// How long a target may take.
const PATIENCE: Duration = Duration::from_secs(5);

impl Admin<'_> {
    /// Names and values of the parameters of a target whose names match the shell glob. `ENODEV` if there is
    /// no such target, `ETIMEDOUT` if it does not answer.
    pub fn target_params(self, target: TargetId, pattern: String) -> BoxFuture<R<Vec<(String, String)>>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let known = fs.lmv.all_targets().into_iter().find(|t| t.id == target).ok_or(Errno::ENODEV)?;
            let ask = known.call_now(fs.cx.own(), GetParam { pattern }, bytes::Bytes::new());
            let r = fs.cx.world.timeout(PATIENCE, ask).await.ok_or(Errno::ETIMEDOUT)??;
            Ok(r.reply.values)
        })
    }

    /// The lines of `mdt.*.movements` that are about a file, each behind its FID. `ETIMEDOUT` if its server
    /// does not answer.
    pub fn movements_of(self, fid: Fid) -> BoxFuture<R<Vec<(String, String)>>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let mdt = fs.lmv.mdc_of(fid).await?.target.id;
            let all = Admin(&fs).target_params(mdt, "mdt.*.movements".into()).await?;
            let begin = format!("fid={fid} ");
            let lines = all.iter().flat_map(|(_, text)| text.lines()).filter(|l| l.starts_with(&begin));
            Ok(lines.map(|l| (fid.to_string(), l.to_string())).collect())
        })
    }
}
