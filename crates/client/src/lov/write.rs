//! Writes: into what this mount keeps, under locks; through to the server where that promises no room.

use super::file::File;
use super::map::{self, Piece};
use super::pin::{Pinned, Pins, StripeRequest};
use crate::base::Detached;
use crate::mdc::FileState;
use crate::ops::Small;
use crate::osc::{Osc, WriteMeta};
use crate::{BoxFutureOf, Call, Fs, R};
use bytes::Bytes;
use model::limits::{FILE_SIZE_MAX_BYTES, RPC_BULK_MAX_BYTES};
use model::planted::{self, Bug};
use model::{Errno, Fid, Layout, Timestamp};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use world::future::join_all;

impl Fs {
    /// Writes all of `data`, or fails; returns where. Kept here if possible.
    pub(crate) async fn write_data(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        off: u64,
        append: bool,
        data: Bytes,
    ) -> R<u64> {
        assert!(!data.is_empty() && data.len() <= RPC_BULK_MAX_BYTES, "bounded by the callers");
        if !append {
            check_end(off, data.len())?;
        }
        let range = if append { (0, u64::MAX) } else { (off, off + data.len() as u64) };
        let beside = self.write_beside(fid, range.0, range.1, append);
        let (state, layout) = match self.write_small(call, fid, off, append, &data).await? {
            Small::Done(at) => {
                if append {
                    // Not where the kernel thinks that it is.
                    self.sweep_small(fid).await;
                }
                return Ok(at);
            }
            Small::Objects(state, layout) => (state, layout),
        };
        let Some(file) = self.data_file(fid, &layout).await? else {
            return self.write_uncached(call, fid, (state, layout), off, append, data).await;
        };
        // Another append must not find the same end.
        let turn = if append { Some(file.appends.clone().lock_owned().await) } else { None };
        loop {
            let wants =
                if append { whole(&layout, true) } else { wants(&layout, off, data.len() as u64, true)? };
            if wants.len() > 1 && planted::on(Bug::NoExtentLock) {
                return self.write_uncached(call, fid, (state, layout), off, append, data).await;
            }
            let stripes: Vec<usize> = wants.iter().map(|w| w.stripe).collect();
            file.room(&stripes, data.len() as u64).await;
            let pins = match file.pin(&self.cx.world, &wants, wants.len() > 1).await? {
                Pinned::Held(p) => p,
                Pinned::Contended => {
                    return self.write_uncached(call, fid, (state, layout), off, append, data).await;
                }
            };
            let at = if append {
                match self.end_of(&file, &pins).await? {
                    Some(end) => end,
                    None => continue,
                }
            } else {
                off
            };
            check_end(at, data.len())?;
            if let Some(b) = &beside {
                let _clearing = pins.clearing();
                self.clear_beside(&file, b, at, at + data.len() as u64).await;
            }
            let pieces = map::pieces(&layout, fid, at, data.len(), RPC_BULK_MAX_BYTES);
            let meta = write_meta(&state, self.cx.world.wall());
            if !self.take_grants(&file, &pieces).await {
                let (fs, file2) = (self.clone(), file.clone());
                let work = async move {
                    let r = fs.write_through(&file2, &pins, at, data, meta).await;
                    drop((pins, turn, beside));
                    r
                };
                Detached::plain(&self.cx.world, "client-write", work).await?;
                return Ok(at);
            }
            if self.commit(&file, &pins, &pieces, &data, meta) {
                return Ok(at);
            }
        }
    }

    /// Puts bytes into what is kept. False: a lock was lost meanwhile.
    pub(crate) fn commit(
        self: &Arc<Self>,
        file: &Arc<File>,
        pins: &Pins,
        pieces: &[Piece],
        data: &Bytes,
        meta: WriteMeta,
    ) -> bool {
        let (mut full, mut too_much) = (Vec::new(), Vec::new());
        {
            let mut objs = file.lock();
            if !pins.valid(&objs) {
                for p in pieces {
                    file.objects[p.stripe].osc.give_back_grant(p.len as u64);
                }
                return false;
            }
            for p in pieces {
                let (object, o) = (&file.objects[p.stripe], &mut objs[p.stripe]);
                let (mut at, mut replaced) = (p.object_offset, 0);
                for &(from, len) in &p.segments {
                    replaced += o.segs.write(at, data.slice(from..from + len));
                    at += len as u64;
                }
                o.wrote(p.object_offset, at, meta);
                object.osc.give_back_grant(replaced);
                object.account(o);
                let message = object.osc.target.bulk_bytes() as u64;
                let run = o.segs.run_around(p.object_offset, message);
                if o.segs.unwritten_bytes() > object.osc.max_dirty.load(Ordering::Relaxed) / 2 {
                    too_much.push(p.stripe);
                } else if run.1 - run.0 >= message {
                    full.push(p.stripe);
                }
            }
        }
        full.iter().for_each(|s: &usize| file.objects[*s].kick_full());
        too_much.iter().for_each(|s: &usize| file.objects[*s].kick());
        for p in pieces {
            self.data.cache.note_dirty(&file.objects[p.stripe]);
        }
        self.data.cache.evict_clean();
        true
    }

