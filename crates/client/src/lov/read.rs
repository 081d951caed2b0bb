//! Reads: from what this mount keeps, the rest from the servers, under locks.

use super::file::{File, Locked};
use super::glimpse::glimpse;
use super::map::{self, Piece};
use super::pin::{Pinned, Pins};
use super::streams::Ahead as Counted;
use super::write::wants;
use crate::osc::{Fetching, Gap};
use crate::{BoxFutureOf, Call, R};
use bytes::Bytes;
use model::limits::{FILE_SIZE_MAX_BYTES, RPC_BULK_MAX_BYTES};
use std::sync::Arc;
use world::future::join_all;

/// A range of the object of a stripe that must come from its server.
#[derive(Clone, Copy, Debug)]
struct ObjectGap {
    number: usize,
    gap: Gap,
}

/// What one read found out on its way.
#[derive(Default)]
struct Found {
    /// Behind the end of their objects: (stripe, start, end).
    holes: Vec<(usize, u64, u64)>,
    /// The file is at least, or exactly, this long.
    size_seen: u64,
    size: Option<u64>,
    /// Bytes that were not here.
    fetched: u64,
}

enum Next {
    /// Not `sure`: that a part is a hole, or behind the end, is by this layout so.
    Done {
        data: Bytes,
        sure: bool,
    },
    /// Locks were lost: start anew.
    Lost,
    /// Somebody else is fetching a part.
    Wait,
    Fetch(Vec<ObjectGap>),
    /// Where the file ends must be asked.
    Size,
}

/// How much of a read there can be, and is answered at once.
pub(crate) fn read_len(off: u64, len: usize) -> usize {
    let room = usize::try_from(FILE_SIZE_MAX_BYTES.saturating_sub(off)).unwrap_or(usize::MAX);
    len.min(room).min(RPC_BULK_MAX_BYTES)
}

impl File {
    /// Reads under locks: from what is kept here if possible, and keeps what comes. `None`: it all lies in
    /// one object, which is contended, and `force` is not set.
    pub(crate) async fn read(
        self: &Arc<Self>,
        call: &Call,
        off: u64,
        len: usize,
        force: bool,
    ) -> R<Option<Bytes>> {
        let wants = wants(&self.layout, off, len as u64, false)?;
        let one = matches!(&wants[..], [w] if w.lock.end - w.lock.start == len as u64 - 1);
        let force = force || !one;
        loop {
            let Pinned::Held(pins) = self.pin(&self.cx.world, &wants, force).await? else { return Ok(None) };
            if let Some(data) = self.read_pinned(call, &pins, off, len).await? {
                return Ok(Some(data));
            }
        }
    }

    /// Reads, and begins to read ahead. `None`: locks were lost meanwhile.
    pub(crate) async fn read_pinned(
        self: &Arc<Self>,
        call: &Call,
        pins: &Pins,
        off: u64,
        len: usize,
    ) -> R<Option<Bytes>> {
        let pieces = map::pieces(&self.layout, self.fid, off, len, RPC_BULK_MAX_BYTES);
        assert!(len > 0, "a read of {} asks for bytes", self.fid);
        // Only what was written has objects.
        let complete = pieces.iter().map(|p| p.len).sum::<usize>() == len;
        let mut found = Found::default();
        loop {
            let mut changed = Box::pin(self.changed.notified());
            changed.as_mut().enable();
            let next = {
                let mut objs = self.lock();
                if pins.valid(&objs) {
                    self.plan(&mut objs, (&pieces, complete), off, len, &found)?
                } else {
                    Next::Lost
                }
            };
            match next {
                Next::Done { data: b, sure } => {
                    if !sure {
                        self.confirm().await?;
                    }
                    let stats = &self.read_ahead.stats;
                    stats.add(Counted::Misses, found.fetched);
                    stats.add(Counted::Hits, (b.len() as u64).saturating_sub(found.fetched));
                    self.foresee(call, (off, b.len() as u64), found.fetched > 0);
                    return Ok(Some(b));
                }
                Next::Lost => return Ok(None),
                Next::Wait => changed.await,
                Next::Fetch(gaps) => {
                    found.fetched += gaps.iter().map(|g| g.gap.end - g.gap.start).sum::<u64>();
                    let mut all: Vec<BoxFutureOf<'_, R<Option<u64>>>> = Vec::with_capacity(gaps.len());
                    let job = self.cx.job_of(call);
                    for g in &gaps {
                        let (object, job) = (self.objects[g.number].clone(), job.clone());
                        let fetching = Fetching::new(object, g.gap, job, call);
                        all.push(Box::pin(fetching.run(pins.of(g.number))));
                    }
                    for (g, r) in gaps.iter().zip(join_all(all).await) {
                        // The object ends within the gap.
                        if let Some(size) = r? {
                            found.holes.push((g.number, size.max(g.gap.start), g.gap.end));
                            found.size_seen =
                                found.size_seen.max(map::file_size_of(&self.layout, g.number, size)?);
                        }
                    }
                }
                Next::Size => found.size = Some(self.ask_size().await?),
            }
        }
    }

