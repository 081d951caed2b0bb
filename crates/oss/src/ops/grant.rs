//! grant: promises space for data that a client keeps before it writes it.

use super::{Cx, Done};
use model::Errno;
use wire::msg::grant::{Grant, GrantReply};

pub fn run(cx: &Cx, m: &Grant) -> Result<Done, Errno> {
    let ost = &cx.ost;
    ost.writable()?;
    if !ost.clients.knows(cx.slot.client) {
        return Err(Errno::ENOTCONN);
    }
    let have = ost.space.promise(cx.slot.client, m.have, m.want, ost.settings.reserve())?;
    assert!(have <= m.have.max(m.want), "nobody is promised more than he asks for");
    Ok(Done::looked(&GrantReply { have, limits: ost.shares.is_active().into() }, store::Seen::default()))
}
