//! Attributes of objects of many files, each with its own refusal: one question to each OST, and those that
//! other clients may keep changes of are asked about properly.

use super::glimpse::{self, Placed};
use crate::osc::Osc;
use crate::{BoxFutureOf, R};
use model::{ObjectAttr, ObjectId};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::msg::glimpselist::{GLIMPSES_MAX, Glimpsed};
use world::future::join_all;

/// Objects that are asked about one by one at a time.
const ONE_BY_ONE: usize = 32;

/// Attributes of objects, in the order given, with what this mount keeps of them. Nobody is asked about
/// objects that its locks cover. `space`: blocks are as [`glimpse::glimpse`] has them; otherwise they may be
/// older.
pub(crate) async fn glimpse_each(objects: &[Placed], space: bool) -> Vec<R<ObjectAttr>> {
    let here = glimpse::known_here(objects);
    let unknown: Vec<usize> = glimpse::unknown(&here).collect();
    let asked = ask_each(objects, &unknown, space).await;
    glimpse::with_answers(here, asked.into_iter())
}

/// What the OSTs say of some of the objects, in the order of `which`.
async fn ask_each(objects: &[Placed], which: &[usize], space: bool) -> Vec<R<ObjectAttr>> {
    let mut by_ost: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for (n, &i) in which.iter().enumerate() {
        by_ost.entry(objects[i].osc.target.id.index).or_default().push(n);
    }
    let lists: Vec<&[usize]> = by_ost.values().flat_map(|ns| ns.chunks(GLIMPSES_MAX)).collect();
    let asked = lists.iter().map(|ns| -> BoxFutureOf<'_, R<Vec<Glimpsed>>> {
        let osc: &Arc<Osc> = &objects[which[ns[0]]].osc;
        let of = |n: &usize| (objects[which[*n]].id, objects[which[*n]].generation);
        let list: Vec<(ObjectId, u32)> = ns.iter().map(of).collect();
        Box::pin(async move { osc.glimpse_list(&list, space).await })
    });
    let mut out: Vec<R<ObjectAttr>> = vec![Ok(ObjectAttr::default()); which.len()];
    let mut properly = Vec::new();
    for (ns, answer) in lists.iter().zip(join_all(asked.collect()).await) {
        match answer {
            Err(e) => ns.iter().for_each(|n| out[*n] = Err(e)),
            Ok(all) => {
                for (&n, one) in ns.iter().zip(all) {
                    match one {
                        Glimpsed::Attr(a) => out[n] = Ok(a),
                        Glimpsed::Failed(e) => out[n] = Err(e),
                        Glimpsed::Locked => properly.push(n),
                    }
                }
            }
        }
    }
    let placed: Vec<Placed> = properly.iter().map(|n| objects[which[*n]].clone()).collect();
    for (n, attr) in properly.into_iter().zip(ask_properly(&placed).await) {
        out[n] = attr;
    }
    out
}

/// Asks by a glimpse, all of them at once; one by one if that is refused, for a refusal is of one of them.
async fn ask_properly(objects: &[Placed]) -> Vec<R<ObjectAttr>> {
    if objects.is_empty() {
        return Vec::new();
    }
    if let Ok(all) = glimpse::ask(objects).await {
        return all.into_iter().map(Ok).collect();
    }
    let mut out = Vec::with_capacity(objects.len());
    for some in objects.chunks(ONE_BY_ONE) {
        let one = |o: &Placed| -> BoxFutureOf<'_, R<ObjectAttr>> {
            let o = o.clone();
            Box::pin(async move {
                let mut attrs = o.osc.glimpse(o.generation, vec![o.id]).await?;
                Ok(attrs.pop().expect("one object was asked about"))
            })
        };
        out.extend(join_all(some.iter().map(one).collect()).await);
    }
    out
}
