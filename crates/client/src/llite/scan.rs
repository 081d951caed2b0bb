//! scan: a page of the files below a directory that may fit some conditions (`lfs find`, `nacre report`).

use super::Admin;
use crate::stats::Verb;
use crate::{Call, R};
use model::Fid;
use wire::msg::scan::{Cursor, Scan, ScanReply, Test};
use world::BoxFuture;

impl Admin<'_> {
    /// Files below `root` behind a cursor, as far as the caller could find them by walking. `EACCES` if the
    /// caller may not read and search `root`, `E2BIG` for too many conditions.
    pub fn scan(
        self,
        call: Call,
        root: Fid,
        after: Option<Cursor>,
        tests: Vec<Test>,
    ) -> BoxFuture<R<ScanReply>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async {
                let msg = Scan { root, after, tests };
                fs.lmv.mdc_of(Fid::ROOT).await?.target.call(fs.cx.of(&call), msg).await
            };
            fs.run(Verb::Scan, work).await
        })
    }
}
