//! glimpse: size, blocks and times of objects.

use super::{Cx, Done, check_object};
use model::{Errno, limits};
use store::Seen;
use wire::msg::glimpse::{Glimpse, GlimpseReply};

pub async fn run(cx: &Cx, m: &Glimpse) -> Result<Done, Errno> {
    if m.objects.len() > limits::OBJECTS_PER_RPC_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let kept = cx.ost.locks.ask_holders(cx.slot.client, &m.objects).await;
    let mut attrs = Vec::with_capacity(m.objects.len());
    let mut seen = Seen::default();
    for &id in &m.objects {
        check_object(id)?;
        cx.check_not_lost(id)?;
        let (mut attr, lsn) = cx.attr(id)?;
        for k in kept.get(&id).into_iter().flatten() {
            attr.size = attr.size.max(k.size);
            if k.ctime > attr.ctime {
                (attr.mtime, attr.ctime) = (k.mtime, k.ctime);
            }
        }
        attrs.push(attr);
        seen.merge(cx.seen(lsn));
    }
    assert!(kept.keys().all(|k| m.objects.contains(k)), "holders are asked about these objects only");
    Ok(Done::looked(&GlimpseReply { attrs }, seen))
}
