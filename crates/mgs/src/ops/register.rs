//! register: a target makes itself known, at each start.

use super::{Done, done};
use crate::service::Mgs;
use model::Errno;
use wire::msg::config::TargetEntry;
use wire::msg::register::{Register, RegisterReply};

pub fn run(mgs: &Mgs, m: Register) -> Result<Done, Errno> {
    let entry = TargetEntry {
        target: m.target,
        target_uuid: m.target_uuid,
        nids: m.nids,
        epoch: m.epoch,
        active: true,
        domains: Vec::new(),
    };
    let label = m.target.label(&m.fsname);
    let new_uuid = mgs.world().random_uuid();
    let result = mgs.change(|s| s.register(&m.fsname, m.fs_uuid, new_uuid, entry, m.replace));
    let lsn = result.inspect_err(|e| tracing::warn!("MGS: {label} is refused: {e}"))?;
    for (name, value) in m.params {
        // mkfs --param of the first registration becomes a permanent parameter, unless somebody set it since
        if m.first_time && mgs.state(|s| !s.params.contains_key(&name)) {
            if let Err(e) = mgs.change(|s| s.set_param(&name, &value, false).map(Some)) {
                tracing::warn!("MGS: parameter '{name}' of {label} is ignored: {e}");
            }
        }
    }
    tracing::info!("MGS: {label} registered, epoch {}", m.epoch);
    let config = mgs.state(|s| s.config(&m.fsname))?;
    Ok(done(&RegisterReply { fs_uuid: config.fs_uuid, config }, lsn.max(mgs.seen()), true))
}
