//! Now and then the target makes a small change of its own durable, to see how long that takes.

use crate::service::Ost;
use rpc::server::probes::Attempt;
use rpc::server::recovery::Phase;
use std::sync::Arc;

/// Begins to probe it.
pub fn keep(ost: &Arc<Ost>) {
    let weak = Arc::downgrade(ost);
    ost.probes.keep("ost probes", move || weak.upgrade().map_or(Attempt::Gone, |ost| begin(&ost)));
}

fn begin(ost: &Ost) -> Attempt {
    let takes_changes = ost.writable().is_ok() && ost.db.is_held() && !ost.is_stopping();
    if !takes_changes || ost.recovery.phase() != Phase::Serving || ost.peers.maintenance().is_on() {
        return Attempt::PutOff;
    }
    let db = ost.db.clone();
    let submitted = db.submit_probe().map_err(|e| e.to_string());
    Attempt::Begun(Box::pin(async move { db.durable(submitted?).await.map_err(|e| e.to_string()) }))
}
