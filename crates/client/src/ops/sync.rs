//! sync: fsync of a file: its objects; the metadata server's answers are durable already.

use super::glimpse::BoxFutureOf;
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::Fid;
use std::sync::Arc;
use wire::msg::sync::Sync;
use world::future::join_all;

impl Fs {
    pub async fn fsync(self: Arc<Self>, call: Call, fid: Fid) -> R<()> {
        let work = async {
            let Some(layout) = self.file_state(fid).await?.layout else { return Ok(()) };
            let mut all: Vec<BoxFutureOf<'_, R<()>>> = Vec::new();
            for o in layout.objects() {
                let (fs, ctx) = (&self, self.data_ctx(&call, &layout));
                all.push(Box::pin(async move {
                    fs.ost(o.ost).await?.call(ctx, Sync { object: Some(o.id) }).await
                }));
            }
            join_all(all).await.into_iter().collect()
        };
        self.run(Verb::Fsync, work).await
    }
}
