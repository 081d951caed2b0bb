//! getxattr: one extended attribute, ACLs included.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::Fid;
use std::sync::Arc;
use wire::msg::getxattr::Getxattr;

impl Fs {
    pub async fn getxattr(self: Arc<Self>, call: Call, fid: Fid, name: Vec<u8>) -> R<Vec<u8>> {
        let work =
            async { Ok(self.mdt_of(fid).await?.call(self.ctx(&call), Getxattr { fid, name }).await?.value) };
        self.run(Verb::Getxattr, work).await
    }
}
