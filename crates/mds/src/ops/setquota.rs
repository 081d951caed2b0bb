//! setquota: what users, groups and projects may use.

use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::names::OpContext;
use model::quota::{Enforced, LimitChange, LimitOrder};
use model::usage::{QuotaId, QuotaType};
use model::{Errno, pool};
use std::sync::Arc;
use wire::encode_message;
use wire::msg::setquota::Setquota;

/// What takes a limit away, also of a pool that is gone.
const NO_LIMIT: LimitChange = LimitChange { soft: Some(0), hard: Some(0) };

/// `EPERM` for anybody but root, `EINVAL` for limits of who has none, `ENOENT` for a pool or
/// directory that is not there.
pub async fn run(mdt: &Arc<Mdt>, to: &ReplyTo, ctx: &OpContext, m: &Setquota) -> Done {
    if !ctx.cred.is_root() {
        return Done::error(Errno::EPERM);
    }
    let of = match m.order {
        LimitOrder::Own { of, .. } | LimitOrder::UseDefault { of } | LimitOrder::Pool { of, .. }
            if !of.is_limited() =>
        {
            return Done::error(Errno::EINVAL);
        }
        LimitOrder::Pool { ref pool, .. } if !pool::name_is_valid(pool) => {
            return Done::error(Errno::EINVAL);
        }
        LimitOrder::Pool { of, ref pool, space } if space != NO_LIMIT && !limits_hold(mdt, of, pool) => {
            return Done::error(Errno::ENOENT);
        }
        // Each directory is limited for itself.
        LimitOrder::UseDefault { of: QuotaId { of: QuotaType::Directory, .. } }
        | LimitOrder::Default { of: QuotaType::Directory, .. } => return Done::error(Errno::EINVAL),
        LimitOrder::Own { of, .. }
            if of.of == QuotaType::Directory && mdt.shared.directories.get(of.id).is_none() =>
        {
            return Done::error(Errno::ENOENT);
        }
        LimitOrder::Own { of, .. } | LimitOrder::UseDefault { of } | LimitOrder::Pool { of, .. } => Some(of),
        LimitOrder::Default { .. } | LimitOrder::Grace { .. } => None,
    };
    let shared = &mdt.shared;
    let was_active = shared.quotas.is_active();
    let done = mdt.transactions.transact(Some(to), |tx| {
        let (k, v) = shared.quotas.ordered(&m.order, &shared.usage, ctx.wall.sec);
        match v {
            Some(v) => tx.put(k.encode(), v),
            None => tx.delete(k.encode()),
        }
        Ok(encode_message(&()))
    });
    let done = done.await;
    if done.result.is_ok() {
        // Whoever makes files by himself did not know that there are limits.
        if let Err(e) = mdt.transactions.limits_changed(of.filter(|_| was_active)).await {
            return Done::error(e);
        }
        let told = match of {
            Some(of) => mdt.transactions.share_out(&[of]).await,
            None => mdt.transactions.share_out_all().await,
        };
        if let Err(e) = told {
            return Done::error(e);
        }
    }
    done
}

/// Whether limits of an owner on the OSTs of a pool would limit anybody.
fn limits_hold(mdt: &Mdt, of: QuotaId, pool: &str) -> bool {
    let is_there = of.of != QuotaType::Directory || mdt.shared.directories.get(of.id).is_some();
    is_there && mdt.shared.osts.pools.get(pool).is_some()
}

/// Whose limits a target enforces.
pub fn enforced(mdt: &Mdt) -> Enforced {
    mdt.shared.quotas.enforced()
}

/// Others from now on; mounts hear of it.
pub fn enforce(mdt: &Arc<Mdt>, enforced: Enforced) {
    mdt.shared.quotas.set_enforced(enforced);
    let me = mdt.clone();
    mdt.world.spawn("limits", async move {
        // It ends early only when the target stops.
        let _ = me.transactions.limits_changed(None).await;
        let _ = me.transactions.share_out_all().await;
    });
}
