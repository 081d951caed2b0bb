//! Access times on their way to the metadata servers. A program that reads many small files closes each of
//! them, and nobody waits for what relatime wants stored: the times of some milliseconds go in one batch and
//! one transaction (decision 0032).
//!
//! Only of files that were open under a lease. The server has nothing else to do at their close.

use super::Mdc;
use super::{Changing, Edit, Outcome};
use model::mutex::Mutex;
use model::{Attr, Errno, Fid, Map, Timestamp};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use wire::Op;
use wire::msg::batch::{Batch, BatchOp};
use wire::msg::close::{Close, CloseReply};
use world::sync::Notify;

/// How long a close waits for others.
const GATHER: Duration = Duration::from_millis(5);
/// Most in one batch: what is changing is not answered from the cache meanwhile.
const BATCH_MAX: usize = 128;
/// Closes beyond so many wait until some are gone.
const WAITING_MAX: usize = 1024;
/// How long an unmount waits for the times to be taken.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(2);

/// The last read of a file that was closed.
#[derive(Clone, Copy)]
struct Closed {
    handle: u64,
    atime: Timestamp,
    at: Timestamp,
}

#[derive(Default)]
struct Queue {
    waiting: Map<Fid, Closed>,
    /// Those, first come, first served.
    order: VecDeque<Fid>,
    /// On their way.
    sent: Map<Fid, Closed>,
    /// Somebody sends until there is nothing left.
    sending: bool,
}

#[derive(Default)]
pub(crate) struct Atimes {
    queue: Mutex<Queue>,
    /// Told when some are gone.
    gone: Notify,
    /// Told when there are enough for a batch.
    enough: Notify,
}

impl Atimes {
    fn lock(&self) -> model::mutex::MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// Whether somebody has to be set to send them; `None`: there is no room.
    fn push(&self, fid: Fid, c: Closed) -> Option<bool> {
        let mut q = self.lock();
        if q.waiting.len() >= WAITING_MAX && !q.waiting.contains_key(&fid) {
            return None;
        }
        if q.waiting.insert(fid, c).is_none() {
            q.order.push_back(fid);
        }
        assert!(
            q.order.len() == q.waiting.len() && q.order.len() <= WAITING_MAX,
            "each that waits has its turn"
        );
        if q.waiting.len() >= BATCH_MAX {
            self.enough.notify_one();
        }
        Some(!std::mem::replace(&mut q.sending, true))
    }

    /// Those that were sent are over; the next ones. None: whoever sends has nothing to do any more.
    fn take(&self) -> Vec<(Fid, Closed)> {
        let mut q = self.lock();
        q.sent.clear();
        let n = q.order.len().min(BATCH_MAX);
        let fids: Vec<Fid> = q.order.drain(..n).collect();
        let some: Vec<_> = fids.into_iter().filter_map(|f| Some((f, q.waiting.remove(&f)?))).collect();
        assert_eq!(q.waiting.len(), q.order.len(), "each that waits has its turn");
        q.sent.extend(some.iter().copied());
        q.sending = !some.is_empty();
        some
    }

    /// The one of a file that the server may not know of.
    fn of(&self, fid: Fid) -> Option<Closed> {
        let q = self.lock();
        q.waiting.get(&fid).or_else(|| q.sent.get(&fid)).copied()
    }

    fn is_idle(&self) -> bool {
        !self.lock().sending
    }
}

impl Mdc {
    /// A file that was open under a lease is closed: the time of its last read is to be stored.
    pub(crate) async fn store_atime(self: &Arc<Self>, fid: Fid, handle: u64, atime: Timestamp) {
        let at = self.cx.world.wall();
        // Whoever looks now sees it, as from a file system that has its times in memory.
        self.meta.lock().set_atime(fid, atime);
        loop {
            let mut gone = Box::pin(self.atimes.gone.notified());
            gone.as_mut().enable();
            match self.atimes.push(fid, Closed { handle, atime, at }) {
                Some(false) => return,
                Some(true) => break,
                None => gone.await,
            }
        }
        let me = self.clone();
        self.cx.world.spawn("client-atimes", async move { me.send_atimes().await });
    }

    /// A server's answer may not have the time of access yet that this mount told, or is about to tell.
    pub(crate) fn with_atime(&self, attr: &mut Attr) {
        if let Some(c) = self.atimes.of(attr.fid)
            && attr.atime < c.atime
            && attr.ctime <= c.at
        {
            attr.atime = c.atime;
        }
    }

