//! write(2) beside mappings of the same mount. The kernel gives up the pages of a range before it sends a
//! write and once more afterwards. A page that is filled in between, with what was there before, and stored
//! into, would bring the old bytes back. So while a write is under way nothing of its range is filled, and
//! what was filled before is given up first.

use super::Data;
use crate::BoxFutureOf;
use crate::lov::{File, WriteGuard};
use crate::osc::Lock;
use model::mutex::{Mutex, MutexGuard};
use model::{Fid, Map};
use std::sync::Arc;
use wire::msg::extent::ExtentMode;

struct Range {
    token: u64,
    start: u64,
    end: u64,
    /// The pages are being given up.
    clearing: bool,
    /// Fills that came through all the same.
    late: u64,
}

/// Writes that are under way of files that may be stored into by mappings.
#[derive(Default)]
pub(crate) struct Writing(Mutex<Map<Fid, Vec<Range>>>);

/// What writes mean for a fill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beside {
    Nothing,
    /// It comes after them.
    Write,
    /// So too, but they may wait for it.
    Clearing,
}

impl Writing {
    fn lock(&self) -> MutexGuard<'_, Map<Fid, Vec<Range>>> {
        self.0.lock()
    }

    pub(crate) fn look(&self, fid: Fid, (start, end): (u64, u64)) -> Beside {
        let all = self.lock();
        let over = all.get(&fid).into_iter().flatten().filter(|r| r.start < end && start < r.end);
        over.fold(Beside::Nothing, |b, r| {
            if r.clearing || b == Beside::Clearing { Beside::Clearing } else { Beside::Write }
        })
    }

    pub(crate) fn note_late(&self, fid: Fid, (start, end): (u64, u64)) {
        let mut all = self.lock();
        for r in all.get_mut(&fid).into_iter().flatten().filter(|r| r.start < end && start < r.end) {
            r.late += 1;
        }
    }

    fn set_clearing(&self, fid: Fid, token: u64, clearing: bool) -> u64 {
        let mut all = self.lock();
        let r = all.get_mut(&fid).into_iter().flatten().find(|r| r.token == token);
        let r = r.expect("it is under way");
        r.clearing = clearing;
        r.late
    }
}

/// A write of a range that is under way; over when dropped.
pub(crate) struct WriteBeside {
    data: Arc<Data>,
    fid: Fid,
    token: u64,
}

impl Drop for WriteBeside {
    fn drop(&mut self) {
        let mut all = self.data.writing.lock();
        if let Some(v) = all.get_mut(&self.fid) {
            v.retain(|r| r.token != self.token);
            if v.is_empty() {
                all.remove(&self.fid);
            }
        }
        drop(all);
        if let Some(f) = self.data.lov.known(self.fid) {
            f.changed.notify_waiters();
        }
    }
}

impl Data {
    /// Before a write, if there can be pages that are stored into, or if the kernel does not know where it
    /// goes (`append`). The range ends before `end`.
    pub(crate) fn write_beside(
        self: &Arc<Self>,
        fid: Fid,
        start: u64,
        end: u64,
        append: bool,
    ) -> Option<WriteBeside> {
        if !append && !self.meta.opens.is_read_write(fid) {
            return None;
        }
        assert!(start < end, "a write of {fid} has bytes");
        let token = self.cx.number();
        let range = Range { token, start, end, clearing: false, late: 0 };
        self.writing.lock().entry(fid).or_default().push(range);
        Some(WriteBeside { data: self.clone(), fid, token })
    }

    /// Before anybody can store into pages of a file: none is left that was filled under a lock for reading,
    /// and none will be, because the file is open for reading and writing by now.
    pub(crate) async fn no_pages_to_store_into(self: &Arc<Self>, fid: Fid) {
        self.lmv.sweep_small(fid).await;
        let Some(file) = self.lov.known(fid) else { return };
        loop {
            let mut changed = Box::pin(file.changed.notified());
            changed.as_mut().enable();
            let mut go = Vec::new();
            {
                let mut objs = file.lock();
                let mut none = true;
                for (stripe, o) in objs.iter_mut().enumerate() {
                    let paged =
                        |l: &&mut Lock| l.mode == ExtentMode::Read && (l.sweeping || !l.pages.is_empty());
                    for l in o.locks.iter_mut().filter(paged) {
                        none = false;
                        if !std::mem::replace(&mut l.wanted, true) {
                            l.uses = l.uses.max(1);
                            go.push((stripe, l.id));
                        }
                    }
                }
                if none {
                    return;
                }
            }
            for (stripe, id) in go {
                file.objects[stripe].give_back_later(id);
            }
            changed.await;
        }
    }
}

impl WriteGuard for WriteBeside {
    /// Has the kernel give up its pages of a range, under locks that the write holds. Fills wait until the
    /// write is over, or come late and are given up once more.
    fn clear<'a>(&'a self, file: &'a Arc<File>, start: u64, end: u64) -> BoxFutureOf<'a, ()> {
        Box::pin(async move {
            loop {
                let before = self.data.writing.set_clearing(self.fid, self.token, true);
                let any =
                    file.lock().iter().any(|o| o.locks.iter().any(|l| l.sweeping || !l.pages.is_empty()));
                let mut after = before;
                if any {
                    // So may be a fill that waits for this write.
                    file.changed.notify_waiters();
                    self.data.cx.cache_holder.pages_given_up(self.fid, vec![(start, end)]).await;
                    after = self.data.writing.set_clearing(self.fid, self.token, true);
                }
                if after == before {
                    self.data.writing.set_clearing(self.fid, self.token, false);
                    return;
                }
            }
        })
    }
}
