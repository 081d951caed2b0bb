//! Has servers commit what they answered: a file's objects, and names.

use super::Data;
use crate::mdc::Mdc;
use crate::{BoxFutureOf, Call, R};
use model::{Layout, Set, TargetId};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::msg::sync::Sync;
use world::future::join_all;

impl Data {
    /// One message to each OST that holds an object of the file, but for those that are `safe`.
    pub(super) async fn commit_objects(
        self: &Arc<Self>,
        call: &Call,
        layout: Option<Arc<Layout>>,
        safe: &Set<u16>,
    ) -> R<()> {
        let Some(layout) = layout else { return Ok(()) };
        let wanted = layout.objects().filter(|o| !safe.contains(&o.ost));
        let osts: BTreeMap<u16, _> = wanted.map(|o| (o.ost, o.id)).collect();
        let mut all: Vec<BoxFutureOf<'_, R<()>>> = Vec::new();
        for (ost, id) in osts {
            let (fs, ctx) = (self, self.data_ctx(call, &layout));
            all.push(Box::pin(async move {
                fs.lmv.osc(ost).await?.target.call(ctx, Sync { object: Some(id) }).await
            }));
        }
        join_all(all).await.into_iter().collect()
    }

    /// Has the metadata servers commit what this client did, if there is anything.
    pub(crate) async fn commit_names(&self) -> R<()> {
        self.commit_mdts(None, &Set::default()).await
    }

    /// As [`Data::commit_names`]; `home` commits in any case. `told`: the targets that have all that was
    /// executed here on disk, and everything that they had executed before.
    pub(super) async fn commit_mdts(&self, home: Option<TargetId>, told: &Set<TargetId>) -> R<()> {
        // What was executed here goes there before this request, as before any other.
        let wanted = |m: &Arc<Mdc>| {
            let t = &m.target;
            let owes = m.has_pending() || t.import.uncommitted().0 > 0 || home == Some(t.id);
            owes && !told.contains(&t.id)
        };
        let calls = self.lmv.mdcs().into_iter().filter(wanted).map(|m| -> BoxFutureOf<'_, R<()>> {
            let ctx = self.cx.own();
            Box::pin(async move { m.target.call(ctx, Sync { object: None }).await })
        });
        join_all(calls.collect()).await.into_iter().collect()
    }
}
