//! glimpselist: size, blocks and times of many objects, as far as no other client keeps changes of them.

use super::{Cx, Done, check_object};
use model::{Errno, ObjectAttr, ObjectId};
use store::View;
use wire::msg::glimpselist::{GLIMPSES_MAX, Glimpsed, Glimpselist, GlimpselistReply};
use world::future::give_way;

/// Objects that are looked at before others have their turn.
const PART: usize = 256;

pub async fn run(cx: &Cx, m: &Glimpselist) -> Result<Done, Errno> {
    if m.objects.len() > GLIMPSES_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let mut objects = Vec::with_capacity(m.objects.len());
    let mut view = cx.ost.db.view_for(&cx.slot.author);
    for part in m.objects.chunks(PART) {
        if !objects.is_empty() {
            give_way().await;
        }
        let locked = cx.ost.locks.kept_elsewhere(cx.slot.client, part.iter().map(|(id, _)| *id));
        for (&(id, generation), locked) in part.iter().zip(locked) {
            objects.push(match look(cx, &mut view, (id, generation), m.space) {
                Ok(_) if locked => Glimpsed::Locked,
                Ok(attr) => Glimpsed::Attr(attr),
                Err(e) => Glimpsed::Failed(e),
            });
        }
    }
    assert_eq!(objects.len(), m.objects.len(), "each object is answered for");
    // That one was destroyed must be as durable as it is when a glimpse says so.
    let is_gone = objects.contains(&Glimpsed::Failed(Errno::ESTALE));
    let durable = if is_gone { cx.ost.db.last_submitted() } else { 0 };
    Ok(Done { durable, ..Done::looked(&GlimpselistReply { objects }, view.dependencies()) })
}

fn look(cx: &Cx, view: &mut View, of: (ObjectId, u32), space: bool) -> Result<ObjectAttr, Errno> {
    let (id, asked_by) = of;
    check_object(id)?;
    cx.check_not_lost(id)?;
    let (attr, generation) = cx.ost.objects.attr_in(view, id, space).map_err(|e| e.errno())?;
    if super::is_old(asked_by, generation) { Err(Errno::ERELAYOUT) } else { Ok(attr) }
}
