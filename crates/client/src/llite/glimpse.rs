//! glimpse: size, blocks and times of objects, from all their OSTs at once.

use crate::stats::Verb;
use crate::{Fs, R, lov};
use model::layout::LayoutObject;
use model::{Fid, ObjectAttr};
use std::sync::Arc;
use world::BoxFuture;

impl Fs {
    /// Size, blocks, times of each object, for `lfs` and fsck.
    pub fn glimpse(self: Arc<Self>, fid: Fid) -> BoxFuture<R<Vec<ObjectAttr>>> {
        Box::pin(async move {
            let work = async {
                let e = self.lmv.getattr_entry(self.cx.own(), fid).await?;
                let objects: Vec<_> = e.layout.iter().flat_map(|l| l.objects()).copied().collect();
                self.glimpse_objects(&objects).await
            };
            self.run(Verb::Layout, work).await
        })
    }

    /// Attributes of objects, in the order given, with what this mount keeps of them ([`lov::glimpse`]).
    pub(crate) async fn glimpse_objects(self: &Arc<Self>, objects: &[LayoutObject]) -> R<Vec<ObjectAttr>> {
        let mut placed = Vec::with_capacity(objects.len());
        for o in objects {
            placed.push((self.lmv.osc(o.ost).await?, o.id));
        }
        lov::glimpse(&placed).await
    }
}
