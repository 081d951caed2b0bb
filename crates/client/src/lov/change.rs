//! Truncate, fallocate and seek of files that are kept here: under locks of this mount.

use super::file::File;
use super::map::{self, Found};
use super::pin::ObjectRequest;
use crate::base::Detached;
use crate::{BoxFutureOf, R};
use model::layout::Component;
use model::{ObjectAttr, Timestamp};
use std::sync::Arc;
use wire::msg::fallocate::FALLOC_PUNCH_HOLE;
use wire::msg::seek::Whence;
use world::future::join_all;

impl File {
    /// Cuts or extends the objects so that the file has `size` bytes; the attributes of all of them
    /// afterwards, `None` if it did not concern all.
    pub(crate) async fn cut(
        self: &Arc<Self>,
        inode_ctime: Timestamp,
        size: u64,
    ) -> R<Option<Vec<ObjectAttr>>> {
        let wants = self.wants_of_cut(size)?;
        let (file, pins) = (self.clone(), self.pin_cut(&wants).await?);
        self.confirm().await?;
        let work = async move {
            let cuts = wants.iter().map(|w| -> BoxFutureOf<'_, R<ObjectAttr>> {
                let o = &file.objects[w.number];
                Box::pin(o.truncate(w.lock.start, inode_ctime, pins.of(w.number)))
            });
            let r: R<Vec<ObjectAttr>> = join_all(cuts.collect()).await.into_iter().collect();
            drop(pins);
            r
        };
        let attrs = Detached::plain(&self.cx.world, "client-truncate", work).await?;
        Ok((attrs.len() == self.objects.len()).then_some(attrs))
    }

    /// The parts of objects that a cut to `size` concerns. Components that end before have what they have.
    /// `EUNINIT` if the file is to end where there is no object, `ENODATA` if it is to end behind the layout.
    fn wants_of_cut(&self, size: u64) -> R<Vec<ObjectRequest>> {
        map::supported(&self.layout)?;
        self.layout.check_range(size.saturating_sub(1), size)?;
        let behind = |(_, c, _): &(usize, &Component, usize)| c.end >= size;
        let want = |(number, c, stripe): (usize, &Component, usize)| {
            ObjectRequest::new(number, true, c.object_size_for(stripe, size), u64::MAX)
        };
        Ok(map::parts(&self.layout).filter(behind).map(want).collect())
    }

    /// fallocate(2) of a range of the file.
    pub(crate) async fn fallocate(
        self: &Arc<Self>,
        inode_ctime: Timestamp,
        mode: u32,
        (off, len): (u64, u64),
    ) -> R<()> {
        map::supported(&self.layout)?;
        if mode & FALLOC_PUNCH_HOLE == 0 {
            self.layout.check_range(off, off + len)?;
        }
        let mut wants = Vec::new();
        let mut parts = Vec::new();
        for (number, c, stripe) in map::parts(&self.layout) {
            let (start, n) = c.object_range(stripe, off, len);
            if n > 0 {
                // It may grow the object.
                wants.push(ObjectRequest::new(number, true, start, u64::MAX));
                parts.push((number, start, n));
            }
        }
        let (file, pins) = (self.clone(), self.pin_all(&self.cx.world, &wants).await?);
        let work = async move {
            let all = parts.iter().map(|&(number, start, n)| -> BoxFutureOf<'_, R<()>> {
                let o = &file.objects[number];
                Box::pin(o.fallocate((start, n), mode, inode_ctime, pins.of(number)))
            });
            let r: R<()> = join_all(all.collect()).await.into_iter().collect();
            drop(pins);
            r
        };
        Detached::plain(&self.cx.world, "client-fallocate", work).await
    }

    /// What each object of the file says of the next data or hole.
    pub(crate) async fn seek(self: &Arc<Self>, off: u64, hole: bool) -> R<Vec<Found>> {
        map::supported(&self.layout)?;
        let want = |(number, c, stripe): (usize, &Component, usize)| {
            ObjectRequest::new(number, false, c.object_size_for(stripe, off), u64::MAX)
        };
        let wants: Vec<ObjectRequest> = map::parts(&self.layout).map(want).collect();
        let pins = self.pin_all(&self.cx.world, &wants).await?;
        self.confirm().await?;
        // The servers know holes and data of what they have.
        self.flush().await?;
        let whence = if hole { Whence::Hole } else { Whence::Data };
        let mut asked: Vec<BoxFutureOf<'_, R<Found>>> = Vec::with_capacity(wants.len());
        for w in &wants {
            let (o, lock) = (&self.objects[w.number], pins.of(w.number));
            asked.push(Box::pin(async move {
                let r = o.seek(w.lock.start, whence, lock).await?;
                Ok(Found { offset: r.offset, object_size: r.object_size })
            }));
        }
        join_all(asked).await.into_iter().collect()
    }
}
