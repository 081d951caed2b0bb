//! ostfiles: the files that have objects on an OST, with their names (`lfs find --ost`).

use super::Admin;
use crate::stats::Verb;
use crate::{Call, R};
use model::{Fid, ObjectId};
use wire::msg::ostfiles::{Ostfiles, OstfilesReply};
use world::BoxFuture;

impl Admin<'_> {
    /// Some files with objects on an OST behind object `after`, paths below the mount's root. `EPERM` for
    /// anybody but root.
    pub fn ostfiles(self, call: Call, ost: u16, after: Option<ObjectId>) -> BoxFuture<R<OstfilesReply>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async {
                let msg = Ostfiles { ost, after, root: fs.root() };
                fs.lmv.mdc_of(Fid::ROOT).await?.target.call(fs.cx.of(&call), msg).await
            };
            fs.run(Verb::Ostfiles, work).await
        })
    }
}
