//! glimpse: size, blocks and times of objects.

use super::{Cx, Done, check_object};
use model::{Errno, limits};
use store::Seen;
use wire::msg::glimpse::{Glimpse, GlimpseReply};

pub fn run(cx: &Cx, m: &Glimpse) -> Result<Done, Errno> {
    if m.objects.len() > limits::OBJECTS_PER_RPC_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let mut attrs = Vec::with_capacity(m.objects.len());
    let mut seen = Seen::default();
    for &id in &m.objects {
        check_object(id)?;
        let (attr, lsn) = cx.ost.objects.attr(id).map_err(|e| e.errno())?;
        attrs.push(attr);
        seen.merge(cx.seen(lsn));
    }
    Ok(Done::looked(&GlimpseReply { attrs }, seen))
}
