//! get_param and set_param of one target. Settings made here last until the target stops; permanent ones
//! live on the MGS.

use super::{Cx, Done};
use model::Errno;
use store::Seen;
use wire::msg::param::{GetParam, GetParamReply, SetParam};

pub fn get(cx: &Cx, m: &GetParam) -> Result<Done, Errno> {
    Ok(Done::looked(&GetParamReply { values: cx.ost.get_params(&m.pattern) }, Seen::default()))
}

/// Setting the same value twice is harmless, so this needs no reply slot.
pub fn set(cx: &Cx, m: &SetParam) -> Result<Done, Errno> {
    if !cx.ctx.cred.is_root() {
        return Err(Errno::EPERM);
    }
    if m.permanent || m.delete {
        return Err(Errno::EOPNOTSUPP);
    }
    let values = cx.ost.set_params(&m.name, &m.value)?;
    Ok(Done::looked(&GetParamReply { values }, Seen::default()))
}
