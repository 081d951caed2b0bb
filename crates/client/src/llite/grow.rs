//! grow: a file whose data lies with its inode gets objects, because more is to come than has room there.

use super::Data;
use crate::R;
use model::Fid;
use std::sync::Arc;
use wire::msg::grow::Grow;

impl Data {
    /// Harmless for a file that has objects. Whether the caller may write was decided when the file was
    /// opened.
    pub(crate) async fn grow(self: &Arc<Self>, fid: Fid) -> R<()> {
        self.grow_with(fid, true).await
    }

    /// As [`Fs::grow`], of a file without pages under the lease, in which none are filled meanwhile.
    pub(crate) async fn grow_swept(self: &Arc<Self>, fid: Fid) -> R<()> {
        self.grow_with(fid, false).await
    }

    async fn grow_with(self: &Arc<Self>, fid: Fid, sweep: bool) -> R<()> {
        let mdc = self.lmv.mdc_of(fid).await?;
        let change = mdc.changing_inode(fid);
        if sweep {
            // From here on no page is filled under the lease, which does not cover objects.
            self.lmv.sweep_small(fid).await;
        }
        let r = mdc.target.call(self.cx.own(), Grow { fid }).await;
        change.done_with(&r);
        self.meta.opens.learn(&r?);
        Ok(())
    }
}
