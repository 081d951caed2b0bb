//! Files that were just made, until their makers have come back from the kernel.
//!
//! The kernel takes over the attributes in the answer to CREATE without a look at what was revoked since it
//! asked. It makes the inode first and sets its attributes then: an invalidation that falls between the two
//! finds the inode, and is undone. So an invalidation of such a file counts only once the thread that asked
//! is known to be past that: it asks something else, or sleeps elsewhere, or has gone on for longer than two
//! clock ticks. Nobody else can have changed the file through this mount in between, as the thread holds the
//! lock of the directory all the time.

use crate::process::{self, Activity};
use model::mutex::{Mutex, MutexGuard};
use model::{Fid, Map};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads whose last answer was a new file. More are told that they must ask again.
const MAX: usize = 1024;
/// Two ticks of the slowest clock: the first may have been counted a moment after the thread was looked at.
const BACK_NS: u64 = 20_000_000;
/// Looks at a thread of which the kernel does not say how long it ran.
const LOOKS_MAX: u32 = 100;

struct Maker {
    fid: Fid,
    /// What it had run when it was looked at first.
    ran_ns: Option<u64>,
    looks: u32,
}

impl Maker {
    /// Whether it has come back from the kernel, as far as its activity tells.
    fn is_back(&mut self, a: Activity) -> bool {
        self.looks += 1;
        let went_on = match a.ran_ns {
            Some(ns) => ns > *self.ran_ns.get_or_insert(ns) + BACK_NS,
            None => self.looks > LOOKS_MAX,
        };
        !a.runs || went_on
    }
}

/// All of one mount: thread → what it makes.
#[derive(Default)]
pub struct Making {
    makers: Mutex<Map<u32, Maker>>,
    /// How many there are, to be read without the lock.
    count: AtomicUsize,
}

impl Making {
    fn lock(&self) -> MutexGuard<'_, Map<u32, Maker>> {
        self.makers.lock()
    }

    /// A thread is about to be answered that it made a file. False if that cannot be remembered.
    pub fn begin(&self, tid: u32, fid: Fid) -> bool {
        let mut m = self.lock();
        if tid == 0 || (m.len() >= MAX && !m.contains_key(&tid)) {
            return false;
        }
        m.insert(tid, Maker { fid, ran_ns: None, looks: 0 });
        assert!(m.len() <= MAX, "what is remembered is bounded");
        self.count.store(m.len(), Ordering::Release);
        true
    }

    /// A thread asks something that it waits for: it is back.
    pub fn end(&self, tid: u32) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut m = self.lock();
            m.remove(&tid);
            self.count.store(m.len(), Ordering::Release);
        }
    }

    /// The inode was there when it was invalidated a moment ago. Whether that must be done again:
    /// `Some(true)` now, `Some(false)` a little later.
    pub fn again(&self, fid: Fid) -> Option<bool> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut m = self.lock();
        let tids: Vec<u32> = m.iter().filter(|(_, x)| x.fid == fid).map(|(tid, _)| *tid).collect();
        if tids.is_empty() {
            return None;
        }
        let mut all = true;
        for tid in tids {
            let maker = m.get_mut(&tid).expect("found above");
            let back = process::activity(tid).is_none_or(|a| maker.is_back(a));
            if back {
                m.remove(&tid);
            }
            all &= back;
        }
        self.count.store(m.len(), Ordering::Release);
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maker_is_back_when_it_asks_sleeps_or_is_gone() {
        let (m, f) = (Making::default(), Fid::new(7, 1, 0));
        assert_eq!(m.again(f), None);
        assert!(!m.begin(0, f), "the kernel's own thread, or one of a foreign namespace");
        // This thread runs: what it does takes less than a tick, or the answer may be another.
        let me = process::this_thread();
        assert!(m.begin(me, f));
        if m.again(f) == Some(false) {
            assert_eq!(m.again(Fid::new(7, 2, 0)), None);
            m.end(me);
        }
        assert_eq!(m.again(f), None);
        assert!(m.begin(u32::MAX, f));
        assert_eq!((m.again(f), m.again(f)), (Some(true), None), "there is no such thread");
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (tell, tid) = std::sync::mpsc::channel();
        world::sys::thread("test", move || {
            let _ = tell.send(process::this_thread());
            let _ = wait.recv();
        })
        .unwrap();
        let tid = tid.recv().unwrap();
        assert!(m.begin(tid, f));
        while m.again(f) == Some(false) {
            world::sys::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(m.again(f), None, "it sleeps");
        drop(go);
    }

    #[test]
    fn their_number_is_bounded() {
        let (m, f) = (Making::default(), Fid::new(7, 1, 0));
        (1..=MAX as u32).for_each(|tid| assert!(m.begin(tid, f)));
        assert!(!m.begin(MAX as u32 + 1, f) && m.begin(5, f));
        m.end(7);
        assert!(m.begin(MAX as u32 + 1, f));
    }
}
