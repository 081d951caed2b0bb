//! truncate: the objects' part. The metadata server's setattr came before (right to write, set-id bits,
//! times).

use super::Data;
use super::getattr::merged;
use crate::BoxFutureOf;
use crate::base::Detached;
use crate::lov::map;
use crate::mdc::{FileState, owner_of};
use crate::{Call, R};
use model::{Attr, Errno, Layout, ObjectAttr, SetAttr};
use std::sync::Arc;
use wire::msg::enqueue::LockMode;
use wire::msg::lookup::Entry;
use wire::msg::truncate::Truncate;
use world::future::join_all;

impl Data {
    /// Cuts or extends the file's objects so that it has `size` bytes; returns its attributes afterwards.
    /// Other mounts see all of it or nothing: a file of several stripes is locked meanwhile.
    pub(crate) async fn cut(self: &Arc<Self>, call: &Call, e: &Entry, size: u64) -> R<Attr> {
        let mut e = e.clone();
        let mut tries = 0;
        loop {
            match self.cut_where_it_lies(call, &e, size).await {
                Err(refusal) => {
                    e = self.follow_layout(e.attr.fid, refusal, &mut tries).await?;
                    if e.layout.as_ref().is_some_and(|l| l.mdt_component().is_some()) {
                        // It came to lie with its inode after the setattr, which found objects.
                        let set = SetAttr { size: Some(size), ..SetAttr::default() };
                        let ctx = self.cx.own_for(&self.cx.job_of(call));
                        e = self.setattr_entry(ctx, e.attr.fid, set).await?;
                    }
                }
                done => return done,
            }
        }
    }

    /// As [`Data::cut`], by the layout that `e` has.
    async fn cut_where_it_lies(self: &Arc<Self>, call: &Call, e: &Entry, size: u64) -> R<Attr> {
        let fid = e.attr.fid;
        let mut e = e.clone();
        if e.layout.as_ref().is_some_and(|l| l.mdt_component().is_some()) {
            return Ok(e.attr); // the setattr cut what lies with the inode
        }
        if e.layout.as_ref().is_none_or(|l| !l.has_objects()) {
            if size == 0 {
                return Ok(e.attr);
            }
            let (_, layout) = self.file_state_for_write(fid).await?;
            e.layout = Some((*layout).clone());
        }
        let mut layout = Arc::new(e.layout.clone().expect("it has one by now"));
        if size > 0 {
            // The file ends with a byte that has a place.
            (_, layout) =
                self.layouts.with_objects(fid, (FileState::of(&e), layout), (size - 1, size)).await?;
            e.layout = Some((*layout).clone());
        }
        let kept = match self.data_file(fid, &layout).await? {
            Some(file) => {
                e.layout = Some((*file.layout).clone());
                file.cut(call, owner_of(&e.attr), size).await.map(Some)
            }
            None => Ok(None),
        };
        match kept {
            Ok(Some(Some(attrs))) => return merged(&e, &attrs),
            Ok(Some(None)) => return self.full_attr(&e).await,
            Ok(None) => {}
            // There are no locks on lost objects, but truncated to nothing they begin anew.
            Err(Errno::ELOST) if size == 0 => {}
            Err(e) => return Err(e),
        }
        map::supported(&layout)?;
        if map::is_one(&layout) {
            self.cut_objects(call, &e, &layout, size).await?;
        } else {
            let lock = self.locks.extent_lock(fid, LockMode::Write, 0, u64::MAX).await?;
            let (fs, call, e, layout) = (self.clone(), call.clone(), e.clone(), layout.clone());
            let work = async move {
                let r = fs.cut_objects(&call, &e, &layout, size).await;
                drop(lock);
                r
            };
            Detached::plain(&self.cx.world, "client-truncate", work).await?;
        }
        let attrs = self.glimpse_layout(&layout).await?;
        merged(&Entry { layout: Some((*layout).clone()), ..e }, &attrs)
    }

    async fn cut_objects(self: &Arc<Self>, call: &Call, e: &Entry, layout: &Layout, size: u64) -> R<()> {
        let owner = owner_of(&e.attr);
        let mut cuts: Vec<BoxFutureOf<'_, R<ObjectAttr>>> = Vec::with_capacity(layout.object_count());
        for (_, c, stripe) in map::parts(layout).filter(|(_, c, _)| c.end >= size) {
            let o = c.objects[stripe];
            let msg = Truncate {
                object: o.id,
                size: c.object_size_for(stripe, size),
                file: e.attr.fid,
                inode_ctime: e.attr.ctime,
                keep_times: true,
                lock: 0,
            };
            let ctx = self.data_ctx(call, layout).naming(&owner);
            cuts.push(Box::pin(async move { self.lmv.osc(o.ost).await?.target.call(ctx, msg).await }));
        }
        join_all(cuts).await.into_iter().try_for_each(|r| r.map(drop))
    }
}
