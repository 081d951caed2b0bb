//! register: a target makes itself known, at each start.

use super::Done;
use crate::registration::Claim;
use crate::service::Mgs;
use model::Errno;
use rpc::Incoming;
use wire::msg::config::TargetEntry;
use wire::msg::register::{Register, RegisterReply};

pub fn run(mgs: &Mgs, req: &Incoming, m: Register) -> Result<Done, Errno> {
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
    let done = mgs.change(
        Some(req),
        |s, txn| {
            let claim = Claim { fsname: &m.fsname, fs_uuid: m.fs_uuid, entry, replace: m.replace };
            s.register(claim, new_uuid, txn)?;
            // mkfs --param of the first registration becomes a permanent parameter, unless somebody set it since
            for (name, value) in m.params.iter().filter(|_| m.first_time) {
                if !s.params.contains_key(name)
                    && let Err(e) = s.set_param(name, value, false, txn)
                {
                    tracing::warn!("MGS: parameter '{name}' of {label} is ignored: {e}");
                }
            }
            Ok(())
        },
        |s| {
            let config = s.config(&m.fsname)?;
            Ok(RegisterReply { fs_uuid: config.fs_uuid, config })
        },
    );
    match &done {
        Ok(_) => tracing::info!("MGS: {label} registered, epoch {}", m.epoch),
        Err(Errno::EACCES) => tracing::warn!(
            "MGS: {label} is refused: it says that it replaces a lost target, which nobody allowed (lctl registration {label} replace)"
        ),
        Err(e) => tracing::warn!("MGS: {label}, epoch {}, from {} is refused: {e}", m.epoch, req.peer),
    }
    done
}
