//! Now and then the target makes a small change of its own durable, to see how long that takes.

use crate::mdt::Mdt;
use rpc::server::probes::Attempt;
use rpc::server::recovery::Phase;

/// Begins one, unless the target takes no changes now.
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
    Attempt::begun(mdt.db.probe())
}
