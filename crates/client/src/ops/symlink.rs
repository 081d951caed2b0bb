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
            self.writable()?;
            let work = async {
                let mut msg = Symlink { parent, name, fid: Fid::NONE, target };
                if let Some(a) = self.symlink_here(&call, &msg).await? {
                    return Ok(a);
                }
                msg.fid = self.new_fid(parent).await?;
                let mdt = self.mdt_of(parent).await?;
                let change = self.making(&mdt, parent, &msg.name);
                let r = mdt.call(self.ctx(&call), msg.clone()).await;
                change.done_named(parent, &msg.name, &r);
                Ok(r?.attr)
            };
            self.run(Verb::Symlink, work).await
        })
    }
}
