//! trashlist: a page of what lies in the trash, with the sizes that object servers know.

use super::Admin;
use super::scan::sizes;
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::{Fid, Timestamp};
use wire::msg::scan::Found;
use wire::msg::trashlist::{Trashlist, TrashlistReply};
use world::BoxFuture;

impl Admin<'_> {
    /// What was removed below `under` and the caller may see, behind a place. With it: the places of files on
    /// the page whose size could not be had. `EOPNOTSUPP` from a metadata server of an earlier version.
    #[allow(clippy::type_complexity)]
    pub fn trashlist(
        self,
        call: Call,
        under: Fid,
        after: Option<(Timestamp, Fid)>,
    ) -> BoxFuture<R<(TrashlistReply, Vec<u32>)>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async {
                let mut page = page(&fs, &call, Trashlist { under, after }).await?;
                let bare = |t: &wire::msg::trashlist::Trashed| Found {
                    attr: t.attr.clone(),
                    layout: t.layout.clone(),
                    names: Vec::new(),
                };
                let mut files: Vec<Found> = page.files.iter().map(bare).collect();
                let unknown = sizes(&fs, &call, &mut files).await;
                for (t, f) in page.files.iter_mut().zip(files) {
                    t.attr = f.attr;
                }
                Ok((page, unknown))
            };
            fs.run(Verb::Trashlist, work).await
        })
    }

    /// As [`Admin::trashlist`], as the metadata server knows it: what only objects know is 0.
    pub fn trashlist_without_sizes(
        self,
        call: Call,
        under: Fid,
        after: Option<(Timestamp, Fid)>,
    ) -> BoxFuture<R<TrashlistReply>> {
        let fs = self.0.clone();
        Box::pin(async move { fs.run(Verb::Trashlist, page(&fs, &call, Trashlist { under, after })).await })
    }
}

async fn page(fs: &Fs, call: &Call, m: Trashlist) -> R<TrashlistReply> {
    fs.lmv.mdc_of(m.under).await?.target.call(fs.cx.of(call), m).await
}
