//! getlock: which lock would conflict (F_GETLK).

use crate::mdt::Mdt;
use crate::names::OpContext;
use model::Errno;
use wire::msg::getlock::{Getlock, GetlockReply};

pub fn run(mdt: &Mdt, ctx: &OpContext, m: Getlock) -> Result<GetlockReply, Errno> {
    let conflict = mdt.locks.lock().getlock(ctx.client.0, &m.lock);
    Ok(GetlockReply { conflict })
}
