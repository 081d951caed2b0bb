//! quotactl: what owners use of this target.

use crate::mdt::Mdt;
use crate::names::OpContext;
use crate::service::count_usage;
use model::Errno;
use std::sync::Arc;
use wire::msg::quotactl::{QuotaAsk, Quotactl, QuotactlReply};

/// As [`QuotaAsk::check`].
pub async fn run(mdt: &Arc<Mdt>, ctx: &OpContext, m: Quotactl) -> Result<QuotactlReply, Errno> {
    m.ask.check(&ctx.cred)?;
    let (here, counts) = (mdt.clone(), m.ask == QuotaAsk::Verify);
    let answer = move || here.shared.usage.answer(&here.db, &m.ask, count_usage);
    let reply = if counts { mdt.world.blocking(answer).await } else { answer() };
    reply.map_err(|e| e.errno())
}
