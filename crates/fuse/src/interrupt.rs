//! Requests that take long, and who may still want their answers (docs/decisions/0009-interrupts.md).
//!
//! A request is listed here once its worker handed it to the runtime. INTERRUPT says that a signal came in;
//! it says so once, so a second, deadly signal has to be looked for. Background requests (page reads,
//! asynchronous I/O) are never interrupted by the kernel although a dying process waits for them: all are
//! looked after.

use crate::process::{Fate, fate, process_of};
use crate::recent::Recent;
use model::Errno;
use model::mutex::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use world::Instant;
use world::sync::oneshot;

/// How often waiting requests are looked after.
pub const TICK: Duration = Duration::from_millis(100);
/// Nobody looks at a request that is younger, unless it was interrupted.
const QUIET: Duration = Duration::from_millis(500);
/// An interrupted request of a process that cannot be seen (another pid namespace) ends after this.
const UNSEEN: Duration = Duration::from_millis(900);
/// A page read that nobody can be found for ends after this.
const PAGE_READ: Duration = Duration::from_secs(60);
/// Interrupts remembered that came before their request was listed.
const EARLY_MAX: usize = 4096;

/// What an interrupt means for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Ordinary,
    /// Waits for a lock: any signal ends it.
    LockWait,
    /// Asynchronous, perhaps: it outlives the thread that began it, and is wanted as long as its process
    /// lives.
    Direct,
    /// Fills the page cache.
    PageRead,
    /// Bounds its own time: never cancelled.
    Bounded,
}

struct Running {
    tid: u32,
    /// 0 until looked up.
    pid: u32,
    kind: Kind,
    since: Instant,
    interrupted: Option<Instant>,
    cancel: oneshot::Sender<Errno>,
}

#[derive(Default)]
struct RunningTable {
    running: BTreeMap<u64, Running>,
    early: VecDeque<u64>,
    ended: bool,
}

/// All requests that run in the background.
#[derive(Default)]
pub struct Table {
    inner: Mutex<RunningTable>,
    changed: Condvar,
    /// Processes of threads that asked.
    callers: Recent<u32, u32>,
}

struct Look {
    unique: u64,
    tid: u32,
    pid: u32,
    kind: Kind,
    age: Duration,
    interrupted: Option<Duration>,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, RunningTable> {
        self.inner.lock()
    }

    /// Lists a request; the receiver gets the errno to give up with.
    pub fn insert(&self, unique: u64, tid: u32, kind: Kind, now: Instant) -> oneshot::Receiver<Errno> {
        let (cancel, rx) = oneshot::channel();
        // Found when it began, if not before: by now the thread may be gone.
        let pid = if kind == Kind::Direct { self.process_of_caller(tid, now) } else { 0 };
        let mut t = self.lock();
        let early = t.early.iter().position(|u| *u == unique);
        let interrupted = early.map(|at| {
            t.early.remove(at);
            now
        });
        t.running.insert(unique, Running { tid, pid, kind, since: now, interrupted, cancel });
        drop(t);
        self.changed.notify_all();
        if interrupted.is_some() {
            self.look_after(unique, now);
        }
        rx
    }

    /// A request that may outlive its thread begins.
    pub fn note_caller(&self, tid: u32, now: Instant) {
        self.process_of_caller(tid, now);
    }

    /// The process of a thread that asks, looked up once in a while: 0 if it cannot be seen.
    fn process_of_caller(&self, tid: u32, now: Instant) -> u32 {
        if tid == 0 {
            return 0;
        }
        self.callers.get(&tid, now).unwrap_or_else(|| {
            let pid = process_of(tid);
            self.callers.note(tid, pid, now);
            pid
        })
    }

    pub fn remove(&self, unique: u64) {
        self.lock().running.remove(&unique);
    }

    /// Requests listed.
    pub fn count(&self) -> usize {
        self.lock().running.len()
    }

    /// The kernel says that a signal came in for whoever waits for `unique`. The request may be finished, or
    /// another worker may have read it and not have listed it yet.
    pub fn interrupt(&self, unique: u64, now: Instant) {
        let mut t = self.lock();
        match t.running.get_mut(&unique) {
            Some(r) => r.interrupted = Some(now),
            None => {
                if t.early.len() >= EARLY_MAX {
                    t.early.pop_front();
                }
                t.early.push_back(unique);
                assert!(t.early.len() <= EARLY_MAX, "so many early interrupts are remembered and no more");
                return;
            }
        }
        drop(t);
        self.look_after(unique, now);
    }

    fn look_after(&self, unique: u64, now: Instant) {
        let look = self.lock().running.get(&unique).map(|r| look_at(unique, r, now));
        if let Some(l) = look {
            self.decide(&l);
        }
    }

    fn decide(&self, l: &Look) {
        if let Some(e) = verdict(l) {
            self.cancel(l.unique, e);
        }
    }

    fn cancel(&self, unique: u64, e: Errno) {
        if let Some(r) = self.lock().running.remove(&unique) {
            tracing::debug!(unique, tid = r.tid, kind = ?r.kind, "given up: {e}");
            let _ = r.cancel.send(e);
        }
    }

    /// Gives up every request (the mount is being shut down).
    pub fn cancel_all(&self, e: Errno) {
        let all = std::mem::take(&mut self.lock().running);
        for (_, r) in all {
            let _ = r.cancel.send(e);
        }
    }

