//! readlink: the target of a symbolic link.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::{Fid, FileType};
use std::sync::Arc;
use wire::msg::readlink::Readlink;
use world::BoxFuture;

impl Fs {
    pub fn readlink(self: Arc<Self>, call: Call, fid: Fid) -> BoxFuture<R<Vec<u8>>> {
        Box::pin(async move {
            let work = async {
                if let Some(e) = self.lmv.known_entry(fid).filter(|e| e.attr.kind == FileType::Symlink) {
                    return Ok(e.symlink.clone());
                }
                Ok(self.lmv.mdc_of(fid).await?.target.call(self.cx.of(&call), Readlink { fid }).await?.target)
            };
            self.run(Verb::Readlink, work).await
        })
    }
}
