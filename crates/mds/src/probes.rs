//! Now and then the target makes a small change of its own durable, to see how long that takes.

use crate::mdt::Mdt;
use rpc::server::probes::Attempt;
use rpc::server::recovery::Phase;
use std::sync::Arc;

/// Begins to probe it.
pub fn keep(mdt: &Arc<Mdt>) {
    let weak = Arc::downgrade(mdt);
    mdt.probes.keep("mdt probes", move || weak.upgrade().map_or(Attempt::Gone, |mdt| begin(&mdt)));
}

pub fn begin(mdt: &Mdt) -> Attempt {
    let alive = mdt.db.is_held() && mdt.db.stopped().is_none() && !mdt.stop.is_begun();
    if !alive || mdt.recovery.phase() != Phase::Serving || mdt.peers.maintenance().is_on() {
        return Attempt::PutOff;
    }
    // As a transaction: alone, and never behind a barrier that begins to hold.
    let _alone = mdt.core.write();
    if mdt.shared.barrier.is_wanted() {
        return Attempt::PutOff;
    }
    let db = mdt.db.clone();
    let submitted = db.submit_probe().map_err(|e| e.to_string());
    Attempt::Begun(Box::pin(async move { db.durable(submitted?).await.map_err(|e| e.to_string()) }))
}
