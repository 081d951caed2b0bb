//! recreate: objects of a file that are lost with an OST become new, empty ones.

use super::setlayout::change_layout;
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
            change_layout(fs, &call, fid, Recreate { fid, ost }).await
        })
    }
}
