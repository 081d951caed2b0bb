//! quotactl: what owners use of this target.

use crate::mdt::Mdt;
use crate::names::OpContext;
use crate::service::count_usage;
use model::Errno;
use model::usage::may_see;
use std::sync::Arc;
use wire::msg::quotactl::{QuotaAsk, Quotactl, QuotactlReply};

/// Owners in one request.
const IDS_MAX: usize = 1000;

/// `EPERM`: the caller may not know. `EMSGSIZE`: too many at once.
pub async fn run(mdt: &Arc<Mdt>, ctx: &OpContext, m: Quotactl) -> Result<QuotactlReply, Errno> {
    match &m.ask {
        QuotaAsk::Of(ids) if ids.len() > IDS_MAX => return Err(Errno::EMSGSIZE),
        QuotaAsk::Of(ids) if ids.iter().all(|id| may_see(&ctx.cred, *id)) => {}
        _ if ctx.cred.is_root() => {}
        _ => return Err(Errno::EPERM),
    }
    let (here, counts) = (mdt.clone(), m.ask == QuotaAsk::Verify);
    let answer = move || here.shared.usage.answer(&here.db, &m.ask, count_usage);
    let reply = if counts { mdt.world.blocking(answer).await } else { answer() };
    reply.map_err(|e| e.errno())
}