    /// Room on the OSTs for all pieces, or for none.
    pub(crate) async fn take_grants(self: &Arc<Self>, file: &Arc<File>, pieces: &[Piece]) -> bool {
        let mut taken: Vec<(&Arc<Osc>, u64)> = Vec::with_capacity(pieces.len());
        for p in pieces {
            let osc = &file.objects[p.stripe].osc;
            if !osc.take_grant(p.len as u64).await {
                for (osc, n) in taken {
                    osc.give_back_grant(n);
                }
                return false;
            }
            taken.push((osc, p.len as u64));
        }
        true
    }

    /// Where the file ends, under locks on all of it; `None`: they were lost meanwhile.
    async fn end_of(self: &Arc<Self>, file: &Arc<File>, pins: &Pins) -> R<Option<u64>> {
        let unsure: Vec<usize> = {
            let objs = file.lock();
            if !pins.valid(&objs) {
                return Ok(None);
            }
            if let Some(size) = file.size_known(&objs) {
                return Ok(Some(size));
            }
            objs.iter().enumerate().filter(|(_, o)| !o.size_known()).map(|(i, _)| i).collect()
        };
        // A write was lost, or others of a group write too: only the servers know. Nobody else can change it now, or
        // the group sees to that.
        let objects: Vec<_> = file.layout.objects().copied().collect();
        let asked: Vec<_> = unsure.iter().map(|i| objects[*i]).collect();
        let attrs = self.ask_objects(&asked).await?;
        let mut objs = file.lock();
        if !pins.valid(&objs) {
            return Ok(None);
        }
        for (&i, a) in unsure.iter().zip(&attrs) {
            let o = &mut objs[i];
            o.size = a.size.max(o.segs.end());
            o.sure = true;
        }
        let c = map::component(&file.layout)?;
        let mut end = 0;
        for (i, o) in objs.iter().enumerate() {
            end = end.max(map::file_size_of(c, i, o.size)?);
        }
        Ok(Some(end))
    }

    /// Writes to the servers at once, under locks that are held, and keeps the bytes as read.
    pub(crate) async fn write_through(
        self: &Arc<Self>,
        file: &Arc<File>,
        pins: &Pins,
        at: u64,
        data: Bytes,
        meta: WriteMeta,
    ) -> R<()> {
        let mut max = RPC_BULK_MAX_BYTES;
        for o in &file.objects {
            max = max.min(o.osc.target.bulk_bytes());
        }
        let pieces = map::pieces(&file.layout, file.fid, at, data.len(), max);
        let mut all: Vec<BoxFutureOf<'_, R<()>>> = Vec::with_capacity(pieces.len());
        for p in &pieces {
            let part = map::gather(&data, p);
            let o = &file.objects[p.stripe];
            all.push(Box::pin(o.write_through(p.object_offset, part, meta, pins.of(p.stripe))));
        }
        join_all(all).await.into_iter().collect()
    }
}

pub(crate) fn write_meta(s: &FileState, now: Timestamp) -> WriteMeta {
    WriteMeta { uid: s.uid, gid: s.gid, projid: s.projid, inode_ctime: s.ctime, time: now }
}

/// The parts of the objects that hold a range of the file.
pub(crate) fn wants(l: &Layout, off: u64, len: u64, write: bool) -> R<Vec<StripeRequest>> {
    let c = map::component(l)?;
    let mut out = Vec::new();
    for stripe in 0..c.objects.len() {
        let (start, n) = map::object_range(c, stripe, off, len);
        if n > 0 {
            out.push(StripeRequest::new(stripe, write, start, start + (n - 1)));
        }
    }
    Ok(out)
}

/// All of all objects.
pub(crate) fn whole(l: &Layout, write: bool) -> Vec<StripeRequest> {
    (0..l.stripe_count()).map(|stripe| StripeRequest::new(stripe, write, 0, u64::MAX)).collect()
}

fn check_end(off: u64, len: usize) -> R<()> {
    match off.checked_add(len as u64) {
        Some(end) if end <= FILE_SIZE_MAX_BYTES => Ok(()),
        _ => Err(Errno::EFBIG),
    }
}
