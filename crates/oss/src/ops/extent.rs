//! extent: a lock on bytes of an object, for a client that wants to keep them.

use super::{Cx, Done, check_object};
use model::Errno;
use wire::msg::extent::{Extent, ExtentAnswer, ExtentReply};

pub fn run(cx: &Cx, m: &Extent) -> Result<Done, Errno> {
    let (ost, client) = (&cx.ost, cx.slot.client);
    check_object(m.lock.object)?;
    if m.lock.start > m.lock.end || m.lock.id == 0 {
        return Err(Errno::EINVAL);
    }
    cx.check_not_lost(m.lock.object)?;
    if !ost.clients.knows(client) {
        return Err(Errno::ENOTCONN);
    }
    let mut answer = ost.locks.enqueue(client, &m.lock, m.force)?;
    let mut seen = store::Seen::default();
    if let ExtentAnswer::Granted { attr, .. } = &mut answer {
        // With the lock: it may be free because a fence ended just now.
        match cx.attr(m.lock.object) {
            Ok((now, lsn)) => (*attr, seen) = (now, cx.seen(lsn)),
            Err(e) => {
                ost.locks.released(client, &[(m.lock.object, m.lock.id)]);
                return Err(e);
            }
        }
    }
    Ok(Done::looked(&ExtentReply { answer }, seen))
}