    async fn send_atimes(self: &Arc<Self>) {
        loop {
            if !self.cx.is_closed() && self.atimes.lock().waiting.len() < BATCH_MAX {
                let _ = self.cx.world.timeout(GATHER, self.atimes.enough.notified()).await;
            }
            let some = self.atimes.take();
            let is_over = some.is_empty();
            if !is_over {
                self.send_closes(&some).await;
            }
            self.atimes.gone.notify_waiters();
            if is_over {
                return;
            }
        }
    }

    async fn send_closes(self: &Arc<Self>, closes: &[(Fid, Closed)]) {
        let changes: Vec<Changing> = closes.iter().map(|(fid, _)| self.changing_inode(*fid)).collect();
        let ops = closes.iter().map(|(fid, c)| {
            let close = Close { fid: *fid, handle: c.handle, atime: Some(c.atime) };
            BatchOp { time: c.at, ..BatchOp::plain(Op::Close as u16, wire::encode_message(&close)) }
        });
        let batch = Batch::plain(ops.collect());
        // What was executed here comes first, as with every request.
        self.tell_pending().await;
        let answer = self.target.call(self.cx.own(), batch).await;
        let failed = answer.as_ref().err().copied();
        if let Some(e) = failed {
            self.atimes_failed(closes.len(), e);
        }
        let mut results = answer.map(|r| r.results).unwrap_or_default().into_iter();
        for change in changes {
            // Those behind one that is refused did not run.
            let (status, body) = results.next().unwrap_or((0, Vec::new()));
            let entry = wire::decode_message::<CloseReply>(&body).ok().and_then(|r| r.entry);
            let refused = (status != 0).then(|| Errno(i32::from(status)));
            let entries = entry.map(|e| *e).into_iter().collect();
            change.done(Outcome { entries, edit: Edit::Nothing, ..Outcome::default() }, failed.or(refused));
        }
    }

    fn atimes_failed(&self, files: usize, e: Errno) {
        if !self.cx.is_closed() {
            tracing::warn!("access times of {files} files that were closed are not stored: {e}");
        }
    }

    /// Waits until all that were given to [`Mdc::store_atime`] are stored, for a time.
    pub(crate) async fn atimes_at_unmount(&self) {
        self.atimes.enough.notify_one();
        let idle = async {
            loop {
                let mut gone = Box::pin(self.atimes.gone.notified());
                gone.as_mut().enable();
                if self.atimes.is_idle() {
                    return;
                }
                gone.await;
            }
        };
        if self.cx.world.timeout(UNMOUNT_PATIENCE, idle).await.is_none() {
            tracing::warn!(
                "access times of files that were closed last are not stored: the server does not answer"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(sec: i64) -> Closed {
        let t = Timestamp { sec, nsec: 0 };
        Closed { handle: 1, atime: t, at: t }
    }

    fn fid(n: usize) -> Fid {
        Fid::new(9, n as u32, 0)
    }

    #[test]
    fn first_come_first_served_and_no_more_than_there_is_room_for() {
        let a = Atimes::default();
        assert_eq!(a.push(fid(WAITING_MAX), closed(1)), Some(true), "somebody has to send it");
        for n in (1..WAITING_MAX).rev() {
            assert_eq!(a.push(fid(n), closed(2)), Some(false));
        }
        assert_eq!(a.push(fid(WAITING_MAX + 1), closed(3)), None);
        assert_eq!(a.push(fid(7), closed(4)), Some(false), "once more costs no room");
        let mut seen = Vec::new();
        loop {
            let some = a.take();
            assert!(some.len() <= BATCH_MAX && a.is_idle() == some.is_empty());
            if some.is_empty() {
                break;
            }
            assert!(some.iter().all(|(f, _)| a.of(*f).is_some()), "until the next are taken");
            seen.extend(some);
        }
        let order: Vec<Fid> = seen.iter().map(|s| s.0).collect();
        assert_eq!(order, (1..=WAITING_MAX).rev().map(fid).collect::<Vec<_>>());
        assert!(seen.iter().all(|(f, c)| (c.atime.sec == 4) == (*f == fid(7))));
        assert!(a.of(fid(7)).is_none());
    }
}
