//! rmdir: removes an empty directory.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::Fid;
use std::sync::Arc;
use wire::msg::rmdir::Rmdir;

impl Fs {
    pub async fn rmdir(self: Arc<Self>, call: Call, parent: Fid, name: Vec<u8>) -> R<()> {
        self.writable()?;
        let work = async { self.mdt_of(parent).await?.call(self.ctx(&call), Rmdir { parent, name }).await };
        self.run(Verb::Rmdir, work).await
    }
}
