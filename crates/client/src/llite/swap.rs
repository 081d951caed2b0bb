//! swap: two files have each other's data from now on.

use crate::base::Detached;
use crate::stats::Verb;
use crate::{Admin, Call, R};
use model::{Errno, Fid};
use wire::msg::swap::Swap;
use world::BoxFuture;

impl Admin<'_> {
    /// Two files swap what is in them, while they are in use; each keeps its FID, owner and attributes, and
    /// with `keep_times` its mtime. `EINVAL` for what is no regular file, or twice the same; `EPERM` for who
    /// neither owns both nor is root, and for files of different owners; `EXDEV` if two metadata servers have
    /// them; `EBUSY` if others do not let go of them. Ends by itself if the caller stops waiting.
    pub fn swap(self, call: Call, (fid, other): (Fid, Fid), keep_times: bool) -> BoxFuture<R<()>> {
        let fs = self.0.clone();
        Box::pin(async move {
            fs.cx.writable()?;
            if fs.meta.locate.mdt_of(fid) != fs.meta.locate.mdt_of(other) {
                return Err(Errno::EXDEV);
            }
            let (here, ctx) = (fs.clone(), fs.cx.of(&call));
            let work = async move {
                let mdc = here.lmv.mdc_of(fid).await?;
                let changing = [mdc.changing_inode(fid), mdc.changing_inode(other)];
                let r = mdc.target.call(ctx, Swap { fid, other, keep_times }).await;
                changing.into_iter().for_each(|c| c.done_with(&r));
                here.meta.opens.forget_layout(other);
                here.meta.opens.learn_layout(fid, r).map(drop)
            };
            // What has not begun is not done if the caller goes.
            let begun = async {
                fs.cx.writable()?;
                Detached::plain(&fs.cx.world, "client-swap", work).await
            };
            fs.run(Verb::Layout, begun).await
        })
    }

    /// A file whose data lies with its inode gets objects: only such are swapped. Harmless for others.
    /// `EPERM` for who neither owns it nor is root.
    pub fn grow_for(self, call: Call, fid: Fid) -> BoxFuture<R<()>> {
        let fs = self.0.clone();
        Box::pin(async move {
            fs.cx.writable()?;
            let uid = fs.clone().getattr(call.clone(), fid).await?.uid;
            if !model::perm::owns(&call.cred, uid) {
                return Err(Errno::EPERM);
            }
            fs.cx.writable()?;
            fs.data.grow(fid).await
        })
    }
}
