//! setattr: modes, owners, times; and truncate, which cuts the objects after the metadata server agreed.

use super::Data;
use super::getattr::{data_layout, merged};
use crate::mdc::Edit;
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::limits::FILE_SIZE_MAX_BYTES;
use model::{Attr, Errno, Fid, FileType, SetAttr};
use std::sync::Arc;
use wire::RequestContext;
use wire::msg::lookup::Entry;
use wire::msg::setattr::Setattr;
use world::BoxFuture;

impl Fs {
    /// Includes truncate: cuts the objects under an exclusive lock where several stripes are concerned.
    pub fn setattr(self: Arc<Self>, call: Call, fid: Fid, set: SetAttr) -> BoxFuture<R<Attr>> {
        Box::pin(async move {
            self.cx.writable()?;
            let verb = if set.size.is_some() { Verb::Truncate } else { Verb::Setattr };
            let work = async {
                match set.size {
                    Some(size) if size > FILE_SIZE_MAX_BYTES => Err(Errno::EFBIG),
                    Some(size) => self.data.truncate(&call, fid, set, size).await,
                    None => self.data.set_without_size(&call, fid, set).await,
                }
            };
            self.run(verb, work).await
        })
    }
}

impl Data {
    pub(crate) async fn setattr_entry(
        self: &Arc<Self>,
        ctx: RequestContext,
        fid: Fid,
        set: SetAttr,
    ) -> R<Entry> {
        if let Some(e) = self.lmv.mdc_of(fid).await?.setattr_here(&ctx, fid, &set).await {
            return Ok(e);
        }
        let mut tries = 0;
        loop {
            let mdc = self.lmv.mdc_of(fid).await?;
            let change = mdc.changing_inode(fid);
            let r = mdc.target.call(ctx.clone(), Setattr { fid, set: set.clone() }).await;
            change.done_edit(&r, set.size.map_or(Edit::Nothing, Edit::Size));
            match r {
                Ok(e) => {
                    self.meta.opens.learn(&e);
                    return Ok(e);
                }
                // A new size for which there is no room with the inode.
                Err(e) => self.relayout(fid, e, &mut tries).await?,
            }
        }
    }

    async fn truncate(self: &Arc<Self>, call: &Call, fid: Fid, set: SetAttr, size: u64) -> R<Attr> {
        let e = self.setattr_entry(self.cx.of(call), fid, set).await?;
        if e.attr.kind != FileType::Regular {
            return self.full_attr(&e).await;
        }
        self.cut(call, &e, size).await
    }

    async fn set_without_size(self: &Arc<Self>, call: &Call, fid: Fid, set: SetAttr) -> R<Attr> {
        let ctx = self.cx.of(call);
        let mut e = self.setattr_entry(ctx.clone(), fid, set.clone()).await?;
        if data_layout(&e).is_none() {
            return Ok(e.attr);
        }
        let attrs = self.object_attrs(&mut e).await?;
        let newest = attrs.iter().map(|a| a.ctime).max().unwrap_or_default();
        if set.mtime.is_some() && newest > e.attr.mtime_stamp {
            // A write stamped by a clock ahead of this one's would win over the time set now: set it again,
            // later.
            let times = SetAttr {
                atime: set.atime,
                mtime: set.mtime,
                by_handle: set.by_handle,
                ..SetAttr::default()
            };
            e = self
                .setattr_entry(RequestContext { client_time: newest.plus_nanos(1), ..ctx }, fid, times)
                .await?;
        }
        merged(&e, &attrs)
    }
}
