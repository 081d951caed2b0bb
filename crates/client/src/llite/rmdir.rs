//! rmdir: removes an empty directory.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::Fid;
use std::sync::Arc;
use wire::msg::rmdir::Rmdir;
use world::BoxFuture;

impl Fs {
    pub fn rmdir(self: Arc<Self>, call: Call, parent: Fid, name: Vec<u8>) -> BoxFuture<R<()>> {
        Box::pin(async move {
            let work = async {
                let msg = Rmdir { parent, name: name.clone() };
                if self.lmv.mdc_of(parent).await?.rmdir_here(&call, &msg).await {
                    return Ok(());
                }
                self.names.remove_name(&call, parent, name, msg).await
            };
            let r = self.run(Verb::Rmdir, work).await;
            self.cx.shares.removed();
            r
        })
    }
}
