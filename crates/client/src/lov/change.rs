//! Truncate, fallocate and seek of files that are kept here: under locks of this mount.

use super::file::File;
use super::map::{self, Found};
use super::pin::StripeRequest;
use crate::base::Detached;
use crate::{BoxFutureOf, R};
use model::{ObjectAttr, Timestamp};
use std::sync::Arc;
use wire::msg::seek::Whence;
use world::future::join_all;

impl File {
    /// Cuts or extends the objects so that the file has `size` bytes; their attributes afterwards.
    pub(crate) async fn cut(self: &Arc<Self>, inode_ctime: Timestamp, size: u64) -> R<Vec<ObjectAttr>> {
        let c = map::component(&self.layout)?;
        let want = |stripe| StripeRequest::new(stripe, true, c.object_size_for(stripe, size), u64::MAX);
        let wants: Vec<StripeRequest> = (0..c.objects.len()).map(want).collect();
        let (file, pins) = (self.clone(), self.pin_cut(&wants).await?);
        let work = async move {
            let cuts = wants.iter().map(|w| -> BoxFutureOf<'_, R<ObjectAttr>> {
                let o = &file.objects[w.stripe];
                Box::pin(o.truncate(w.lock.start, inode_ctime, pins.of(w.stripe)))
            });
            let r: R<Vec<ObjectAttr>> = join_all(cuts.collect()).await.into_iter().collect();
            drop(pins);
            r
        };
        Detached::plain(&self.cx.world, "client-truncate", work).await
    }

    /// fallocate(2) of a range of the file.
    pub(crate) async fn fallocate(
        self: &Arc<Self>,
        inode_ctime: Timestamp,
        mode: u32,
        (off, len): (u64, u64),
    ) -> R<()> {
        let c = map::component(&self.layout)?;
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
        let (file, pins) = (self.clone(), self.pin_all(&self.cx.world, &wants).await?);
        let work = async move {
            let all = parts.iter().map(|&(stripe, start, n)| -> BoxFutureOf<'_, R<()>> {
                let o = &file.objects[stripe];
                Box::pin(o.fallocate((start, n), mode, inode_ctime, pins.of(stripe)))
            });
            let r: R<()> = join_all(all.collect()).await.into_iter().collect();
            drop(pins);
            r
        };
        Detached::plain(&self.cx.world, "client-fallocate", work).await
    }

    /// What each object of the file says of the next data or hole.
    pub(crate) async fn seek(self: &Arc<Self>, off: u64, hole: bool) -> R<Vec<Found>> {
        let c = map::component(&self.layout)?;
        let want = |stripe| StripeRequest::new(stripe, false, c.object_size_for(stripe, off), u64::MAX);
        let wants: Vec<StripeRequest> = (0..c.objects.len()).map(want).collect();
        let pins = self.pin_all(&self.cx.world, &wants).await?;
        // The servers know holes and data of what they have.
        self.flush().await?;
        let whence = if hole { Whence::Hole } else { Whence::Data };
        let mut asked: Vec<BoxFutureOf<'_, R<Found>>> = Vec::with_capacity(wants.len());
        for w in &wants {
            let (o, lock) = (&self.objects[w.stripe], pins.of(w.stripe));
            asked.push(Box::pin(async move {
                let r = o.seek(w.lock.start, whence, lock).await?;
                Ok(Found { offset: r.offset, object_size: r.object_size })
            }));
        }
        join_all(asked).await.into_iter().collect()
    }
}
