//! quotactl: what users, groups and projects use, from all targets at once.

use super::Admin;
use crate::session::Target;
use crate::{BoxFutureOf, Call, R, TargetState};
use model::{Errno, TargetKind};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::quotactl::{QuotaAsk, Quotactl, QuotactlReply};
use world::BoxFuture;
use world::future::join_all;

/// How long one target may take to say what it knows …
const PATIENCE: Duration = Duration::from_secs(1);
/// … and to count everything it has.
const COUNT_PATIENCE: Duration = Duration::from_secs(600);

/// What each target said.
pub type Usages = Vec<(TargetState, R<QuotactlReply>)>;

impl Admin<'_> {
    /// Asks all metadata and object targets; an unreachable one gives its errno within a second. Of a page of
    /// all owners nobody behind the end of the shortest one is left in: ask again behind the number that
    /// comes with it.
    pub fn quotactl(self, call: Call, ask: QuotaAsk) -> BoxFuture<R<(Usages, Option<u32>)>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let patience = if ask == QuotaAsk::Verify { COUNT_PATIENCE } else { PATIENCE };
            let states = Admin(&fs).targets();
            let all: Vec<Arc<Target>> =
                fs.lmv.all_targets().into_iter().filter(|t| t.id.kind != TargetKind::Mgt).collect();
            let asked = all
                .iter()
                .map(|t| {
                    let (fs, msg) = (&fs, Quotactl { ask: ask.clone() });
                    let ctx = fs.cx.of(&call);
                    let one = async move {
                        let reply = t.call(ctx, msg);
                        fs.cx.world.timeout(patience, reply).await.unwrap_or(Err(Errno::ETIMEDOUT))
                    };
                    Box::pin(one) as BoxFutureOf<'_, R<QuotactlReply>>
                })
                .collect();
            let answers = join_all(asked).await;
            let next = answers.iter().flatten().filter_map(|r| r.next).min();
            let mut out = Usages::new();
            for (t, mut r) in all.iter().zip(answers) {
                match &mut r {
                    // The caller may not: of that no part is an answer.
                    Err(e @ (Errno::EPERM | Errno::EMSGSIZE)) => return Err(*e),
                    Ok(said) => said.usage.retain(|(id, _)| next.is_none_or(|n| id.id <= n)),
                    Err(_) => {}
                }
                out.extend(states.iter().find(|s| s.target == t.id).cloned().map(|s| (s, r)));
            }
            Ok((out, next))
        })
    }
}
