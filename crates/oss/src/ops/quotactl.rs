//! quotactl: what owners use of this target.

use super::{Cx, Done};
use model::Errno;
use store::Seen;
use wire::msg::quotactl::{LimitsReply, QuotaAsk, Quotactl, SharesReply};

/// As [`QuotaAsk::check`].
pub async fn run(cx: &Cx, m: Quotactl) -> Result<Done, Errno> {
    m.ask.check(&cx.ctx.cred)?;
    let ids = if let QuotaAsk::Of(ids) = &m.ask { ids.clone() } else { Vec::new() };
    let asked = ids.len();
    let (ost, counts) = (cx.ost.clone(), m.ask == QuotaAsk::Verify);
    let answer = move || ost.objects.usage().answer(&ost.db, &m.ask, store::object::count_usage);
    let reply = if counts { cx.ost.world.blocking(answer).await } else { answer() };
    let mut reply = reply.map_err(|e| e.errno())?;
    let of: Vec<_> = ids.iter().filter_map(|id| Some((*id, cx.ost.shares.of(*id)?))).collect();
    if !of.is_empty() {
        let shares = SharesReply { of, ..SharesReply::default() }.into();
        reply.limits = LimitsReply { shares, ..LimitsReply::default() }.into();
    }
    assert!(asked == 0 || reply.usage.len() == asked, "each question has its answer");
    Ok(Done::looked(&reply, Seen::default()))
}
