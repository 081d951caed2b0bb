//! readlink: the target of a symbolic link.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::Fid;
use std::sync::Arc;
use wire::msg::readlink::Readlink;

impl Fs {
    pub async fn readlink(self: Arc<Self>, call: Call, fid: Fid) -> R<Vec<u8>> {
        let work =
            async { Ok(self.mdt_of(fid).await?.call(self.ctx(&call), Readlink { fid }).await?.target) };
        self.run(Verb::Readlink, work).await
    }
}
