//! fallocate: reserves, zeroes or punches a range, in all objects that hold a part of it.

use super::Data;
use super::opens::following_layout;
use super::privileges::Change;
use crate::BoxFutureOf;
use crate::base::Detached;
use crate::base::shares::limits_for;
use crate::lov::map;
use crate::mdc::FileState;
use crate::mdc::Outcome;
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::limits::FILE_SIZE_MAX_BYTES;
use model::{Errno, Fid, Layout};
use std::sync::Arc;
use wire::msg::enqueue::LockMode;
use wire::msg::fallocate::{FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE, Fallocate};
use world::BoxFuture;
use world::future::join_all;

impl Fs {
    /// Modes of fallocate(2): 0, keep size, punch (with keep size), zero; `EOPNOTSUPP` for others. Without
    /// keep size the file grows to the end of the range: the object that holds the range's last byte does.
    pub fn fallocate(
        self: Arc<Self>,
        call: Call,
        fid: Fid,
        mode: u32,
        off: u64,
        len: u64,
    ) -> BoxFuture<R<()>> {
        Box::pin(async move {
            check(mode, off, len)?;
            let work = async {
                let change = if mode & !FALLOC_KEEP_SIZE == 0 { Change::Write } else { Change::Remove };
                self.data.drop_privileges(fid, change, !call.cred.is_root()).await?;
                following_layout!(self.data, fid, by_known_layout(&self.data, &call, fid, mode, off, len))
            };
            self.run(Verb::Fallocate, work).await
        })
    }
}

impl Data {
    #[allow(clippy::too_many_arguments)]
    async fn fallocate_objects(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        state: &FileState,
        layout: &Layout,
        mode: u32,
        off: u64,
        len: u64,
    ) -> R<()> {
        map::supported(layout)?;
        let mut parts: Vec<BoxFutureOf<'_, R<()>>> = Vec::new();
        for ((_, c, stripe), o) in map::parts(layout).zip(map::places(layout, fid)) {
            let (offset, len) = c.object_range(stripe, off, len);
            if len == 0 {
                continue;
            }
            let msg =
                Fallocate { object: o.id, mode, offset, len, file: fid, inode_ctime: state.ctime, lock: 0 };
            let known = limits_for(call.cred.is_root());
            parts.push(Box::pin(async move {
                let home = self.home_of(&o).await?;
                let change = self.changing_data(&o).await?;
                let wanted = (state.owner, home.id.index, len);
                let send = || {
                    let ctx = self.data_ctx(call, layout).naming(&state.named_owner()).with_limits(known);
                    home.call(ctx, msg.clone())
                };
                let r = self.cx.shares.with_room(wanted, send).await;
                if let Some(change) = change {
                    change.done(Outcome::default(), r.as_ref().err().copied());
                }
                r.map(|_| ())
            }));
        }
        join_all(parts).await.into_iter().collect()
    }
}

/// As [`Fs::fallocate`], by the layout that is known.
async fn by_known_layout(data: &Arc<Data>, call: &Call, fid: Fid, mode: u32, off: u64, len: u64) -> R<()> {
    let mut tries = 0;
    let (state, layout) = loop {
        let (state, layout) = data.file_state_for_write(fid).await?;
        if layout.mdt_component().is_none() {
            break (state, layout);
        }
        match data.fallocate_objects(call, fid, &state, &layout, mode, off, len).await {
            Err(e) => data.relayout(fid, e, &mut tries).await?,
            done => return done,
        }
    };
    let (state, layout) = match mode & FALLOC_PUNCH_HOLE {
        0 => data.layouts.with_objects(fid, (state, layout), (off, off + len)).await?,
        _ => (state, layout),
    };
    if let Some(file) = data.data_file(fid, &layout).await? {
        return file.fallocate(call, state.named_owner(), mode, (off, len)).await;
    }
    if map::is_one(&layout) {
        return data.fallocate_objects(call, fid, &state, &layout, mode, off, len).await;
    }
    let lock = data.locks.extent_lock(fid, LockMode::Write, off, off + (len - 1)).await?;
    let (llite, call) = (data.clone(), call.clone());
    let work = async move {
        let r = llite.fallocate_objects(&call, fid, &state, &layout, mode, off, len).await;
        drop(lock);
        r
    };
    Detached::plain(&data.cx.world, "client-fallocate", work).await
}

fn check(mode: u32, off: u64, len: u64) -> R<()> {
    let punch = mode & FALLOC_PUNCH_HOLE != 0;
    let zero = mode & FALLOC_ZERO_RANGE != 0;
    let unknown = mode & !(FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE | FALLOC_ZERO_RANGE) != 0;
    if unknown || (punch && zero) || (punch && mode & FALLOC_KEEP_SIZE == 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    if len == 0 {
        return Err(Errno::EINVAL);
    }
    match off.checked_add(len) {
        Some(end) if end <= FILE_SIZE_MAX_BYTES => Ok(()),
        _ => Err(Errno::EFBIG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_checked() {
        for ok in [0, 1, 3, 0x10, 0x11] {
            assert_eq!(check(ok, 0, 1), Ok(()), "{ok:#x}");
        }
        for bad in [2, 8, 0x20, 0x40, 0x13, 0x12] {
            assert_eq!(check(bad, 0, 1), Err(Errno::EOPNOTSUPP), "{bad:#x}");
        }
        assert_eq!(check(0, 0, 0), Err(Errno::EINVAL));
        assert_eq!(check(0, FILE_SIZE_MAX_BYTES, 1), Err(Errno::EFBIG));
        assert_eq!(check(0, u64::MAX, 2), Err(Errno::EFBIG));
    }
}
