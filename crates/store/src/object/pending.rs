//! Small writes inside an object wait in memory for their record's commit before they go to the file:
//! otherwise a crash in between could leave bytes on disk that no checksum knows. Readers see them here.

use super::files::{FileKey, Files, Ticket};
use crate::core::Core;
use crate::{Lsn, StoreError};
use bytes::Bytes;
use model::ObjectId;
use model::mutex::MutexGuard;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use world::select;

/// Bytes waiting above which writers wait as well.
const PENDING_MAX_BYTES: usize = 64 << 20;
/// So much goes to the page cache in less time than another thread takes to wake.
const LITTLE_BYTES: usize = 64 << 10;
/// How long writes wait for others to go to their files with, unless somebody waits for them or they are
/// many: on the heels of their commit they would be in the way of its replies.
const GATHER: Duration = Duration::from_millis(5);
const GATHER_MAX_BYTES: usize = 1 << 20;

/// Bytes for a file, not written yet.
pub(super) struct Waiting {
    pub key: FileKey,
    /// Where in the file.
    pub at: u64,
    /// Where in the object.
    pub off: u64,
    pub data: Bytes,
}

struct Queued {
    lsn: Lsn,
    object: ObjectId,
    number: u64,
    write: Waiting,
    _ticket: Arc<Ticket>,
}

/// Bytes of an object that its file does not have yet.
struct Newer {
    number: u64,
    lsn: Lsn,
    off: u64,
    data: Bytes,
}

#[derive(Default)]
pub(crate) struct DeferredWrites {
    queue: VecDeque<Queued>,
    by_object: BTreeMap<ObjectId, VecDeque<Newer>>,
    bytes: usize,
    next: u64,
    applying: bool,
    /// Somebody waits: nothing is gathered.
    hurried: bool,
}

impl Files {
    fn waiting(&self) -> MutexGuard<'_, DeferredWrites> {
        self.pending.lock()
    }

    /// Hands over what transaction `lsn` writes. The ticket is from before the record was submitted; the
    /// object's lock is held.
    pub(super) fn put_off(
        self: &Arc<Self>,
        core: &Arc<Core>,
        object: ObjectId,
        lsn: Lsn,
        writes: Vec<Waiting>,
        ticket: &Arc<Ticket>,
    ) {
        assert!(!writes.is_empty(), "a change hands over what it writes");
        let (begin, many) = {
            let mut p = self.waiting();
            let newest = p.by_object.get(&object).and_then(|l| l.back()).map_or(0, |n| n.lsn);
            assert!(newest < lsn, "an object's changes are handed over in order");
            for write in writes {
                let number = p.next;
                p.next += 1;
                p.bytes += write.data.len();
                let newer = Newer { number, lsn, off: write.off, data: write.data.clone() };
                p.by_object.entry(object).or_default().push_back(newer);
                p.queue.push_back(Queued { lsn, object, number, write, _ticket: ticket.clone() });
            }
            (!std::mem::replace(&mut p.applying, true), p.bytes >= GATHER_MAX_BYTES)
        };
        if many {
            self.hurry();
        }
        if begin {
            let (files, c) = (self.clone(), core.clone());
            core.world.spawn("object writes", async move { files.apply_all(&c).await });
        }
    }

    /// What waits goes to the files as soon as it is committed.
    pub(super) fn hurry(&self) {
        self.waiting().hurried = true;
        self.hurry.notify_waiters();
    }

    /// Waits for more writes, if nobody waits for those that are there.
    async fn gather(&self) {
        let hurry = self.hurry.notified();
        if !self.waiting().hurried {
            let _ = select(hurry, self.world.sleep(GATHER)).await;
        }
        self.waiting().hurried = false;
    }

    /// Writes what is committed to the files, until nothing waits.
    async fn apply_all(self: Arc<Self>, core: &Arc<Core>) {
        loop {
            self.gather().await;
            let (first, little) = {
                let mut p = self.waiting();
                match p.queue.front() {
                    Some(q) => (q.lsn, p.bytes <= LITTLE_BYTES),
                    None => {
                        assert_eq!(p.bytes, 0, "no bytes wait where nothing is queued");
                        assert!(p.by_object.is_empty(), "readers go to the files when all is written");
                        p.applying = false;
                        return;
                    }
                }
            };
            // Not committed ever: readers go on seeing it here, as they see its record.
            let mut result = passively(core, first).await;
            if result.is_ok() {
                let (me, upto) = (self.clone(), core.last_committed());
                let apply = move || me.apply_upto(upto);
                result = if little {
                    core.world.blocking_briefly(apply).await
                } else {
                    core.world.blocking(apply).await
                };
                if let Err(e) = &result {
                    core.fail(e);
                }
            }
            self.applied.notify_waiters();
            if result.is_err() {
                return;
            }
        }
    }

    fn apply_upto(&self, upto: Lsn) -> Result<(), StoreError> {
        let ready: Vec<Queued> = {
            let mut p = self.waiting();
            let (now, later) = std::mem::take(&mut p.queue).into_iter().partition(|q| q.lsn <= upto);
            p.queue = later;
            now.into_iter().collect()
        };
        for q in &ready {
            // No checkpoint may pass what could not be written.
            self.apply(&q.write).inspect_err(|e| self.failed(e))?;
            let mut p = self.waiting();
            p.bytes -= q.write.data.len();
            if let Some(list) = p.by_object.get_mut(&q.object) {
                let first = list.pop_front().expect("written in the order they came");
                assert_eq!(first.number, q.number, "written in the order they came");
                if list.is_empty() {
                    p.by_object.remove(&q.object);
                }
            }
        }
        Ok(())
    }

    fn apply(&self, w: &Waiting) -> Result<(), StoreError> {
        let file = self.get(w.key)?;
        let done = self.write_bulk(&*file, &w.data, w.at);
        self.mark(w.key, file);
        done.map_err(StoreError::io("cannot write object file", &self.path(w.key)))
    }

    /// What writes to bytes `from..to` of the object its file lacks, oldest first: to be taken before the
    /// file is read.
    pub(super) fn newer(&self, object: ObjectId, from: u64, to: u64) -> Vec<(u64, Bytes)> {
        let p = self.waiting();
        let within = |n: &&Newer| n.off < to && from < n.off + n.data.len() as u64;
        p.by_object
            .get(&object)
            .map_or(Vec::new(), |l| l.iter().filter(within).map(|n| (n.off, n.data.clone())).collect())
    }

    pub(super) fn has_newer(&self, object: ObjectId) -> bool {
        self.waiting().by_object.contains_key(&object)
    }

    /// Waits until the object's file has all bytes; the object's lock keeps new ones away.
    pub(super) async fn drained(&self, core: &Core, object: ObjectId) -> Result<(), StoreError> {
        loop {
            let applied = self.applied.notified();
            let Some(lsn) = self.waiting().by_object.get(&object).and_then(|l| l.back()).map(|n| n.lsn)
            else {
                return Ok(());
            };
            core.committed(lsn).await?;
            if self.has_newer(object) {
                core.check()?;
                self.hurry();
                applied.await;
            }
        }
    }

    /// Waits until there is room for more.
    pub(super) async fn room(&self, core: &Core) -> Result<(), StoreError> {
        loop {
            let applied = self.applied.notified();
            if self.waiting().bytes < PENDING_MAX_BYTES {
                return Ok(());
            }
            core.check()?;
            self.hurry();
            applied.await;
        }
    }
}

