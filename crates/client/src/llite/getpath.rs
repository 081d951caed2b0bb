//! getpath: the names of a file, from its back-pointers (`lfs fid2path`).

use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::Fid;
use std::sync::Arc;
use wire::msg::getpath::Getpath;
use world::BoxFuture;

/// Paths asked for: more than any sane file has, and their bytes stay below a message's limit.
const PATHS_MAX: u32 = 1000;

impl Fs {
    /// Paths below the mount's root, and (parent, name) of each link.
    #[allow(clippy::type_complexity)]
    pub fn getpath(
        self: Arc<Self>,
        call: Call,
        fid: Fid,
    ) -> BoxFuture<R<(Vec<Vec<u8>>, Vec<(Fid, Vec<u8>)>)>> {
        Box::pin(async move {
            let work = async {
                let msg = Getpath { fid, root: self.root(), max_paths: PATHS_MAX };
                let r = self.lmv.mdc_of(fid).await?.target.call(self.cx.of(&call), msg).await?;
                Ok((r.paths, r.links))
            };
            self.run(Verb::Getpath, work).await
        })
    }
}
