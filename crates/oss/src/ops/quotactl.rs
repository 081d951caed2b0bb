//! quotactl: what owners use of this target.

use super::{Cx, Done};
use model::Errno;
use model::usage::may_see;
use store::Seen;
use wire::msg::quotactl::{QuotaAsk, Quotactl};

/// Owners in one request.
const IDS_MAX: usize = 1000;

/// `EPERM`: the caller may not know. `EMSGSIZE`: too many at once.
pub async fn run(cx: &Cx, m: Quotactl) -> Result<Done, Errno> {
    match &m.ask {
        QuotaAsk::Of(ids) if ids.len() > IDS_MAX => return Err(Errno::EMSGSIZE),
        QuotaAsk::Of(ids) if ids.iter().all(|id| may_see(&cx.ctx.cred, *id)) => {}
        _ if cx.ctx.cred.is_root() => {}
        _ => return Err(Errno::EPERM),
    }
    let asked = if let QuotaAsk::Of(ids) = &m.ask { ids.len() } else { 0 };
    let (ost, counts) = (cx.ost.clone(), m.ask == QuotaAsk::Verify);
    let answer = move || ost.objects.usage().answer(&ost.db, &m.ask, store::object::count_usage);
    let reply = if counts { cx.ost.world.blocking(answer).await } else { answer() };
    let reply = reply.map_err(|e| e.errno())?;
    assert!(asked == 0 || reply.usage.len() == asked, "each question has its answer");
    Ok(Done::looked(&reply, Seen::default()))
}
