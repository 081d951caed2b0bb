//! Writes: into what this mount keeps, under locks; through to the server where that promises no room.

use super::file::{Busy, File, WriteMeta};
use super::flush::WriteHow;
use super::pin::{Pinned, Pins, Want};
use crate::detach::Detached;
use crate::opens::FileState;
use crate::ops::{BoxFutureOf, Small};
use crate::stripe::{self, Piece};
use crate::targets::Target;
use crate::{Call, Fs, R};
use bytes::Bytes;
use model::limits::{FILE_SIZE_MAX_BYTES, RPC_BULK_MAX_BYTES};
use model::planted::{self, Bug};
use model::{Errno, Fid, Layout, ObjectAttr, Timestamp};
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
            self.room(&file, &stripes, data.len() as u64).await;
            let pins = match self.pin(&file, &wants, wants.len() > 1).await? {
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
            let pieces = stripe::pieces(&layout, fid, at, data.len(), RPC_BULK_MAX_BYTES);
            let meta = write_meta(&state, self.world.wall());
            if !self.take_promises(&file, &pieces).await {
                let (fs, file2) = (self.clone(), file.clone());
                let work = async move {
                    let r = fs.write_through(&file2, &pins, at, data, meta).await;
                    drop((pins, turn, beside));
                    r
                };
                Detached::plain(self, "client-write", work).await?;
                return Ok(at);
            }
            if self.commit(&file, &pins, &pieces, &data, meta) {
                return Ok(at);
            }
        }
    }

    /// Puts bytes into what is kept. False: a lock was lost meanwhile.
    pub(super) fn commit(
        self: &Arc<Self>,
        file: &Arc<File>,
        pins: &Pins,
        pieces: &[Piece],
        data: &Bytes,
        meta: WriteMeta,
    ) -> bool {
        let now = self.world.now();
        let (mut full, mut too_much) = (Vec::new(), Vec::new());
        {
            let mut objs = file.lock();
            if !pins.valid(&objs) {
                for p in pieces {
                    objs[p.stripe].target.data.give_back(p.len as u64);
                }
                return false;
            }
            for p in pieces {
                let o = &mut objs[p.stripe];
                let (mut at, mut replaced) = (p.object_offset, 0);
                for &(from, len) in &p.segments {
                    replaced += o.segs.write(at, data.slice(from..from + len));
                    at += len as u64;
                }
                o.wrote(p.object_offset, at, meta);
                o.target.data.give_back(replaced);
                self.data.account(o, now);
                let message = o.target.bulk_bytes() as u64;
                let run = o.segs.run_around(p.object_offset, message);
                if o.segs.unwritten_bytes() > o.target.data.max_dirty.load(Ordering::Relaxed) / 2 {
                    too_much.push(p.stripe);
                } else if run.1 - run.0 >= message {
                    full.push(p.stripe);
                }
            }
        }
        for stripe in full {
            self.kick_full(file, stripe);
        }
        for stripe in too_much {
            self.kick(file, stripe);
        }
        self.note_dirty(file);
        self.evict_clean();
        true
    }

    /// Room on the OSTs for all pieces, or for none.
    pub(super) async fn take_promises(self: &Arc<Self>, file: &Arc<File>, pieces: &[Piece]) -> bool {
        let mut taken: Vec<(Arc<Target>, u64)> = Vec::with_capacity(pieces.len());
        for p in pieces {
            let target = file.lock()[p.stripe].target.clone();
            if !self.take_promise(&target, p.len as u64).await {
                for (t, n) in taken {
                    t.data.give_back(n);
                }
                return false;
            }
            taken.push((target, p.len as u64));
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
        let c = stripe::component(&file.layout)?;
        let mut end = 0;
        for (i, o) in objs.iter().enumerate() {
            end = end.max(stripe::file_size_of(c, i, o.size)?);
        }
        Ok(Some(end))
    }

    /// Writes to the servers at once, under locks that are held, and keeps the bytes as read.
    pub(super) async fn write_through(
        self: &Arc<Self>,
        file: &Arc<File>,
        pins: &Pins,
        at: u64,
        data: Bytes,
        meta: WriteMeta,
    ) -> R<()> {
        let mut max = RPC_BULK_MAX_BYTES;
        for o in file.lock().iter() {
            max = max.min(o.target.bulk_bytes());
        }
        let pieces = stripe::pieces(&file.layout, file.fid, at, data.len(), max);
        let mut all: Vec<BoxFutureOf<'_, R<()>>> = Vec::with_capacity(pieces.len());
        for p in &pieces {
            let part = stripe::gather(&data, p);
            all.push(Box::pin(self.write_piece_through(file, pins.of(p.stripe), p, part, meta)));
        }
        join_all(all).await.into_iter().collect()
    }

    async fn write_piece_through(
        self: &Arc<Self>,
        file: &Arc<File>,
        lock: u64,
        p: &Piece,
        data: Bytes,
        meta: WriteMeta,
    ) -> R<()> {
        let (start, end) = (p.object_offset, p.object_offset + p.len as u64);
        let claim = self.claim(file, p.stripe, start, end, lock).await;
        let (object, target) = (p.object.id, claim.target.clone());
        let turn = target.data.turns.clone().acquire_owned().await.map_err(|_| Errno::ESHUTDOWN)?;
        let how = WriteHow { lock, granted: false, durable: false };
        let send = || async {
            let r = self
                .write_locked(file, &target, object, vec![(start, data.clone().into())], how, &meta)
                .await;
            r.map(|(attr, _)| attr)
        };
        let mut r: R<ObjectAttr> = send().await;
        if r == Err(Errno::ENOSPC) {
            // What was promised to this mount and used up meanwhile may be all that is in the way.
            self.ask_promise_now(&target).await;
            r = send().await;
        }
        drop(turn);
        let mut objs = file.lock();
        let o = &mut objs[p.stripe];
        let known = o.locks.iter().any(|l| l.id == lock);
        match &r {
            Ok(attr) if known => {
                let replaced = o.segs.cut(start, end);
                o.target.data.give_back(replaced);
                o.segs.fill(start, &data);
                o.wrote(start, end, meta);
                o.learn(attr);
            }
            _ => {
                // Perhaps written, perhaps in part.
                o.taint(start, end);
                o.segs.drop_clean(start, end);
                o.sure = false;
            }
        }
        self.data.account(o, self.world.now());
        drop(objs);
        drop(claim);
        self.evict_clean();
        r.map(|_| ())
    }

    /// Makes a range of an object this operation's: nothing else is sent for it until the claim ends.
    pub(super) async fn claim(
        self: &Arc<Self>,
        file: &Arc<File>,
        stripe: usize,
        start: u64,
        end: u64,
        lock: u64,
    ) -> Claim {
        let token = self.data.number();
        loop {
            let mut changed = Box::pin(file.changed.notified());
            changed.as_mut().enable();
            {
                let mut objs = file.lock();
                let o = &mut objs[stripe];
                if !o.is_busy(start, end) {
                    o.busy.push(Busy { token, start, end, lock });
                    return Claim { file: file.clone(), stripe, token, target: o.target.clone() };
                }
            }
            changed.await;
        }
    }
}

