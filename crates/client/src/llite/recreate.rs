//! recreate: objects of a file that are lost with an OST become new, empty ones.

use crate::base::Detached;
use crate::stats::Verb;
use crate::{Admin, Call, R};
use model::{Fid, Layout};
use wire::msg::recreate::Recreate;
use world::BoxFuture;

impl Admin<'_> {
    /// What of a file is lost with an OST reads as a hole from now on, and can be written. The file's layout
    /// afterwards. `EPERM` for anybody but root, `EBUSY` if the OST is in use, `ENOSPC` if no other one takes
    /// the objects.
    pub fn recreate(self, call: Call, fid: Fid, ost: u16) -> BoxFuture<R<Layout>> {
        let fs = self.0.clone();
        Box::pin(async move {
            fs.cx.writable()?;
            let (here, ctx) = (fs.clone(), fs.cx.of(&call));
            let work = async move {
                let mdc = here.lmv.mdc_of(fid).await?;
                let changing = mdc.changing_inode(fid);
                let r = mdc.target.call(ctx, Recreate { fid, ost }).await;
                changing.done_with(&r);
                here.meta.opens.learn_layout(fid, r)
            };
            let work = Detached::plain(&fs.cx.world, "client-recreate", work);
            fs.run(Verb::Layout, work).await
        })
    }
}
