//! Attributes of objects: as their servers know them, with what this mount keeps of them.

use super::File;
use crate::osc::Osc;
use crate::{BoxFutureOf, R};
use model::{ObjectAttr, ObjectId};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::msg::notify::KeptAttr;
use world::future::join_all;

/// Objects in one message.
const BATCH: usize = 1000;

/// An object on its OST, as a layout of this generation has it.
#[derive(Clone)]
pub(crate) struct Placed {
    pub osc: Arc<Osc>,
    pub id: ObjectId,
    pub generation: u32,
}

impl File {
    pub(super) fn osc_objects(&self) -> Vec<Placed> {
        let placed = |o: &Arc<crate::osc::Object>| Placed {
            osc: o.osc.clone(),
            id: o.id,
            generation: self.layout.generation,
        };
        self.objects.iter().map(placed).collect()
    }

    /// Attributes of its objects as their servers know them.
    pub(crate) async fn ask_attrs(&self) -> R<Vec<ObjectAttr>> {
        ask(&self.osc_objects()).await
    }
}

/// Attributes of objects, in the order given, with what this mount keeps of them. Nobody is asked about
/// objects that its locks cover.
pub(crate) async fn glimpse(objects: &[Placed]) -> R<Vec<ObjectAttr>> {
    let here = known_here(objects);
    let unknown: Vec<Placed> = unknown(&here).map(|i| objects[i].clone()).collect();
    let asked = if unknown.is_empty() { Vec::new() } else { ask(&unknown).await? };
    with_answers(here, asked.into_iter().map(Ok)).into_iter().collect()
}

/// New times of a file with these objects are set. Whether it is certain that they win over all that was
/// written before ([`crate::osc::ObjectState::outdate_unsent`]).
pub(crate) fn outdate_unsent(objects: &[Placed]) -> bool {
    let mut certain = true;
    for o in objects {
        certain &= o.osc.cache.get(o.id).is_some_and(|object| object.lock().outdate_unsent());
    }
    certain
}

/// What is known here of an object before anybody is asked.
pub(super) enum Here {
    /// Everything: a lock of this mount covers it.
    Known(ObjectAttr),
    /// What this mount adds to what its OST says.
    Kept(KeptAttr),
    Nothing,
}

/// Of each object. To be called before the question: what is written meanwhile may be in neither.
pub(super) fn known_here(objects: &[Placed]) -> Vec<Here> {
    let one = |o: &Placed| {
        let Some(object) = o.osc.cache.get(o.id) else { return Here::Nothing };
        match object.attr_if_locked() {
            Some(attr) => Here::Known(attr),
            None => object.kept().map_or(Here::Nothing, Here::Kept),
        }
    };
    objects.iter().map(one).collect()
}

/// The objects that their OSTs have to be asked about, by their places.
pub(super) fn unknown(here: &[Here]) -> impl Iterator<Item = usize> {
    here.iter().enumerate().filter(|(_, h)| !matches!(h, Here::Known(_))).map(|(i, _)| i)
}

/// Attributes of all objects, with what the OSTs said of the [`unknown`] ones, in their order.
pub(super) fn with_answers(
    here: Vec<Here>,
    mut asked: impl Iterator<Item = R<ObjectAttr>>,
) -> Vec<R<ObjectAttr>> {
    let mut answer = || asked.next().expect("one for each that was asked for");
    let each = here.into_iter().map(|here| match here {
        Here::Known(attr) => Ok(attr),
        Here::Kept(kept) => answer().map(|mut attr| {
            add_kept(&mut attr, &kept);
            attr
        }),
        Here::Nothing => answer(),
    });
    let out = each.collect();
    assert!(asked.next().is_none(), "one for each that was asked for");
    out
}

/// Adds what a client keeps of an object to what its server says.
fn add_kept(a: &mut ObjectAttr, kept: &KeptAttr) {
    a.size = a.size.max(kept.size);
    if kept.ctime > a.ctime {
        (a.mtime, a.ctime) = (kept.mtime, kept.ctime);
    }
}

/// Attributes of objects as their servers know them, in the order given. One message for each OST and
/// [`BATCH`] objects of layouts of one generation, as most files' are.
pub(crate) async fn ask(objects: &[Placed]) -> R<Vec<ObjectAttr>> {
    if let [o] = objects {
        return o.osc.glimpse(o.generation, vec![o.id]).await;
    }
    let mut by_ost: BTreeMap<(u16, u32), Vec<usize>> = BTreeMap::new();
    for (i, o) in objects.iter().enumerate() {
        by_ost.entry((o.osc.target.id.index, o.generation)).or_default().push(i);
    }
    let batches: Vec<&[usize]> = by_ost.values().flat_map(|ix| ix.chunks(BATCH)).collect();
    let asked = batches.iter().map(|ix| -> BoxFutureOf<'_, R<Vec<ObjectAttr>>> {
        let (ids, first) = (ix.iter().map(|&i| objects[i].id).collect(), &objects[ix[0]]);
        Box::pin(first.osc.glimpse(first.generation, ids))
    });
    let mut out = vec![ObjectAttr::default(); objects.len()];
    for (ix, r) in batches.iter().zip(join_all(asked.collect()).await) {
        for (&i, a) in ix.iter().zip(r?) {
            out[i] = a;
        }
    }
    Ok(out)
}