    /// One look at every request that waits for long or was interrupted.
    pub fn tick(&self, now: Instant) {
        let looks: Vec<Look> = {
            let t = self.lock();
            let due = |r: &Running| {
                r.kind != Kind::Bounded && (r.interrupted.is_some() || now.since(r.since) >= QUIET)
            };
            t.running.iter().filter(|(_, r)| due(r)).map(|(u, r)| look_at(*u, r, now)).collect()
        };
        for mut l in looks {
            if l.pid == 0 && l.tid != 0 {
                l.pid = process_of(l.tid);
                if let Some(r) = self.lock().running.get_mut(&l.unique) {
                    r.pid = l.pid;
                }
            }
            self.decide(&l);
        }
    }

    /// Runs on a thread of its own until [`Table::end`].
    pub fn watch(&self, now: impl Fn() -> Instant) {
        loop {
            {
                let mut t = self.lock();
                while t.running.is_empty() && !t.ended {
                    t = self.changed.wait(t);
                }
                if t.ended {
                    return;
                }
            }
            world::sys::sleep(TICK);
            self.tick(now());
        }
    }

    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }
}

fn look_at(unique: u64, r: &Running, now: Instant) -> Look {
    Look {
        unique,
        tid: r.tid,
        pid: r.pid,
        kind: r.kind,
        age: now.since(r.since),
        interrupted: r.interrupted.map(|i| now.since(i)),
    }
}

/// The errno to give a request up with, if it is time.
fn verdict(l: &Look) -> Option<Errno> {
    match (l.kind, l.interrupted) {
        (Kind::Bounded, _) => None,
        (Kind::LockWait, Some(_)) => Some(Errno::EINTR),
        (_, Some(since)) if l.tid == 0 => (since >= UNSEEN).then_some(Errno::EINTR),
        (Kind::PageRead, None) if l.tid == 0 => (l.age >= PAGE_READ).then_some(Errno::EIO),
        _ if l.tid == 0 => None,
        (kind, interrupted) => match fate(l.tid, l.pid) {
            Fate::Lives => None,
            Fate::Dying => Some(Errno::EINTR),
            // Somebody who waits for a page asks for it again; a thread that waits itself is never gone.
            Fate::Unknown if kind == Kind::PageRead => Some(Errno::EINTR),
            Fate::Unknown => interrupted.is_some_and(|since| since >= UNSEEN).then_some(Errno::EINTR),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Instant = Instant(0);

    fn after(ms: u64) -> Instant {
        T0.plus(Duration::from_millis(ms))
    }

    #[test]
    fn a_lock_wait_ends_at_any_signal() {
        let t = Table::default();
        let mut rx = t.insert(2, std::process::id(), Kind::LockWait, T0);
        assert!(rx.try_recv().is_err());
        t.interrupt(2, after(1));
        assert_eq!(rx.try_recv(), Ok(Errno::EINTR));
        assert!(t.count() == 0);
    }

    #[test]
    fn an_early_interrupt_is_remembered() {
        let t = Table::default();
        t.interrupt(4, T0);
        let mut rx = t.insert(4, std::process::id(), Kind::LockWait, T0);
        assert_eq!(rx.try_recv(), Ok(Errno::EINTR));
        for u in 0..2 * EARLY_MAX as u64 {
            t.interrupt(1000 + 2 * u, T0);
        }
        assert!(t.lock().early.len() <= EARLY_MAX);
    }

    #[test]
    fn a_living_process_keeps_its_request() {
        let t = Table::default();
        let mut rx = t.insert(6, std::process::id(), Kind::Ordinary, T0);
        t.interrupt(6, after(1));
        t.tick(after(5000));
        assert!(rx.try_recv().is_err());
        t.remove(6);
        assert!(t.count() == 0);
    }

    #[test]
    fn a_gone_process_is_noticed_without_an_interrupt() {
        let t = Table::default();
        let mut rx = t.insert(8, u32::MAX, Kind::PageRead, T0);
        let mut bounded = t.insert(10, u32::MAX, Kind::Bounded, T0);
        t.tick(after(100));
        assert!(rx.try_recv().is_err(), "young requests are left alone");
        t.tick(after(600));
        assert_eq!(rx.try_recv(), Ok(Errno::EINTR));
        assert!(bounded.try_recv().is_err());
    }

    #[test]
    fn direct_io_outlives_the_thread_that_began_it() {
        let t = std::sync::Arc::new(Table::default());
        let begin = |unique| {
            let (tx, rx) = std::sync::mpsc::channel();
            let u = t.clone();
            let insert = move || {
                let tid = crate::process::this_thread();
                let _ = tx.send((tid, u.insert(unique, tid, Kind::Direct, T0)));
            };
            world::sys::thread("begins", insert).unwrap();
            let (tid, cancelled) = rx.recv().unwrap();
            let gone = |_| {
                world::sys::sleep(Duration::from_millis(1));
                process_of(tid) == 0
            };
            assert!((0..10_000).any(gone), "the thread does not end");
            cancelled
        };
        let mut rx = begin(14);
        t.tick(after(600));
        t.tick(after(5000));
        assert!(rx.try_recv().is_err(), "its process lives");
        // Gone before it could be looked at: nobody knows whose it was.
        let mut lost = t.insert(16, u32::MAX, Kind::Direct, T0);
        t.tick(after(5000));
        assert!(lost.try_recv().is_err());
        let mut gone = t.insert(18, u32::MAX, Kind::PageRead, T0);
        t.tick(after(5000));
        assert_eq!(gone.try_recv(), Ok(Errno::EINTR));
    }

    #[test]
    fn an_unseen_process_is_believed_after_a_while() {
        let t = Table::default();
        let mut rx = t.insert(12, 0, Kind::Ordinary, T0);
        t.tick(after(10_000));
        assert!(rx.try_recv().is_err());
        t.interrupt(12, after(10_000));
        t.tick(after(10_500));
        assert!(rx.try_recv().is_err());
        t.tick(after(10_900));
        assert_eq!(rx.try_recv(), Ok(Errno::EINTR));
    }
}
