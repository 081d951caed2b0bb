//! Now and then the target makes a small change of its own durable, to see how long that takes.

use crate::service::Ost;
use rpc::server::probes::Attempt;
use rpc::server::recovery::Phase;

/// Begins one, unless the target takes no changes now.
pub fn begin(ost: &Ost) -> Attempt {
    let takes_changes = ost.writable().is_ok() && ost.db.is_held() && !ost.is_stopping();
    if !takes_changes || ost.recovery.phase() != Phase::Serving || ost.peers.maintenance().is_on() {
        return Attempt::PutOff;
    }
    Attempt::begun(ost.db.probe())
}
