//! enqueue: asks for a lock on a file: flock, POSIX range, or an extent for one operation.

use crate::mdt::Mdt;
use crate::names::OpContext;
use model::Errno;
use wire::msg::enqueue::{Enqueue, EnqueueReply};

pub fn run(mdt: &Mdt, ctx: &OpContext, m: Enqueue) -> Result<EnqueueReply, Errno> {
    if !mdt.core.read().clients.contains_key(&ctx.client) {
        return Err(Errno::ENOTCONN);
    }
    mdt.locks.enqueue(ctx.client, &m.lock, m.wait).map(|granted| EnqueueReply { granted })
}
