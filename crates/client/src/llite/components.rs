//! components: components of a file come, go or get flags while it is in use.

use super::setlayout::change_layout;
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
            change_layout(fs, &call, fid, Components { fid, change }).await
        })
    }
}
