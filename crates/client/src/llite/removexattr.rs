//! removexattr: drops one extended attribute.

use super::Data;
use crate::mdc::Outcome;
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::Fid;
use std::sync::Arc;
use wire::msg::removexattr::Removexattr;
use world::BoxFuture;

impl Fs {
    pub fn removexattr(self: Arc<Self>, call: Call, fid: Fid, name: Vec<u8>) -> BoxFuture<R<()>> {
        Box::pin(async move { self.run(Verb::Removexattr, self.data.drop_xattr(&call, fid, name)).await })
    }
}

impl Data {
    pub(crate) async fn drop_xattr(self: &Arc<Self>, call: &Call, fid: Fid, name: Vec<u8>) -> R<()> {
        let mdc = self.lmv.mdc_of(fid).await?;
        let change = mdc.changing_inode(fid);
        let r = mdc.target.call(self.cx.of(call), Removexattr { fid, name }).await;
        change.done(Outcome::default(), r.err());
        r
    }
}
