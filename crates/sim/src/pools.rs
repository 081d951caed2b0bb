//! A pool of object servers: files that are bound to it have their objects there, wherever they are moved.

use crate::cluster::Cluster;
use ::world::{Either, select};
use mgs::pools::{PoolOrder, PoolVerb};
use model::{Errno, Layout};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const POOL: &str = "near";
/// Indices of the OSTs in it. There are as many in the smallest cluster.
pub(crate) const MEMBERS: [u16; 2] = [0, 1];
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Until the MGS is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Makes it. Everybody knows it afterwards who chooses OSTs.
pub(crate) async fn make(c: &Arc<Cluster>) {
    for verb in [PoolVerb::New, PoolVerb::Add(MEMBERS.to_vec())] {
        while !ask(c, &verb).await {
            c.sim.sleep(LOOK_AGAIN).await;
        }
    }
    let known = || c.mdt().is_some_and(|m| m.pools().1.iter().any(|p| p.osts.len() == MEMBERS.len()));
    while !known() {
        c.sim.sleep(LOOK_AGAIN).await;
    }
}

/// Whether it was done, now or before.
async fn ask(c: &Arc<Cluster>, verb: &PoolVerb) -> bool {
    let Some(mgs) = c.mgs() else { return false };
    let order = PoolOrder { fsname: crate::server::FSNAME.into(), pool: POOL.into(), verb: verb.clone() };
    let done = Box::pin(async move { mgs.change_pool(&order).await });
    matches!(select(done, c.sim.sleep(ASK_AGAIN)).await, Either::Left(Ok(_) | Err((Errno::EEXIST, _))))
}

/// What is wrong with the objects of a layout, if its components are bound to the pool.
pub(crate) fn check(l: &Layout) -> Result<(), String> {
    let bound = l.components.iter().filter(|c| c.pool == POOL);
    match bound.flat_map(|c| &c.objects).find(|o| !MEMBERS.contains(&o.ost)) {
        None => Ok(()),
        Some(o) => Err(format!("{} lies on OST {}, outside of its pool: {l:?}", o.id, o.ost)),
    }
}
