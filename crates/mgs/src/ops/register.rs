//! register: a target makes itself known, at each start.

use super::{Done, origin};
use crate::registration::{Claim, Fresh};
use crate::service::Mgs;
use model::Errno;
use rpc::Incoming;
use wire::msg::config::{EXTRA_SERVER_KEY, TargetEntry};
use wire::msg::connect::extra_key;
use wire::msg::register::{EXTRA_DOMAIN, EXTRA_NEXT_INDEX, EXTRA_TARGET_KEY, Register, RegisterReply};

/// The failure domain that the target says it was placed in; `None`: it says nothing. `EINVAL`: it is none.
fn domain(req: &Incoming) -> Result<Option<Vec<String>>, Errno> {
    let said = req.ctx.extra.iter().find(|(tag, _)| *tag == EXTRA_DOMAIN);
    let read = |v: &[u8]| model::domain::parse(std::str::from_utf8(v).map_err(|_| Errno::EINVAL)?);
    said.map(|(_, v)| read(v)).transpose()
}

pub fn run(mgs: &Mgs, req: &Incoming, m: Register) -> Result<Done, Errno> {
    let domain = domain(req)?;
    let entry = TargetEntry {
        target: m.target,
        target_uuid: m.target_uuid,
        nids: m.nids,
        epoch: m.epoch,
        active: true,
        domains: domain.clone().unwrap_or_default(),
    };
    let wants_index = !m.target.is_assigned() && req.ctx.extra.iter().any(|(t, _)| *t == EXTRA_NEXT_INDEX);
    let label = match wants_index {
        true => format!("a target of {} without an index", m.fsname),
        false => m.target.label(&m.fsname),
    };
    let fresh = Fresh { fs_uuid: mgs.world().random_uuid(), server_key: mgs.world().random_key() };
    let done = mgs.change(
        Some(req),
        origin(req, "register"),
        |s, txn| {
            let target = match wants_index {
                true => s.next_index(&m.fsname, m.target.kind, m.target_uuid)?,
                false => m.target,
            };
            let claim = Claim {
                fsname: &m.fsname,
                fs_uuid: m.fs_uuid,
                entry: TargetEntry { target, ..entry },
                replace: m.replace,
                knows_domains: domain.is_some(),
                key: extra_key(&req.ctx.extra, EXTRA_TARGET_KEY),
                from: &req.from,
            };
            s.register(claim, &fresh, txn)?;
            // mkfs --param of the first registration becomes a permanent parameter, unless somebody set it
            // since
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
            let mut config = s.config(&m.fsname)?;
            let key = s.file_systems.get(&m.fsname).and_then(|f| f.server_key());
            config.extra.extend(key.map(|k| (EXTRA_SERVER_KEY, k.to_vec())));
            Ok(RegisterReply { fs_uuid: config.fs_uuid, config })
        },
    );
    match &done {
        Ok(_) => tracing::info!("MGS: {label} registered, epoch {}", m.epoch),
        Err(Errno::ENOKEY) => tracing::info!("MGS: {label} is asked for its key, which is not known yet"),
        Err(Errno::EACCES) => tracing::warn!(
            "MGS: {label} is refused: it says that it replaces a lost target, which nobody allowed (lctl registration {label} replace)"
        ),
        Err(e) => {
            tracing::warn!("MGS: {label}, epoch {}, from {} is refused: {e}", m.epoch, req.from.address)
        }
    }
    done
}
