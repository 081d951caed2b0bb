//! quotashare: what owners may use here without asking.

use super::{Cx, Done};
use crate::shares::store_tree;
use model::Errno;
use model::limits::DIRECTORY_QUOTAS_MAX;
use std::collections::BTreeSet;
use store::Txn;
use wire::msg::quotashare::{ORDERS_MAX, Quotashare, QuotashareReply};

/// `EMSGSIZE`: too many at once.
pub async fn run(cx: &Cx, m: Quotashare) -> Result<Done, Errno> {
    let ost = &cx.ost;
    ost.writable()?;
    if m.orders.len() > ORDERS_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let of: BTreeSet<_> = m.orders.iter().map(|o| o.of).collect();
    ost.shares.look(&ost.objects, &of).await?;
    let mut txn = Txn::new();
    if let Some(tree) = m.tree.0 {
        if tree.len() > DIRECTORY_QUOTAS_MAX {
            return Err(Errno::EMSGSIZE);
        }
        store_tree(ost.objects.usage(), &tree, &mut txn);
    }
    let orders = m.orders.iter().map(|o| (o.of, o.change));
    let states = ost.shares.change(ost.objects.usage(), orders, m.limited, &mut txn);
    assert!(states.len() == m.orders.len(), "each order has its answer");
    ost.shares.settle_behind(&ost.world, &ost.objects);
    let reply = QuotashareReply { states };
    cx.slot.clone().put(&mut txn, &reply);
    let lsn = ost.db.submit(txn).map_err(|e| e.errno())?;
    // What others are given was taken here for good.
    ost.db.durable_in_time(lsn).await.map_err(|e| e.errno())?;
    Ok(Done::changed(&reply, lsn))
}
