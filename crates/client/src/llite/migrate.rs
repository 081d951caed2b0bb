//! migrate: a file's data moves to new objects while it is in use.

use crate::base::Detached;
use crate::stats::Verb;
use crate::{Admin, Call, R};
use model::{Fid, Layout, LayoutSpec};
use wire::msg::migrate::Migrate;
use world::BoxFuture;

impl Admin<'_> {
    /// The file's new layout, as `spec` asks for it; what that does not say is as with a new file. `EPERM`
    /// for who neither owns the file nor is root, `ENODATA` for a file without objects, `EBUSY` if others do
    /// not let go of it. Ends by itself if the caller stops waiting.
    pub fn migrate(self, call: Call, fid: Fid, spec: LayoutSpec) -> BoxFuture<R<Layout>> {
        let fs = self.0.clone();
        Box::pin(async move {
            fs.cx.writable()?;
            spec.check()?;
            let (here, ctx) = (fs.clone(), fs.cx.of(&call));
            let work = async move {
                let mdc = here.lmv.mdc_of(fid).await?;
                let change = mdc.changing_inode(fid);
                let r = mdc.target.call(ctx, Migrate { fid, spec }).await;
                change.done_with(&r);
                match &r {
                    Ok(e) => here.meta.opens.learn(e),
                    // Perhaps it was moved all the same.
                    Err(_) => here.meta.opens.forget_layout(fid),
                }
                r?.layout.ok_or(model::Errno::EIO)
            };
            let work = Detached::plain(&fs.cx.world, "client-migrate", work);
            fs.run(Verb::Layout, work).await
        })
    }
}
