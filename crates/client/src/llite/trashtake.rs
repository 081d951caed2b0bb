//! trashtake: files get out of the trash: back to a directory, or for good.

use super::Admin;
use crate::stats::Verb;
use crate::{Call, R};
use model::{Errno, Fid};
use wire::msg::trashtake::{FILES_MAX, Trashtake, TrashtakeReply};
use world::BoxFuture;

impl Admin<'_> {
    /// As [`Trashtake`] says. What this mount keeps of the files and directories the server takes back first,
    /// as from any other. `EOPNOTSUPP` from a metadata server of an earlier version.
    pub fn trashtake(self, call: Call, msg: Trashtake) -> BoxFuture<R<TrashtakeReply>> {
        let fs = self.0.clone();
        Box::pin(async move {
            if msg.files.len() > FILES_MAX {
                return Err(Errno::E2BIG);
            }
            let work = async {
                let mdc = fs.lmv.mdc_of(Fid::ROOT).await?;
                assert!(msg.files.len() <= FILES_MAX, "no more files are asked for than a message has");
                mdc.target.call(fs.cx.of(&call), msg).await
            };
            fs.run(Verb::Trashtake, work).await
        })
    }
}
