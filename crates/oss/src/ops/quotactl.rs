//! quotactl: what owners use of this target.

use super::{Cx, Done};
use model::Errno;
use store::Seen;
use wire::msg::quotactl::{QuotaAsk, Quotactl};

/// As [`QuotaAsk::check`].
pub async fn run(cx: &Cx, m: Quotactl) -> Result<Done, Errno> {
    m.ask.check(&cx.ctx.cred)?;
    let asked = if let QuotaAsk::Of(ids) = &m.ask { ids.len() } else { 0 };
    let (ost, counts) = (cx.ost.clone(), m.ask == QuotaAsk::Verify);
    let answer = move || ost.objects.usage().answer(&ost.db, &m.ask, store::object::count_usage);
    let reply = if counts { cx.ost.world.blocking(answer).await } else { answer() };
    let reply = reply.map_err(|e| e.errno())?;
    assert!(asked == 0 || reply.usage.len() == asked, "each question has its answer");
    Ok(Done::looked(&reply, Seen::default()))
}