    /// With the file locked: what is still to do for a read.
    /// `complete`: the pieces are all of it, and have objects.
    fn plan(
        &self,
        objs: &mut Locked,
        (pieces, complete): (&[Piece], bool),
        off: u64,
        len: usize,
        found: &Found,
    ) -> R<Next> {
        let mut gaps = Vec::new();
        let mut backed = complete;
        for p in pieces {
            let o = &mut objs[p.number];
            let end = p.object_offset + p.len as u64;
            let known_end = if o.size_known() { o.size } else { u64::MAX };
            for (start, end) in o.segs.gaps(p.object_offset, end) {
                backed = false;
                let end = end.min(known_end);
                let hole = |h: &(usize, u64, u64)| h.0 == p.number && h.1 <= start && end <= h.2;
                if start >= end || found.holes.iter().any(hole) {
                    continue;
                }
                // A hole may begin within the gap.
                let split =
                    found.holes.iter().find(|h| h.0 == p.number && h.1 < end && start < h.1 && end <= h.2);
                let end = split.map_or(end, |h| h.1);
                if o.fetches.iter().any(|f| f.start < end && start < f.end) {
                    return Ok(Next::Wait);
                }
                gaps.push((p.number, start, end));
            }
        }
        if !gaps.is_empty() {
            let mut out = Vec::new();
            for (number, mut start, end) in gaps {
                let o = &mut objs[number];
                let max = self.objects[number].osc.target.bulk_bytes() as u64;
                while start < end {
                    let to = end.min(start + max);
                    out.push(ObjectGap { number, gap: self.objects[number].begin_fetch(o, start, to) });
                    start = to;
                }
            }
            return Ok(Next::Fetch(out));
        }
        let end = off + len as u64;
        let mut n = len;
        if !backed {
            // Some bytes lie in holes or behind the end.
            let least = self.size_at_least(objs).max(found.size_seen);
            if least < end {
                let Some(size) = self.size_known(objs).or(found.size) else { return Ok(Next::Size) };
                n = (size.max(least).min(end).saturating_sub(off)) as usize;
            }
        }
        if let ([p], true) = (pieces, complete)
            && let Some(b) = objs[p.number].segs.slice(p.object_offset, p.object_offset + p.len as u64)
        {
            return Ok(Next::Done { data: b.slice(..n), sure: backed });
        }
        let mut buf = vec![0; len];
        for p in pieces {
            let (mut at, o) = (p.object_offset, &objs[p.number]);
            for &(to, len) in &p.segments {
                for (start, bytes) in o.segs.known(at, at + len as u64) {
                    let to = to + (start - at) as usize;
                    buf[to..to + bytes.len()].copy_from_slice(bytes);
                }
                at += len as u64;
            }
        }
        buf.truncate(n);
        Ok(Next::Done { data: Bytes::from(buf), sure: backed })
    }

    /// The file's size, from all who know.
    async fn ask_size(&self) -> R<u64> {
        map::file_size(&self.layout, &glimpse(&self.osc_objects()).await?)
    }
}
