//! getpath: the names of a file, from its back-pointers (`lfs fid2path`).

use super::Admin;
use crate::stats::Verb;
use crate::{Call, R};
use model::Fid;
use wire::msg::getpath::Getpath;
use world::BoxFuture;

/// Paths asked for: more than any sane file has, and their bytes stay below a message's limit.
const PATHS_MAX: u32 = 1000;

impl Admin<'_> {
    /// Paths below the mount's root, and (parent, name) of each link.
    #[allow(clippy::type_complexity)]
    pub fn getpath(self, call: Call, fid: Fid) -> BoxFuture<R<(Vec<Vec<u8>>, Vec<(Fid, Vec<u8>)>)>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async {
                let msg = Getpath { fid, root: fs.root(), max_paths: PATHS_MAX };
                let r = fs.lmv.mdc_of(fid).await?.target.call(fs.cx.of(&call), msg).await?;
                Ok((r.paths, r.links))
            };
            fs.run(Verb::Getpath, work).await
        })
    }
}
