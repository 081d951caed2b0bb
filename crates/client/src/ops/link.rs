//! link: one more name for a file, also for an open unnamed one.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::{Attr, Fid};
use std::sync::Arc;
use wire::msg::link::Link;

impl Fs {
    pub async fn link(self: Arc<Self>, call: Call, fid: Fid, parent: Fid, name: Vec<u8>) -> R<Attr> {
        self.writable()?;
        let work = async {
            let e = self.mdt_of(parent).await?.call(self.ctx(&call), Link { fid, parent, name }).await?;
            self.attr_for_name(&e).await
        };
        self.run(Verb::Link, work).await
    }
}
