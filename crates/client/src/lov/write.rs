//! Writes: into what this mount keeps, under locks; through to the server where that grants no room.

use super::file::File;
use super::glimpse::ask;
use super::map::{self, Piece};
use super::pin::{ObjectRequest, Pinned, Pins};
use crate::base::Detached;
use crate::osc::{Osc, WriteMeta};
use crate::session::PAGE_BYTES;
use crate::{BoxFutureOf, R};
use bytes::Bytes;
use model::limits::{FILE_SIZE_MAX_BYTES, RPC_BULK_MAX_BYTES};
use model::{Errno, Layout};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use world::future::join_all;

/// What keeps pages of a kernel apart from a write that is under way, until it is dropped.
pub(crate) trait WriteGuard: Send + Sync {
    /// Under the locks of the write: no page of these bytes has what was there before.
    fn clear<'a>(&'a self, file: &'a Arc<File>, start: u64, end: u64) -> BoxFutureOf<'a, ()>;
}

/// What a write came to.
pub(crate) enum Written {
    /// It is kept, or with the servers; from here on.
    At(u64),
    /// An object is contended: nothing was done, and the guard is its owner's again.
    Contended(Option<Box<dyn WriteGuard>>),
    /// An append would end where there are no objects: nothing was done. Where it begins.
    NoObjects(u64),
}

impl File {
    /// Writes all of `data`, or fails. `off` `None`: at the end. `owner`: what is said of the file with it;
    /// the time is now.
    pub(crate) async fn write(
        self: &Arc<Self>,
        off: Option<u64>,
        data: Bytes,
        owner: WriteMeta,
        guard: Option<Box<dyn WriteGuard>>,
    ) -> R<Written> {
        assert!(!data.is_empty() && data.len() <= RPC_BULK_MAX_BYTES, "bounded by the callers");
        // Another append must not find the same end.
        let turn = if off.is_none() { Some(self.appends.clone().lock_owned().await) } else { None };
        loop {
            let wants = match off {
                Some(off) if guard.is_some() => self.whole_pages(off, data.len() as u64)?,
                Some(off) => wants(&self.layout, off, data.len() as u64, true)?,
                None => self.whole(),
            };
            let stripes: Vec<usize> = wants.iter().map(|w| w.number).collect();
            self.room(&stripes, data.len() as u64).await;
            let force = wants.len() > 1 || (off.is_none() && !map::is_one(&self.layout));
            let Pinned::Held(pins) = self.pin(&self.cx.world, &wants, force).await? else {
                return Ok(Written::Contended(guard));
            };
            let at = match off {
                Some(off) => off,
                None => match self.end_of(&pins).await? {
                    Some(end) => end,
                    None => continue,
                },
            };
            check_end(at, data.len())?;
            if off.is_none() {
                self.confirm().await?;
                match self.layout.check_range(at, at + data.len() as u64) {
                    Err(Errno::EUNINIT) => return Ok(Written::NoObjects(at)),
                    known => known?,
                }
            }
            if let Some(g) = &guard {
                let _clearing = pins.clearing();
                g.clear(self, at, at + data.len() as u64).await;
            }
            let pieces = map::pieces(&self.layout, self.fid, at, data.len(), RPC_BULK_MAX_BYTES);
            let meta = WriteMeta { time: self.cx.world.wall(), ..owner.clone() };
            if !self.take_grants(&pieces, &meta).await {
                let me = self.clone();
                let work = async move {
                    let r = me.write_through(&pins, at, data, meta).await;
                    drop((pins, turn, guard));
                    r
                };
                Detached::plain(&self.cx.world, "client-write", work).await?;
                return Ok(Written::At(at));
            }
            if self.commit(&pins, &pieces, &data, &meta) {
                return Ok(Written::At(at));
            }
        }
    }

    /// All pages that are touched, for writing: what the kernel must give up may be a page that is being
    /// filled, and a fill that this write waits for must find a lock that covers it. If it had to wait for
    /// one of its own, it would come after whoever waits for this write's.
    fn whole_pages(&self, off: u64, len: u64) -> R<Vec<ObjectRequest>> {
        let (page, end) = (PAGE_BYTES as u64, off + len);
        assert!(len > 0 && end <= FILE_SIZE_MAX_BYTES, "looked at by the callers");
        let start = off - off % page;
        wants(&self.layout, start, end.next_multiple_of(page) - start, true)
    }

    /// All of all objects, for writing.
    fn whole(&self) -> Vec<ObjectRequest> {
        (0..self.objects.len()).map(|number| ObjectRequest::new(number, true, 0, u64::MAX)).collect()
    }

