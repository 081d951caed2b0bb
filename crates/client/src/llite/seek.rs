//! seek: SEEK_DATA and SEEK_HOLE, from what all objects of a file say.

use super::Data;
use super::opens::following_layout;
use crate::BoxFutureOf;
use crate::lov::map;
use crate::lov::map::Found;
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::limits::FILE_SIZE_MAX_BYTES;
use model::{Errno, Fid, Layout};
use std::sync::Arc;
use wire::msg::enqueue::LockMode;
use wire::msg::seek::{Seek, Whence};
use world::BoxFuture;
use world::future::join_all;

impl Fs {
    /// SEEK_DATA (`hole` false) or SEEK_HOLE; ENXIO behind the end.
    pub fn seek(self: Arc<Self>, call: Call, fid: Fid, off: u64, hole: bool) -> BoxFuture<R<u64>> {
        Box::pin(async move {
            let work = async {
                if off >= FILE_SIZE_MAX_BYTES {
                    return Err(Errno::ENXIO);
                }
                following_layout!(self.data, fid, by_known_layout(&self.data, &call, fid, off, hole))
            };
            self.run(Verb::Seek, work).await
        })
    }
}

impl Data {
    async fn seek_objects(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        layout: &Layout,
        off: u64,
        hole: bool,
    ) -> R<u64> {
        map::supported(layout)?;
        let whence = if hole { Whence::Hole } else { Whence::Data };
        let mut asked: Vec<BoxFutureOf<'_, R<Found>>> = Vec::new();
        for ((_, c, stripe), o) in map::parts(layout).zip(map::places(layout, fid)) {
            let msg = Seek { object: o.id, offset: c.object_size_for(stripe, off), whence, lock: 0 };
            let ctx = self.data_ctx(call, layout);
            asked.push(Box::pin(async move {
                let r = self.home_of(&o).await?.call(ctx, msg).await?;
                Ok(Found { offset: r.offset, object_size: r.object_size })
            }));
        }
        let found: Vec<Found> = join_all(asked).await.into_iter().collect::<R<_>>()?;
        map::merge_seek(layout, off, hole, &found)
    }
}

/// As [`Fs::seek`], by the layout that is known.
async fn by_known_layout(data: &Arc<Data>, call: &Call, fid: Fid, off: u64, hole: bool) -> R<u64> {
    let mut tries = 0;
    let layout = loop {
        let Some(layout) = data.file_state(fid).await?.layout else { return Err(Errno::ENXIO) };
        if layout.mdt_component().is_none() {
            break layout;
        }
        match data.seek_objects(call, fid, &layout, off, hole).await {
            Err(e) if e != Errno::ENXIO => data.relayout(fid, e, &mut tries).await?,
            found => return found,
        }
    };
    if let Some(file) = data.data_file(fid, &layout).await? {
        let found = file.seek(call, off, hole).await?;
        return map::merge_seek(&file.layout, off, hole, &found);
    }
    if map::is_one(&layout) {
        return data.seek_objects(call, fid, &layout, off, hole).await;
    }
    let _lock = data.locks.extent_lock(fid, LockMode::Read, off, u64::MAX).await?;
    data.seek_objects(call, fid, &layout, off, hole).await
}
