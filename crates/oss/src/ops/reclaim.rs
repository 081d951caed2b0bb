//! reclaim: after this server's restart a client says what it had. Open files are the metadata servers'
//! affair; locks on ranges of objects come here.

use super::{Cx, Done};
use model::Errno;
use store::Seen;
use wire::msg::reclaim::{Reclaim, ReclaimReply};

pub fn run(cx: &Cx, m: &Reclaim) -> Result<Done, Errno> {
    if !cx.ost.clients.knows(cx.slot.client) {
        return Err(Errno::ENOTCONN);
    }
    let reply = ReclaimReply {
        lost_opens: m.opens.iter().map(|o| o.handle).collect(),
        lost_locks: cx.ost.locks.reclaim(cx.slot.client, &m.extents),
    };
    if m.last {
        cx.ost.recovery.ended(cx.slot.client);
    }
    Ok(Done::looked(&reply, Seen::default()))
}
