//! get_param and set_param: the MGS's own values, and permanent parameters of every node.

use super::{Done, done, origin};
use crate::service::Mgs;
use model::Errno;
use rpc::Incoming;
use wire::msg::param::{GetParam, GetParamReply, SetParam};

pub fn get(mgs: &Mgs, m: &GetParam) -> Result<Done, Errno> {
    let values = mgs.get_params(&m.pattern);
    if values.is_empty() {
        return Err(Errno::ENOENT);
    }
    Ok(done(&GetParamReply { values }, mgs.seen(), false))
}

pub fn set(mgs: &Mgs, req: &Incoming, m: &SetParam) -> Result<Done, Errno> {
    if !req.ctx.cred.is_root() {
        return Err(Errno::EPERM);
    }
    if !m.permanent {
        // nothing of the MGS itself can be set
        return Err(if mgs.get_params(&m.name).is_empty() { Errno::ENOENT } else { Errno::EACCES });
    }
    mgs.change(
        Some(req),
        origin(req, "set_param -P"),
        |s, txn| s.set_param(&m.name, &m.value, m.delete, txn),
        |_| Ok(GetParamReply { values: vec![(m.name.clone(), m.value.clone())] }),
    )
}
