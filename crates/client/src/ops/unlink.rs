//! unlink: removes a name that is no directory.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::Fid;
use std::sync::Arc;
use wire::msg::unlink::Unlink;

impl Fs {
    pub async fn unlink(self: Arc<Self>, call: Call, parent: Fid, name: Vec<u8>) -> R<()> {
        self.writable()?;
        let work = async { self.mdt_of(parent).await?.call(self.ctx(&call), Unlink { parent, name }).await };
        self.run(Verb::Unlink, work).await
    }
}
