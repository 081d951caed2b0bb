//! getlock: which lock would conflict (F_GETLK).

use crate::names::OpContext;
use crate::service::Mdt;
use crate::shared::lock;
use model::Errno;
use wire::msg::getlock::{Getlock, GetlockReply};

pub fn run(mdt: &Mdt, ctx: &OpContext, m: Getlock) -> Result<GetlockReply, Errno> {
    let conflict = lock(&mdt.locks).getlock(ctx.client.0, &m.lock);
    Ok(GetlockReply { conflict })
}