/// Waits for a commit without being the one who wants it.
async fn passively(core: &Core, lsn: Lsn) -> Result<(), StoreError> {
    let mut rx = core.state.subscribe();
    let s = rx.wait_for(|s| s.committed >= lsn || s.stopped.is_some()).await.expect("the sender is in core");
    match &s.stopped {
        Some(r) if s.committed < lsn => Err(StoreError::Stopped(r.to_string())),
        _ => Ok(()),
    }
}

/// Lays newer bytes over `buf`, which begins at `off` of the object.
pub(super) fn lay_over(buf: &mut [u8], off: u64, newer: &[(u64, Bytes)]) {
    let end = off + buf.len() as u64;
    for (at, data) in newer {
        let (from, to) = (off.max(*at), end.min(at + data.len() as u64));
        if from < to {
            buf[(from - off) as usize..(to - off) as usize]
                .copy_from_slice(&data[(from - at) as usize..(to - at) as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Fid;
    use world::mem::MemDisk;

    /// A target stops with writes whose records are never committed: nothing of it is left in a process that
    /// goes on.
    #[test]
    fn what_waits_for_a_commit_that_never_comes_keeps_no_file_open() {
        let (mut world, _runtime) = world::real::start(1).unwrap();
        world.disk = Arc::new(MemDisk::default());
        let object = ObjectId { origin: Fid::new(7, 8, 9), component: 1, stripe: 2 };
        let files = Files::new(&world, "/ost");
        let ticket = Arc::new(files.ticket());
        let write = Waiting { key: FileKey::Own(object), at: 0, off: 0, data: Bytes::from_static(b"data") };
        let queued = Queued { lsn: 1, object, number: 0, write, _ticket: ticket };
        files.waiting().queue.push_back(queued);
        let left = Arc::downgrade(&files);
        drop(files);
        assert_eq!(left.strong_count(), 0);
    }
}
