//! components: components of a file come, go or get flags while it is in use.

use crate::base::Detached;
use crate::stats::Verb;
use crate::{Admin, Call, R};
use model::layout::ComponentChange;
use model::{Fid, Layout};
use wire::msg::components::Components;
use world::BoxFuture;

impl Admin<'_> {
    /// The file's layout afterwards. `EINVAL` and `EOPNOTSUPP` as [`ComponentChange::check`],
    /// [`Layout::append`], [`Layout::remove`] and [`Layout::mark`]; `EPERM` for who neither owns the file nor
    /// is root, `ENODATA` for a file without a layout, `EBUSY` if others do not let go of what is to go. Ends
    /// by itself if the caller stops waiting.
    pub fn change_components(self, call: Call, fid: Fid, change: ComponentChange) -> BoxFuture<R<Layout>> {
        let fs = self.0.clone();
        Box::pin(async move {
            fs.cx.writable()?;
            change.check()?;
            let (here, ctx) = (fs.clone(), fs.cx.of(&call));
            let work = async move {
                let mdc = here.lmv.mdc_of(fid).await?;
                let changing = mdc.changing_inode(fid);
                let r = mdc.target.call(ctx, Components { fid, change }).await;
                changing.done_with(&r);
                here.meta.opens.learn_layout(fid, r)
            };
            let work = Detached::plain(&fs.cx.world, "client-components", work);
            fs.run(Verb::Layout, work).await
        })
    }
}
