//! objectlist: what there is, by the objects' labels, for a metadata target that compares it with its
//! layouts.

use super::{Cx, Done};
use crate::lfsck::Seen;
use model::{Errno, Fid, ObjectId};
use store::Read;
use store::object::location::{
    ObjectRecord, TAG_OBJECT, TAG_TOMBSTONE, id_of_key, object_key, tombstone_key,
};
use wire::msg::objectlist::{ListedObject, OBJECTS_MAX, Objectlist, ObjectlistReply};
use wire::trailing::Trailing;

pub fn run(cx: &Cx, m: &Objectlist) -> Result<Done, Errno> {
    if m.only.len() > OBJECTS_MAX as usize {
        return Err(Errno::EMSGSIZE);
    }
    let limit = m.limit.clamp(1, OBJECTS_MAX) as usize;
    let db = &*cx.ost.db;
    let (all, next) = if m.only.is_empty() { page(db, m.after, limit)? } else { (only(db, &m.only)?, None) };
    let reply = reply(all, next, m.labels.0 == Some(true));
    assert!(reply.objects.len() <= OBJECTS_MAX as usize, "a page is bounded");
    if m.only.is_empty() {
        let seen = Seen { first: m.after.is_none(), last: reply.next.is_none() };
        cx.ost.lfsck.saw(seen, reply.objects.len() as u64, cx.wall);
    }
    // That one was destroyed must be as durable as it is when a glimpse says so.
    let is_gone = reply.objects.iter().any(|o| o.destroyed);
    let durable = if is_gone { cx.ost.db.last_submitted() } else { 0 };
    Ok(Done { durable, ..Done::looked(&reply, store::Seen::default()) })
}

/// An object and its label, if it has one.
type Listed = (ListedObject, Vec<u8>);

fn reply(all: Vec<Listed>, next: Option<ObjectId>, with_labels: bool) -> ObjectlistReply {
    let (objects, labels): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let labels = with_labels.then(|| (0u32..).zip(labels).filter(|(_, l)| !l.is_empty()).collect());
    ObjectlistReply { objects, next, labels: Trailing(labels) }
}

/// Objects and notes of destroyed ones are two kinds of records, each in the order of their ids.
fn page(
    db: &dyn Read,
    after: Option<ObjectId>,
    limit: usize,
) -> Result<(Vec<Listed>, Option<ObjectId>), Errno> {
    let (objects, objects_end) = records(db, TAG_OBJECT, after, limit)?;
    let (gone, gone_end) = records(db, TAG_TOMBSTONE, after, limit)?;
    // Behind the end of the shorter page nothing is known of its kind.
    let bound = [objects_end, gone_end].into_iter().flatten().min();
    let within = |id: &ObjectId| bound.is_none_or(|b| *id <= b);
    let mut all: Vec<Listed> = Vec::new();
    all.extend(objects.iter().filter(|(id, _)| within(id)).filter_map(|(id, v)| living(*id, v)));
    all.extend(gone.iter().filter(|(id, _)| within(id)).map(|(id, _)| destroyed(*id)));
    all.sort_unstable_by_key(|(o, _)| o.id);
    let mut next = bound;
    if all.len() > limit {
        all.truncate(limit);
        next = all.last().map(|(o, _)| o.id);
    }
    assert!(next.is_none_or(|n| Some(n) > after), "the next page lies behind this one");
    Ok((all, next))
}

type Records = Vec<(ObjectId, Vec<u8>)>;

/// Records of a kind behind an object; the last one's object if there may be more.
fn records(
    db: &dyn Read,
    tag: u8,
    after: Option<ObjectId>,
    limit: usize,
) -> Result<(Records, Option<ObjectId>), Errno> {
    let mut from = match (after, tag) {
        (None, _) => vec![tag],
        (Some(id), TAG_OBJECT) => object_key(id),
        (Some(id), _) => tombstone_key(id),
    };
    if after.is_some() {
        from.push(0);
    }
    let pairs = db.scan(&from, &[tag.saturating_add(1)], limit).map_err(|e| e.errno())?;
    let full = pairs.len() == limit;
    let records: Records = pairs.into_iter().filter_map(|(k, v)| Some((id_of_key(&k)?, v))).collect();
    let end = records.last().map(|(id, _)| *id).filter(|_| full);
    Ok((records, end))
}

/// What cannot be read is this target's own business: `nacre fsck` says so.
fn living(id: ObjectId, v: &[u8]) -> Option<Listed> {
    let r = ObjectRecord::decode(id, v).ok()?;
    let listed = ListedObject {
        id,
        file: r.file,
        owner: r.owner,
        directory: r.owner.directory,
        size: r.attr.size,
        generation: r.layout_generation,
        destroyed: false,
    };
    Some((listed, r.label))
}

fn destroyed(id: ObjectId) -> Listed {
    let listed = ListedObject {
        id,
        file: Fid::NONE,
        owner: model::nodemap::Owner::default(),
        directory: 0,
        size: 0,
        generation: 0,
        destroyed: true,
    };
    (listed, Vec::new())
}

fn only(db: &dyn Read, ids: &[ObjectId]) -> Result<Vec<Listed>, Errno> {
    let mut objects = Vec::new();
    for id in ids {
        let get = |k: Vec<u8>| db.get(&k).map_err(|e| e.errno());
        if get(tombstone_key(*id))?.is_some() {
            objects.push(destroyed(*id));
        } else if let Some(v) = get(object_key(*id))? {
            objects.extend(living(*id, &v));
        }
    }
    Ok(objects)
}
