//! mkdir: a directory.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::{Attr, Fid};
use std::sync::Arc;
use wire::msg::mkdir::Mkdir;
use world::BoxFuture;

impl Fs {
    pub fn mkdir(self: Arc<Self>, call: Call, parent: Fid, name: Vec<u8>, mode: u32) -> BoxFuture<R<Attr>> {
        Box::pin(async move {
            let work = async {
                let fid = Fid::NONE;
                let mut msg = Mkdir { parent, name, fid, mode: mode & 0o7777, umask: call.umask };
                if let Some(a) = self.lmv.mdc_of(parent).await?.mkdir_here(&call, &msg).await? {
                    return Ok(a);
                }
                msg.fid = self.lmv.mdc_of(parent).await?.fids.next().await?;
                self.names.make_name(&call, parent, &msg.name.clone(), msg).await
            };
            self.run(Verb::Mkdir, work).await
        })
    }
}
