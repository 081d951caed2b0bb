//! quotactl: what owners use of this target, and what they may.

use crate::mdt::Mdt;
use crate::names::OpContext;
use crate::service::count_usage;
use model::Errno;
use model::usage::QuotaId;
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::msg::quotactl::{LimitsReply, QuotaAsk, Quotactl, QuotactlReply, SharesReply};

/// As [`QuotaAsk::check`].
pub async fn run(mdt: &Arc<Mdt>, ctx: &OpContext, m: Quotactl) -> Result<QuotactlReply, Errno> {
    m.ask.check(&ctx.cred)?;
    let (here, counts, ask) = (mdt.clone(), m.ask == QuotaAsk::Verify, m.ask.clone());
    let types = m.ask == QuotaAsk::Types;
    let answer = move || here.shared.usage.answer(&here.db, &ask, count_usage);
    let reply = if counts { mdt.world.blocking(answer).await } else { answer() };
    let mut reply = reply.map_err(|e| e.errno())?;
    let quotas = &mdt.shared.quotas;
    let own_share = |id: &QuotaId| quotas.is_space_limited(*id).then(|| (*id, quotas.own_share(*id)));
    let shares = match &m.ask {
        QuotaAsk::Of(ids) => ids.iter().filter_map(own_share).collect(),
        _ => Vec::new(),
    };
    let shown: BTreeSet<QuotaId> = match m.ask {
        QuotaAsk::Of(ids) => ids.into_iter().collect(),
        // Of the same ids as the page, and of those who have limits and nothing else.
        QuotaAsk::All { of, after } => {
            let first = after.map_or(Some(0), |id| id.checked_add(1));
            let last = reply.next.unwrap_or(u32::MAX);
            let owners = first.map(|first| quotas.owners(of, first..=last)).unwrap_or_default();
            reply.usage.iter().map(|(id, _)| *id).chain(owners).collect()
        }
        QuotaAsk::Verify | QuotaAsk::Types => BTreeSet::new(),
    };
    let pools = quotas.pool_standings(shown.iter().copied(), ctx.wall.sec).into();
    let owners = quotas.standings(shown.into_iter(), ctx.wall.sec);
    let types = if types { quotas.types() } else { Vec::new() };
    let shares = SharesReply { of: shares, pools }.into();
    reply.limits = LimitsReply { owners, types, shares }.into();
    Ok(reply)
}
