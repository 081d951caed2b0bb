//! ostfiles: the files that have objects on an OST, with their names (`lfs find --ost`).

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::{Fid, ObjectId};
use std::sync::Arc;
use wire::msg::ostfiles::{Ostfiles, OstfilesReply};
use world::BoxFuture;

impl Fs {
    /// Some files with objects on an OST behind object `after`, paths below the mount's root. `EPERM` for anybody but root.
    pub fn ostfiles(
        self: Arc<Self>,
        call: Call,
        ost: u16,
        after: Option<ObjectId>,
    ) -> BoxFuture<R<OstfilesReply>> {
        Box::pin(async move {
            let work = async {
                let msg = Ostfiles { ost, after, root: self.root() };
                self.lmv.mdc_of(Fid::ROOT).await?.target.call(self.cx.of(&call), msg).await
            };
            self.run(Verb::Ostfiles, work).await
        })
    }
}
