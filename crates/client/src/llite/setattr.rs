//! setattr: modes, owners, times; and truncate, which cuts the objects after the metadata server agreed.

use super::Data;
use super::getattr::{data_layout, merged};
use super::glimpse::{objects_of, placed};
use crate::lov;
use crate::mdc::Edit;
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::limits::FILE_SIZE_MAX_BYTES;
use model::planted::{self, Bug};
use model::{Attr, Errno, Fid, FileType, ObjectAttr, SetAttr};
use std::sync::Arc;
use wire::RequestContext;
use wire::msg::lookup::Entry;
use wire::msg::setattr::Setattr;
use world::BoxFuture;

/// How far apart clocks of hosts are at most, where it matters only for what it costs.
const CLOCKS_APART_MAX_NS: i64 = 60_000_000_000;

impl Fs {
    /// Includes truncate: cuts the objects under an exclusive lock where several stripes are concerned.
    pub fn setattr(self: Arc<Self>, call: Call, fid: Fid, set: SetAttr) -> BoxFuture<R<Attr>> {
        Box::pin(async move {
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
        Ok(here_or_there(self, &ctx, fid, set).await?.0)
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
        let (mut e, is_here) = here_or_there(self, &ctx, fid, set.clone()).await?;
        if data_layout(&e).is_none() {
            return Ok(e.attr);
        }
        if set.mtime.is_none() {
            let attrs = self.object_attrs(&mut e).await?;
            return merged(&e, &attrs);
        }
        let times =
            SetAttr { atime: set.atime, mtime: set.mtime, by_handle: set.by_handle, ..SetAttr::default() };
        let attrs = set_behind_writes(self, ctx, times, &mut e, is_here).await?;
        merged(&e, &attrs)
    }
}

/// By this mount, if it may, or else by the server; whether it was here.
async fn here_or_there(data: &Arc<Data>, ctx: &RequestContext, fid: Fid, set: SetAttr) -> R<(Entry, bool)> {
    match data.lmv.mdc_of(fid).await?.setattr_here(ctx, fid, &set).await {
        Some(e) => Ok((e, true)),
        None => Ok((setattr_there(data, ctx.clone(), fid, set).await?, false)),
    }
}

/// By the server, which says what it made of the caller's clock.
async fn setattr_there(data: &Arc<Data>, ctx: RequestContext, fid: Fid, set: SetAttr) -> R<Entry> {
    let mut tries = 0;
    loop {
        let mdc = data.lmv.mdc_of(fid).await?;
        let change = mdc.changing_inode(fid);
        let r = mdc.target.call(ctx.clone(), Setattr { fid, set: set.clone() }).await;
        change.done_edit(&r, set.size.map_or(Edit::Nothing, Edit::Size));
        match r {
            Ok(e) => {
                data.meta.opens.learn(&e);
                return Ok(e);
            }
            // A new size for which there is no room with the inode.
            Err(e) => data.relayout(fid, e, &mut tries).await?,
        }
    }
}

/// A write stamped by a clock ahead of that of who sets times now would win over them: sees to it that they
/// are later than all that was written. Attributes of the objects.
async fn set_behind_writes(
    data: &Arc<Data>,
    ctx: RequestContext,
    times: SetAttr,
    e: &mut Entry,
    is_here: bool,
) -> R<Vec<ObjectAttr>> {
    let certain = match &e.layout {
        Some(l) => lov::outdate_unsent(&placed(data, &objects_of(l)).await?),
        None => true,
    };
    let attrs = data.object_attrs(e).await?;
    let newest = attrs.iter().map(|a| a.ctime).max().unwrap_or_default();
    let long_ago = newest.plus_nanos(CLOCKS_APART_MAX_NS) < e.attr.mtime_stamp;
    if planted::on(Bug::TimesByClocks) {
        return Ok(attrs);
    }
    // What was set here gets its stamp when the server is told.
    if is_here && !certain && !long_ago || newest > e.attr.mtime_stamp {
        let client_time = ctx.client_time.max(newest.plus_nanos(1));
        let ctx = RequestContext { client_time, ..ctx }.behind_write(newest);
        *e = setattr_there(data, ctx, e.attr.fid, times).await?;
    }
    Ok(attrs)
}
