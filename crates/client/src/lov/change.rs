//! Truncate, fallocate and seek of files that are kept here: under locks of this mount.

use super::map::{self, Found};
use super::pin::StripeRequest;
use crate::base::Detached;
use crate::{BoxFutureOf, Fs, R};
use model::{Fid, Layout, ObjectAttr, Timestamp};
use std::sync::Arc;
use wire::msg::seek::Whence;
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
        let c = map::component(layout)?;
        let want = |stripe| StripeRequest::new(stripe, true, c.object_size_for(stripe, size), u64::MAX);
        let wants: Vec<StripeRequest> = (0..c.objects.len()).map(want).collect();
        let pins = self.pin_cut(&file, &wants).await?;
        let work = async move {
            let cuts = wants.iter().map(|w| -> BoxFutureOf<'_, R<ObjectAttr>> {
                let o = &file.objects[w.stripe];
                Box::pin(o.truncate(w.lock.start, inode_ctime, pins.of(w.stripe)))
            });
            let r: R<Vec<ObjectAttr>> = join_all(cuts.collect()).await.into_iter().collect();
            drop(pins);
            r
        };
        Detached::plain(&self.cx.world, "client-truncate", work).await.map(Some)
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
        let c = map::component(layout)?;
        let mut wants = Vec::new();
        let mut parts = Vec::new();
        for stripe in 0..c.objects.len() {
            let (start, n) = map::object_range(c, stripe, off, len);
            if n > 0 {
                // It may grow the object.
                wants.push(StripeRequest::new(stripe, true, start, u64::MAX));
                parts.push((stripe, start, n));
            }
        }
        let pins = file.pin_all(&self.cx.world, &wants).await?;
        let work = async move {
            let all = parts.iter().map(|&(stripe, start, n)| -> BoxFutureOf<'_, R<()>> {
                let o = &file.objects[stripe];
                Box::pin(o.fallocate((start, n), mode, inode_ctime, pins.of(stripe)))
            });
            let r: R<()> = join_all(all.collect()).await.into_iter().collect();
            drop(pins);
            r
        };
        Detached::plain(&self.cx.world, "client-fallocate", work).await.map(|()| true)
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
        let c = map::component(layout)?;
        let want = |stripe| StripeRequest::new(stripe, false, c.object_size_for(stripe, off), u64::MAX);
        let wants: Vec<StripeRequest> = (0..c.objects.len()).map(want).collect();
        let pins = file.pin_all(&self.cx.world, &wants).await?;
        // The servers know holes and data of what they have.
        file.flush().await?;
        let whence = if hole { Whence::Hole } else { Whence::Data };
        let mut asked: Vec<BoxFutureOf<'_, R<Found>>> = Vec::with_capacity(wants.len());
        for w in &wants {
            let (o, lock) = (&file.objects[w.stripe], pins.of(w.stripe));
            asked.push(Box::pin(async move {
                let r = o.seek(w.lock.start, whence, lock).await?;
                Ok(Found { offset: r.offset, object_size: r.object_size })
            }));
        }
        join_all(asked).await.into_iter().collect::<R<Vec<Found>>>().map(Some)
    }
}
