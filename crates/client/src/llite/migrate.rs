//! migrate: a file's data moves to new objects while it is in use.

use crate::base::Detached;
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::{Fid, Layout, LayoutSpec};
use std::sync::Arc;
use wire::msg::migrate::Migrate;
use world::BoxFuture;

impl Fs {
    /// The file's new layout, as `spec` asks for it; what that does not say is as with a new file. `EPERM` for who neither owns
    /// the file nor is root, `ENODATA` for a file without objects, `EBUSY` if others do not let go of it. Ends by itself if
    /// the caller stops waiting.
    pub fn migrate(self: Arc<Self>, call: Call, fid: Fid, spec: LayoutSpec) -> BoxFuture<R<Layout>> {
        Box::pin(async move {
            self.cx.writable()?;
            spec.check()?;
            let (fs, ctx) = (self.clone(), self.cx.of(&call));
            let work = async move {
                let mdc = fs.lmv.mdc_of(fid).await?;
                let change = mdc.changing_inode(fid);
                let r = mdc.target.call(ctx, Migrate { fid, spec }).await;
                change.done_with(&r);
                match &r {
                    Ok(e) => fs.meta.opens.learn(e),
                    // Perhaps it was moved all the same.
                    Err(_) => fs.meta.opens.forget_layout(fid),
                }
                r?.layout.ok_or(model::Errno::EIO)
            };
            let work = Detached::plain(&self.cx.world, "client-migrate", work);
            self.run(Verb::Layout, work).await
        })
    }
}
