//! glimpse: size, blocks and times of objects, from all their OSTs at once.

use super::Admin;
use super::Data;
use crate::stats::Verb;
use crate::{R, lov};
use model::layout::LayoutObject;
use model::{Fid, Layout, ObjectAttr};
use std::sync::Arc;
use wire::msg::lookup::Entry;
use world::BoxFuture;

impl Admin<'_> {
    /// Size, blocks, times of each object, for `lfs` and fsck.
    pub fn glimpse(self, fid: Fid) -> BoxFuture<R<Vec<ObjectAttr>>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async {
                let mut e = (*fs.lmv.getattr_entry(fs.cx.own(), fid).await?).clone();
                fs.data.object_attrs(&mut e).await
            };
            fs.run(Verb::Layout, work).await
        })
    }
}

impl Data {
    /// Attributes of a file's objects, in the order of its layout, which is `e`'s or, if that was refused,
    /// the one that `e` has afterwards.
    pub(crate) async fn object_attrs(self: &Arc<Self>, e: &mut Entry) -> R<Vec<ObjectAttr>> {
        let mut tries = 0;
        loop {
            let asked = match &e.layout {
                Some(l) => self.glimpse_layout(l).await,
                None => Ok(Vec::new()),
            };
            match asked {
                Err(refusal) => *e = self.follow_layout(e.attr.fid, refusal, &mut tries).await?,
                attrs => return attrs,
            }
        }
    }

    /// Attributes of the objects of a layout, in its order.
    pub(crate) async fn glimpse_layout(self: &Arc<Self>, l: &Layout) -> R<Vec<ObjectAttr>> {
        self.glimpse_objects(&objects_of(l)).await
    }

    /// Attributes of objects of layouts of these generations, in the order given, with what this mount keeps
    /// of them ([`lov::glimpse`]).
    pub(crate) async fn glimpse_objects(
        self: &Arc<Self>,
        objects: &[(u32, LayoutObject)],
    ) -> R<Vec<ObjectAttr>> {
        lov::glimpse(&placed(self, objects).await?).await
    }
}

/// The objects of a layout, in its order, with its generation.
pub(crate) fn objects_of(l: &Layout) -> Vec<(u32, LayoutObject)> {
    l.objects().map(|o| (l.generation, *o)).collect()
}

/// Objects of layouts of these generations, with where they are asked for.
pub(crate) async fn placed(data: &Data, objects: &[(u32, LayoutObject)]) -> R<Vec<lov::Placed>> {
    let mut placed = Vec::with_capacity(objects.len());
    for &(generation, o) in objects {
        placed.push(lov::Placed { osc: data.lmv.osc(o.ost).await?, id: o.id, generation });
    }
    Ok(placed)
}
