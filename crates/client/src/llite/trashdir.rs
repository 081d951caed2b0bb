//! trashdir: what loses its last name in a directory goes into the trash from now on, or does not any more.

use super::Admin;
use crate::stats::Verb;
use crate::{Call, R};
use model::Fid;
use wire::msg::trashdir::Trashdir;
use world::BoxFuture;

impl Admin<'_> {
    /// As [`Trashdir`] says; `EOPNOTSUPP` from a metadata server of an earlier version.
    pub fn trashdir(self, call: Call, fid: Fid, on: bool) -> BoxFuture<R<()>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async {
                let mdc = fs.lmv.mdc_of(fid).await?;
                mdc.target.call(fs.cx.of(&call), Trashdir { fid, on }).await
            };
            fs.run(Verb::Trashdir, work).await
        })
    }
}
