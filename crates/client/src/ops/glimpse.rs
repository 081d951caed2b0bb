//! glimpse: size, blocks and times of objects, from all their OSTs at once.

use crate::stats::Verb;
use crate::{BoxFutureOf, Fs, R};
use model::layout::LayoutObject;
use model::{Errno, Fid, ObjectAttr, ObjectId};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::msg::glimpse::Glimpse;
use world::BoxFuture;
use world::future::join_all;

/// Objects in one message.
const BATCH: usize = 1000;

impl Fs {
    /// Size, blocks, times of each object, for `lfs` and fsck.
    pub fn glimpse(self: Arc<Self>, fid: Fid) -> BoxFuture<R<Vec<ObjectAttr>>> {
        Box::pin(async move {
            let work = async {
                let e = self.getattr_entry(self.cx.own(), fid).await?;
                let objects: Vec<_> = e.layout.iter().flat_map(|l| l.objects()).copied().collect();
                self.glimpse_objects(&objects).await
            };
            self.run(Verb::Layout, work).await
        })
    }

    /// Attributes of objects, in the order given, with what this mount keeps of them. Nobody is asked about objects
    /// that its locks cover.
    pub(crate) async fn glimpse_objects(self: &Arc<Self>, objects: &[LayoutObject]) -> R<Vec<ObjectAttr>> {
        let known: Vec<Option<ObjectAttr>> = objects.iter().map(|o| self.attr_if_locked(o.id)).collect();
        // As it is before the question: what is written meanwhile may be in neither.
        let kept: Vec<_> = objects.iter().map(|o| self.kept_of(o.id)).collect();
        let unknown: Vec<LayoutObject> =
            objects.iter().zip(&known).filter(|(_, k)| k.is_none()).map(|(o, _)| *o).collect();
        let mut asked =
            if unknown.is_empty() { Vec::new() } else { self.ask_objects(&unknown).await? }.into_iter();
        let mut out = Vec::with_capacity(objects.len());
        for (known, kept) in known.into_iter().zip(kept) {
            out.push(known.unwrap_or_else(|| {
                let mut a = asked.next().expect("one for each that was asked for");
                if let Some(k) = kept {
                    a.size = a.size.max(k.size);
                    if k.ctime > a.ctime {
                        (a.mtime, a.ctime) = (k.mtime, k.ctime);
                    }
                }
                a
            }));
        }
        Ok(out)
    }

    /// Attributes of objects as their servers know them, in the order given. One message for each OST and [`BATCH`] objects.
    pub(crate) async fn ask_objects(self: &Arc<Self>, objects: &[LayoutObject]) -> R<Vec<ObjectAttr>> {
        if let [o] = objects {
            return self.glimpse_one_ost(o.ost, vec![o.id]).await;
        }
        let mut by_ost: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (i, o) in objects.iter().enumerate() {
            by_ost.entry(o.ost).or_default().push(i);
        }
        let batches: Vec<(u16, &[usize])> =
            by_ost.iter().flat_map(|(&ost, ix)| ix.chunks(BATCH).map(move |c| (ost, c))).collect();
        let asked = batches
            .iter()
            .map(|&(ost, ix)| {
                let ids = ix.iter().map(|&i| objects[i].id).collect();
                Box::pin(self.glimpse_one_ost(ost, ids)) as BoxFutureOf<'_, R<Vec<ObjectAttr>>>
            })
            .collect();
        let mut out = vec![ObjectAttr::default(); objects.len()];
        for ((_, ix), r) in batches.iter().zip(join_all(asked).await) {
            for (&i, a) in ix.iter().zip(r?) {
                out[i] = a;
            }
        }
        Ok(out)
    }

    async fn glimpse_one_ost(self: &Arc<Self>, ost: u16, objects: Vec<ObjectId>) -> R<Vec<ObjectAttr>> {
        let want = objects.len();
        let r = self.osc(ost).await?.target.call(self.cx.own(), Glimpse { objects }).await?;
        if r.attrs.len() != want {
            tracing::error!("OST{ost:04x} answered for {} objects of {want}", r.attrs.len());
            return Err(Errno::EPROTO);
        }
        Ok(r.attrs)
    }
}
