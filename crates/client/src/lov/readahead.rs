//! Reading ahead: what [`super::streams`] foresees, under locks that are held anyway, as far as the file is
//! known to reach.

use super::file::File;
use super::map;
use super::streams::Ahead as Counted;
use crate::Call;
use crate::osc::{Fetching, Gap, Lock, Object};
use model::debug::READA;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl File {
    /// A read ended: starts reading what will come next, for the same job. `missed`: it had to fetch
    /// something itself.
    pub(super) fn foresee(&self, call: &Call, (off, len): (u64, u64), missed: bool) {
        let max = self.read_ahead.max_per_file.load(Ordering::Relaxed);
        let cached = self.cache().max_cached.load(Ordering::Relaxed) / 4;
        let mut streams = self.streams.lock();
        let ranges = streams.note(off, len, max.min(cached), missed);
        drop(streams);
        for (start, end) in ranges {
            tracing::debug!(target: READA, "{}: reads {start}..{end} ahead", self.fid);
            for (object, gap, lock) in self.plan_ahead(start, end) {
                let fetching = Fetching::new(object.clone(), gap, self.cx.job_of(call), call);
                let ahead = Ahead { object, gap, lock };
                self.cx.world.spawn("client-read-ahead", async move {
                    // What fails is read, and fails, when somebody asks for it.
                    let _ = fetching.run(lock).await;
                    drop(ahead);
                });
            }
        }
    }

    /// The gaps in a range of the file, each with the lock under which it is read; they are pinned.
    fn plan_ahead(&self, start: u64, end: u64) -> Vec<(Arc<Object>, Gap, u64)> {
        if map::supported(&self.layout).is_err() {
            return Vec::new();
        }
        let mut objs = self.lock();
        let Some(size) = self.size_known(&objs) else { return Vec::new() };
        let stats = &self.read_ahead.stats;
        stats.add(Counted::Eof, end.saturating_sub(size.max(start)));
        let end = end.min(size);
        let mut out = Vec::new();
        if start >= end {
            return out;
        }
        for ((_, c, stripe), (object, o)) in map::parts(&self.layout).zip(self.objects.iter().zip(&mut objs))
        {
            let (from, n) = c.object_range(stripe, start, end - start);
            let max = object.osc.target.bulk_bytes() as u64;
            for (mut from, to) in o.unfetched(from, (from + n).min(o.size)) {
                while from < to {
                    // In messages that end where full ones do, so that the next range begins there.
                    let upto = to.min((from / max + 1) * max);
                    let total = self.cache().reading_ahead.load(Ordering::Relaxed);
                    let covers = |l: &&mut Lock| !l.going && !l.wanted && l.covers(false, from, upto - 1);
                    if total >= self.cx.max_read_ahead.load(Ordering::Relaxed) {
                        stats.add(Counted::Max, upto - from);
                    } else if let Some(l) = o.locks.iter_mut().find(covers) {
                        stats.add(Counted::Fetched, upto - from);
                        l.pins += 1;
                        let lock = l.id;
                        self.cache().reading_ahead.fetch_add(upto - from, Ordering::Relaxed);
                        out.push((object.clone(), object.begin_fetch(o, from, upto), lock));
                    } else {
                        stats.add(Counted::Unlocked, upto - from);
                    }
                    from = upto;
                }
            }
        }
        out
    }
}

/// A piece that is read ahead, under a pinned lock; over when dropped.
struct Ahead {
    object: Arc<Object>,
    gap: Gap,
    lock: u64,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.object.osc.cache.reading_ahead.fetch_sub(self.gap.end - self.gap.start, Ordering::Relaxed);
        self.object.lock().unpin(self.lock);
        self.object.changed.notify_waiters();
    }
}
