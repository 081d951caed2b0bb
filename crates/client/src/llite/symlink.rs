//! symlink: a symbolic link.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::{Attr, Fid};
use std::sync::Arc;
use wire::msg::symlink::Symlink;
use world::BoxFuture;

impl Fs {
    pub fn symlink(
        self: Arc<Self>,
        call: Call,
        parent: Fid,
        name: Vec<u8>,
        target: Vec<u8>,
    ) -> BoxFuture<R<Attr>> {
        Box::pin(async move {
            let work = async {
                let mut msg = Symlink { parent, name, fid: Fid::NONE, target };
                if let Some(a) = self.lmv.mdc_of(parent).await?.symlink_here(&call, &msg).await? {
                    return Ok(a);
                }
                msg.fid = self.lmv.mdc_of(parent).await?.fids.next().await?;
                self.names.make_name(&call, parent, &msg.name.clone(), msg).await
            };
            self.run(Verb::Symlink, work).await
        })
    }
}
