//! The write barrier of a metadata target, for an administrator: of this host, or of the MGS's (decision
//! 0089).

use super::target::{Role, Target};
use model::Errno;
use model::barrier::BarrierStanding;
use wire::msg::barrier::Barrier;

/// Does what is asked, and says how it stands then. The error's text is for the administrator.
pub async fn run(t: &Target, m: Barrier) -> Result<BarrierStanding, (Errno, String)> {
    let Role::Mdt(mdt) = &t.service else {
        return Err((Errno::EINVAL, format!("{} has no barrier: name a metadata target", t.label())));
    };
    mds::barrier_order(mdt, m.order).await
}
