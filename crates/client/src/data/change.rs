//! Truncate, fallocate and seek of files that are kept here: under locks of this mount.

use super::file::File;
use super::pin::{Pinned, Pins, Want};
use crate::detach::Detached;
use crate::ops::BoxFutureOf;
use crate::stripe::{self, Found};
use crate::{Fs, R};
use bytes::Bytes;
use model::planted::{self, Bug};
use model::{Fid, Layout, ObjectAttr, Timestamp};
use std::sync::Arc;
use wire::msg::fallocate::Fallocate;
use wire::msg::seek::{Seek, Whence};
use wire::msg::truncate::Truncate;
use world::future::join_all;

impl Fs {
    /// Cuts or extends the objects so that the file has `size` bytes; their attributes afterwards. `None`: nothing is
    /// kept of such files.
    pub(crate) async fn cut_data(
        self: &Arc<Self>,
        fid: Fid,
        layout: &Arc<Layout>,
        inode_ctime: Timestamp,
        size: u64,
    ) -> R<Option<Vec<ObjectAttr>>> {
        let Some(file) = self.data_file(fid, layout).await? else { return Ok(None) };
        let c = stripe::component(layout)?;
        let want = |stripe| Want::new(stripe, true, c.object_size_for(stripe, size), u64::MAX);
        let wants: Vec<Want> = (0..c.objects.len()).map(want).collect();
        let pins = self.pin_cut(&file, &wants).await?;
        let fs = self.clone();
        let work = async move {
            let cuts = wants
                .iter()
                .map(|w| {
                    let cut = fs.cut_object(&file, &pins, w.stripe, w.start, inode_ctime);
                    Box::pin(cut) as BoxFutureOf<'_, R<ObjectAttr>>
                })
                .collect();
            let r: R<Vec<ObjectAttr>> = join_all(cuts).await.into_iter().collect();
            drop(pins);
            r
        };
        Detached::plain(self, "client-truncate", work).await.map(Some)
    }

    pub(super) async fn pin_all(self: &Arc<Self>, file: &Arc<File>, wants: &[Want]) -> R<Pins> {
        match self.pin(file, wants, true).await? {
            Pinned::Held(p) => Ok(p),
            Pinned::Contended => unreachable!("asked for with force"),
        }
    }

    async fn cut_object(
        self: &Arc<Self>,
        file: &Arc<File>,
        pins: &Pins,
        stripe: usize,
        size: u64,
        inode_ctime: Timestamp,
    ) -> R<ObjectAttr> {
        let lock = pins.of(stripe);
        let claim = self.claim(file, stripe, size, u64::MAX, lock).await;
        let object = file.lock()[stripe].id;
        let msg = Truncate { object, size, file: file.fid, inode_ctime, keep_times: true, lock };
        let r = claim.target.call_now(self.locked_ctx(file), msg, Bytes::new()).await;
        let mut objs = file.lock();
        let o = &mut objs[stripe];
        o.taint(size, u64::MAX);
        match &r {
            Ok(r) if o.locks.iter().any(|l| l.id == lock) => {
                if !planted::on(Bug::DirtyKeptBehindTruncate) {
                    let gone = o.segs.cut(size, u64::MAX);
                    o.target.data.give_back(gone);
                }
                o.learn(&r.reply);
                // What is kept lies below the new size, which the server has by now.
                (o.size, o.sure) = (r.reply.size.max(o.segs.end()), true);
            }
            _ => {
                o.segs.drop_clean(size, u64::MAX);
                o.sure = false;
            }
        }
        self.data.account(o, self.world.now());
        let now = o.attr_now();
        drop(objs);
        drop(claim);
        r.map(|_| now)
    }

    /// fallocate of a file that may be kept here; false: nothing is kept of such files.
    pub(crate) async fn fallocate_data(
        self: &Arc<Self>,
        fid: Fid,
        layout: &Arc<Layout>,
        inode_ctime: Timestamp,
        mode: u32,
        (off, len): (u64, u64),
    ) -> R<bool> {
        let Some(file) = self.data_file(fid, layout).await? else { return Ok(false) };
        let c = stripe::component(layout)?;
        let mut wants = Vec::new();
        let mut parts = Vec::new();
        for stripe in 0..c.objects.len() {
            let (start, n) = stripe::object_range(c, stripe, off, len);
            if n > 0 {
                // It may grow the object.
                wants.push(Want::new(stripe, true, start, u64::MAX));
                parts.push((stripe, start, n));
            }
        }
        let pins = self.pin_all(&file, &wants).await?;
        let fs = self.clone();
        let work = async move {
            let all = parts
                .iter()
                .map(|&(stripe, start, n)| {
                    let part = fs.fallocate_object(&file, &pins, stripe, (start, n), mode, inode_ctime);
                    Box::pin(part) as BoxFutureOf<'_, R<()>>
                })
                .collect();
            let r: R<()> = join_all(all).await.into_iter().collect();
            drop(pins);
            r
        };
        Detached::plain(self, "client-fallocate", work).await.map(|()| true)
    }

    async fn fallocate_object(
        self: &Arc<Self>,
        file: &Arc<File>,
        pins: &Pins,
        stripe: usize,
        (offset, len): (u64, u64),
        mode: u32,
        inode_ctime: Timestamp,
    ) -> R<()> {
        let (lock, end) = (pins.of(stripe), offset + len);
        self.flush_range(file, stripe, offset, end).await?;
        let claim = self.claim(file, stripe, offset, end, lock).await;
        let object = file.lock()[stripe].id;
        let msg = Fallocate { object, mode, offset, len, file: file.fid, inode_ctime, lock };
        let r = claim.target.call_now(self.locked_ctx(file), msg, Bytes::new()).await;
        let mut objs = file.lock();
        let o = &mut objs[stripe];
        o.taint(offset, end);
        o.segs.drop_clean(offset, end);
        match &r {
            Ok(r) => {
                o.learn(&r.reply);
                o.size = o.size.max(r.reply.size);
            }
            Err(_) => o.sure = false,
        }
        self.data.account(o, self.world.now());
        drop(objs);
        drop(claim);
        r.map(|_| ())
    }

    /// What each object of the file says of the next data or hole; `None`: nothing is kept of such files.
    pub(crate) async fn seek_data(
        self: &Arc<Self>,
        fid: Fid,
        layout: &Arc<Layout>,
        off: u64,
        hole: bool,
    ) -> R<Option<Vec<Found>>> {
        let Some(file) = self.data_file(fid, layout).await? else { return Ok(None) };
        let c = stripe::component(layout)?;
        let want = |stripe| Want::new(stripe, false, c.object_size_for(stripe, off), u64::MAX);
        let wants: Vec<Want> = (0..c.objects.len()).map(want).collect();
        let pins = self.pin_all(&file, &wants).await?;
        // The servers know holes and data of what they have.
        self.flush_file(&file).await?;
        let whence = if hole { Whence::Hole } else { Whence::Data };
        let mut asked: Vec<BoxFutureOf<'_, R<Found>>> = Vec::with_capacity(wants.len());
        for w in &wants {
            let (object, target) = {
                let objs = file.lock();
                (objs[w.stripe].id, objs[w.stripe].target.clone())
            };
            let msg = Seek { object, offset: w.start, whence, lock: pins.of(w.stripe) };
            let ctx = self.locked_ctx(&file);
            asked.push(Box::pin(async move {
                let r = target.call_now(ctx, msg, Bytes::new()).await?.reply;
                Ok(Found { offset: r.offset, object_size: r.object_size })
            }));
        }
        join_all(asked).await.into_iter().collect::<R<Vec<Found>>>().map(Some)
    }
}