    /// Puts bytes into what is kept. False: a lock was lost meanwhile.
    pub(crate) fn commit(&self, pins: &Pins, pieces: &[Piece], data: &Bytes, meta: &WriteMeta) -> bool {
        let (mut full, mut too_much) = (Vec::new(), Vec::new());
        {
            let mut objs = self.lock();
            if !pins.valid(&objs) {
                for p in pieces {
                    self.objects[p.number].osc.give_back_grant(p.len as u64);
                }
                return false;
            }
            for p in pieces {
                let (object, o) = (&self.objects[p.number], &mut objs[p.number]);
                let (mut at, mut replaced) = (p.object_offset, 0);
                for &(from, len) in &p.segments {
                    replaced += o.segs.write(at, data.slice(from..from + len));
                    at += len as u64;
                }
                o.wrote(p.object_offset, at, meta.clone());
                object.osc.give_back_grant(replaced);
                object.account(o);
                let message = object.osc.target.bulk_bytes() as u64;
                let run = o.segs.run_around(p.object_offset, message);
                let most = object.osc.max_dirty.load(Ordering::Relaxed) / 2;
                if o.segs.unwritten_bytes() > most || object.osc.is_near_limit(meta.owner) {
                    too_much.push(p.number);
                } else if run.1 - run.0 >= message {
                    full.push(p.number);
                }
            }
        }
        full.iter().for_each(|s: &usize| self.objects[*s].kick_full());
        too_much.iter().for_each(|s: &usize| self.objects[*s].kick());
        for p in pieces {
            self.cache().note_dirty(&self.objects[p.number]);
        }
        self.cache().evict_clean();
        true
    }

    /// Room on the OSTs for all pieces, or for none; also within what their owner may have.
    pub(crate) async fn take_grants(&self, pieces: &[Piece], meta: &WriteMeta) -> bool {
        let mut taken: Vec<(&Arc<Osc>, u64)> = Vec::with_capacity(pieces.len());
        for p in pieces {
            let osc = &self.objects[p.number].osc;
            let granted = osc.take_grant(p.len as u64).await;
            if granted {
                taken.push((osc, p.len as u64));
            }
            // Behind that: with the first grant the OST says whether somebody is limited there.
            if !granted || !osc.may_keep(meta, p.len as u64) {
                taken.into_iter().for_each(|(osc, n)| osc.give_back_grant(n));
                return false;
            }
        }
        true
    }

    /// Where the file ends, under locks on all of it; `None`: they were lost meanwhile.
    async fn end_of(&self, pins: &Pins) -> R<Option<u64>> {
        let unsure: Vec<usize> = {
            let objs = self.lock();
            if !pins.valid(&objs) {
                return Ok(None);
            }
            if let Some(size) = self.size_known(&objs) {
                return Ok(Some(size));
            }
            objs.iter().enumerate().filter(|(_, o)| !o.size_known()).map(|(i, _)| i).collect()
        };
        // A write was lost, or others of a group write too: only the servers know. Nobody else can change it
        // now, or the group sees to that.
        let all = self.osc_objects();
        let asked: Vec<_> = unsure.iter().map(|i| all[*i].clone()).collect();
        let attrs = ask(&asked).await?;
        let mut objs = self.lock();
        if !pins.valid(&objs) {
            return Ok(None);
        }
        for (&i, a) in unsure.iter().zip(&attrs) {
            let o = &mut objs[i];
            if !o.size_known() {
                // What was written meanwhile may not be in the answer.
                let least = if o.size_authoritative { o.segs.end() } else { o.size };
                (o.size, o.size_authoritative) = (a.size.max(least), true);
            }
        }
        let mut end = 0;
        for (i, o) in objs.iter().enumerate() {
            end = end.max(map::file_size_of(&self.layout, i, o.size)?);
        }
        Ok(Some(end))
    }

    /// Writes to the servers at once, under locks that are held, and keeps the bytes as read.
    pub(crate) async fn write_through(&self, pins: &Pins, at: u64, data: Bytes, meta: WriteMeta) -> R<()> {
        let mut max = RPC_BULK_MAX_BYTES;
        for o in &self.objects {
            max = max.min(o.osc.target.bulk_bytes());
        }
        let pieces = map::pieces(&self.layout, self.fid, at, data.len(), max);
        let mut all: Vec<BoxFutureOf<'_, R<()>>> = Vec::with_capacity(pieces.len());
        for p in &pieces {
            let part = map::gather(&data, p);
            let o = &self.objects[p.number];
            all.push(Box::pin(o.write_through(p.object_offset, part, meta.clone(), pins.of(p.number))));
        }
        join_all(all).await.into_iter().collect()
    }
}

/// The parts of the objects that hold a range of the file. To write: `EUNINIT` if some of it has no object,
/// `ENODATA` behind the last component.
pub(crate) fn wants(l: &Layout, off: u64, len: u64, write: bool) -> R<Vec<ObjectRequest>> {
    map::supported(l)?;
    if write {
        l.check_range(off, off.saturating_add(len))?;
    }
    let mut out = Vec::new();
    for (number, c, stripe) in map::parts(l) {
        let (start, n) = c.object_range(stripe, off, len);
        if n > 0 {
            out.push(ObjectRequest::new(number, write, start, start + (n - 1)));
        }
    }
    Ok(out)
}

/// `EFBIG` for what no file reaches to.
pub(crate) fn check_end(off: u64, len: usize) -> R<()> {
    match off.checked_add(len as u64) {
        Some(end) if end <= FILE_SIZE_MAX_BYTES => Ok(()),
        _ => Err(Errno::EFBIG),
    }
}
