//! Reading ahead: what [`super::ahead`] foresees, under locks that are held anyway, as far as the file is known to reach.

use super::ahead::Ahead as Counted;
use super::file::{Fetch, File, Lock};
use super::read::{Fetching, Gap};
use crate::{Fs, stripe};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Fs {
    /// A read ended: starts reading what will come next. `missed`: it had to fetch something itself.
    pub(super) fn read_ahead(self: &Arc<Self>, file: &Arc<File>, off: u64, len: u64, missed: bool) {
        let max = self.data.max_read_ahead_per_file.load(Ordering::Relaxed);
        let cached = self.data.max_cached.load(Ordering::Relaxed) / 4;
        let mut streams = file.streams.lock().expect("no panic while locked");
        let ranges = streams.note(off, len, max.min(cached), missed);
        drop(streams);
        for (start, end) in ranges {
            for (gap, lock) in self.plan_ahead(file, start, end) {
                let fetching = Fetching { file: file.clone(), gap };
                let ahead = Ahead { fs: self.clone(), file: file.clone(), gap, lock };
                self.world.spawn("client-read-ahead", async move {
                    // What fails is read, and fails, when somebody asks for it.
                    let _ = ahead.fs.fetch(fetching, lock).await;
                    drop(ahead);
                });
            }
        }
    }

    /// The gaps in a range of the file, each with the lock under which it is read; they are pinned.
    fn plan_ahead(&self, file: &File, start: u64, end: u64) -> Vec<(Gap, u64)> {
        let Ok(c) = stripe::component(&file.layout) else { return Vec::new() };
        let mut objs = file.lock();
        let Some(size) = file.size_known(&objs) else { return Vec::new() };
        let stats = &self.data.ahead_stats;
        stats.add(Counted::Eof, end.saturating_sub(size.max(start)));
        let end = end.min(size);
        let mut out = Vec::new();
        if start >= end {
            return out;
        }
        for stripe in 0..c.objects.len() {
            let (from, n) = stripe::object_range(c, stripe, start, end - start);
            let o = &mut objs[stripe];
            let max = o.target.bulk_bytes() as u64;
            for (mut from, to) in o.unfetched(from, (from + n).min(o.size)) {
                while from < to {
                    // In messages that end where full ones do, so that the next range begins there.
                    let upto = to.min((from / max + 1) * max);
                    let total = self.data.reading_ahead.load(Ordering::Relaxed);
                    let covers = |l: &&mut Lock| !l.going && !l.wanted && l.covers(false, from, upto - 1);
                    if total >= self.data.max_read_ahead.load(Ordering::Relaxed) {
                        stats.add(Counted::Max, upto - from);
                    } else if let Some(l) = o.locks.iter_mut().find(covers) {
                        stats.add(Counted::Fetched, upto - from);
                        l.pins += 1;
                        self.data.reading_ahead.fetch_add(upto - from, Ordering::Relaxed);
                        let token = self.data.number();
                        o.fetches.push(Fetch { token, start: from, end: upto, tainted: false });
                        out.push((Gap { stripe, start: from, end: upto, token }, l.id));
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
    fs: Arc<Fs>,
    file: Arc<File>,
    gap: Gap,
    lock: u64,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.fs.data.reading_ahead.fetch_sub(self.gap.end - self.gap.start, Ordering::Relaxed);
        if let Some(l) = self.file.lock()[self.gap.stripe].lock_mut(self.lock) {
            l.pins -= 1;
        }
        self.file.changed.notify_waiters();
    }
}
