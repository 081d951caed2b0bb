//! getlock: which lock would conflict (F_GETLK).

use crate::mdt::Mdt;
use crate::names::OpContext;
use model::Errno;
use wire::msg::getlock::{Getlock, GetlockReply};

pub fn run(mdt: &Mdt, ctx: &OpContext, m: Getlock) -> Result<GetlockReply, Errno> {
    Ok(GetlockReply { conflict: mdt.locks.getlock(ctx.client, &m.lock) })
}