/// A range that is one operation's; ends when dropped.
pub(super) struct Claim {
    file: Arc<File>,
    stripe: usize,
    token: u64,
    pub target: Arc<Target>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.file.lock()[self.stripe].busy.retain(|b| b.token != self.token);
        self.file.changed.notify_waiters();
    }
}

pub(super) fn write_meta(s: &FileState, now: Timestamp) -> WriteMeta {
    WriteMeta { uid: s.uid, gid: s.gid, projid: s.projid, inode_ctime: s.ctime, time: now }
}

/// The parts of the objects that hold a range of the file.
pub(super) fn wants(l: &Layout, off: u64, len: u64, write: bool) -> R<Vec<Want>> {
    let c = stripe::component(l)?;
    let mut out = Vec::new();
    for stripe in 0..c.objects.len() {
        let (start, n) = stripe::object_range(c, stripe, off, len);
        if n > 0 {
            out.push(Want::new(stripe, write, start, start + (n - 1)));
        }
    }
    Ok(out)
}

/// All of all objects.
pub(super) fn whole(l: &Layout, write: bool) -> Vec<Want> {
    (0..l.stripe_count()).map(|stripe| Want::new(stripe, write, 0, u64::MAX)).collect()
}

fn check_end(off: u64, len: usize) -> R<()> {
    match off.checked_add(len as u64) {
        Some(end) if end <= FILE_SIZE_MAX_BYTES => Ok(()),
        _ => Err(Errno::EFBIG),
    }
}
