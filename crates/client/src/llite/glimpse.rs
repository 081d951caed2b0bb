//! glimpse: size, blocks and times of objects, from all their OSTs at once.

use super::Admin;
use super::Data;
use crate::stats::Verb;
use crate::{R, lov};
use model::layout::LayoutObject;
use model::{Fid, ObjectAttr};
use std::sync::Arc;
use world::BoxFuture;

impl Admin<'_> {
    /// Size, blocks, times of each object, for `lfs` and fsck.
    pub fn glimpse(self, fid: Fid) -> BoxFuture<R<Vec<ObjectAttr>>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async {
                let e = fs.lmv.getattr_entry(fs.cx.own(), fid).await?;
                let objects: Vec<_> = e.layout.iter().flat_map(|l| l.objects()).copied().collect();
                fs.data.glimpse_objects(&objects).await
            };
            fs.run(Verb::Layout, work).await
        })
    }
}

impl Data {
    /// Attributes of objects, in the order given, with what this mount keeps of them ([`lov::glimpse`]).
    pub(crate) async fn glimpse_objects(self: &Arc<Self>, objects: &[LayoutObject]) -> R<Vec<ObjectAttr>> {
        let mut placed = Vec::with_capacity(objects.len());
        for o in objects {
            placed.push((self.lmv.osc(o.ost).await?, o.id));
        }
        lov::glimpse(&placed).await
    }
}
