//! link: one more name for a file, also for an open unnamed one.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::{Attr, Fid};
use std::sync::Arc;
use wire::msg::link::Link;
use world::BoxFuture;

impl Fs {
    pub fn link(self: Arc<Self>, call: Call, fid: Fid, parent: Fid, name: Vec<u8>) -> BoxFuture<R<Attr>> {
        Box::pin(async move {
            let work = async {
                let mdc = self.lmv.mdc_of(parent).await?;
                let change = mdc.linking(fid, parent, &name);
                let r = mdc.target.call(self.cx.of(&call), Link { fid, parent, name: name.clone() }).await;
                change.done_named(parent, &name, &r);
                self.data.attr_for_name(&r?).await
            };
            self.run(Verb::Link, work).await
        })
    }
}
