//! removexattr: drops one extended attribute.

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::Fid;
use std::sync::Arc;
use wire::msg::removexattr::Removexattr;

impl Fs {
    pub async fn removexattr(self: Arc<Self>, call: Call, fid: Fid, name: Vec<u8>) -> R<()> {
        self.writable()?;
        let work = async { self.mdt_of(fid).await?.call(self.ctx(&call), Removexattr { fid, name }).await };
        self.run(Verb::Removexattr, work).await
    }
}
