//! Threads outside the executor that wait for one future each.
//!
//! The first of them leads: it sleeps on the sockets itself, so that the answer it waits for is read, decoded
//! and delivered on the thread that wants it, and nobody has to be woken for it. The others sleep as usual,
//! and the leader serves them too. A leader that leaves names its successor, or gives the sockets back to the
//! executor.

use super::exec::Exec;
use super::reactor::Reactor;
use crate::lock;
use model::mutex::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A waiting thread's state: it is busy, sleeps in `park`, sleeps on the sockets, is to poll again.
const BUSY: u8 = 0;
const PARKED: u8 = 1;
const LISTENING: u8 = 2;
const WOKEN: u8 = 3;

struct Helper {
    state: AtomicU8,
    thread: std::thread::Thread,
    /// The leader before it named it its successor.
    leads: AtomicBool,
    reactor: Arc<Reactor>,
}

impl Wake for Helper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match self.state.swap(WOKEN, Ordering::AcqRel) {
            PARKED => self.thread.unpark(),
            LISTENING => self.reactor.alarm(),
            _ => {}
        }
    }
}

impl Helper {
    /// About to sleep; false if it is to poll first.
    fn begin(&self, how: u8) -> bool {
        self.state.compare_exchange(BUSY, how, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Slept enough; keeps in mind if it was woken.
    fn end(&self, how: u8) {
        let _ = self.state.compare_exchange(how, BUSY, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether it was woken since the last time.
    fn woken(&self) -> bool {
        self.state.load(Ordering::Acquire) == WOKEN && self.state.swap(BUSY, Ordering::AcqRel) == WOKEN
    }
}

#[derive(Default)]
struct Group {
    led: bool,
    /// Those who sleep and would lead.
    others: VecDeque<Arc<Helper>>,
}

/// All helpers of an executor.
#[derive(Default)]
pub(super) struct Helpers {
    group: Mutex<Group>,
}

impl Helpers {
    /// The leader's alarm was heard by somebody else, who looked at the sockets at the same moment.
    pub fn repeat_alarm(&self, reactor: &Reactor) {
        if lock(&self.group).led {
            reactor.alarm();
        }
    }

    /// Makes `h` the leader if there is none, else one of those who follow.
    fn join(&self, h: &Arc<Helper>, reactor: &Reactor) {
        assert!(!h.leads.load(Ordering::Acquire), "a helper joins before it leads");
        let mut g = lock(&self.group);
        if g.led {
            g.others.push_back(h.clone());
        } else {
            g.led = true;
            h.leads.store(true, Ordering::Release);
            reactor.set_armed(false);
        }
    }

    fn leave(&self, h: &Arc<Helper>, reactor: &Reactor) {
        let next = {
            let mut g = lock(&self.group);
            if !h.leads.load(Ordering::Acquire) {
                g.others.retain(|o| !Arc::ptr_eq(o, h));
                return;
            }
            assert!(g.led, "the group is led until its leader leaves");
            let next = g.others.pop_front();
            match &next {
                Some(n) => n.leads.store(true, Ordering::Release),
                None => {
                    g.led = false;
                    reactor.set_armed(true);
                }
            }
            next
        };
        if let Some(n) = next {
            n.wake();
        }
    }
}

/// A thread's part in the group of one executor's helpers, for as long as it waits.
struct Membership {
    exec: Arc<Exec>,
    me: Arc<Helper>,
    joined: Cell<bool>,
}

impl Membership {
    fn join(&self) {
        if !self.joined.replace(true) {
            self.exec.helpers.join(&self.me, &self.exec.reactor);
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if self.joined.get() {
            self.exec.helpers.leave(&self.me, &self.exec.reactor);
        }
    }
}

thread_local! {
    static WAITING: RefCell<Option<Membership>> = const { RefCell::new(None) };
}

/// This thread is about to send something: if it will wait for the answer, it must look after the sockets
/// before that can arrive, or an idle thread is woken for it.
pub(super) fn before_send(exec: &Arc<Exec>) {
    WAITING.with_borrow(|w| {
        if let Some(m) = w.as_ref().filter(|m| Arc::ptr_eq(&m.exec, exec)) {
            m.join();
        }
    });
}

/// Polls `f` on this thread until it is ready or `patience` is over.
pub(super) fn block_on_for(
    exec: &Arc<Exec>,
    f: Pin<&mut (dyn Future<Output = ()> + Send)>,
    patience: Duration,
) -> bool {
    let nested = WAITING.with_borrow(Option::is_some);
    if nested || !exec.reactor.has_helpers() {
        return crate::future::block_on_for(f, patience);
    }
    let me = Arc::new(Helper {
        state: AtomicU8::new(BUSY),
        thread: std::thread::current(),
        leads: AtomicBool::new(false),
        reactor: exec.reactor.clone(),
    });
    let m = Membership { exec: exec.clone(), me: me.clone(), joined: Cell::new(false) };
    WAITING.with_borrow_mut(|w| *w = Some(m));
    // Leaves the group whatever happens.
    let _end = End;
    wait(exec, &me, f, patience)
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        let m = WAITING.with_borrow_mut(Option::take);
        drop(m);
    }
}

#[allow(clippy::disallowed_methods)] // the production side of the boundary: real time, real thread
fn wait(
    exec: &Exec,
    me: &Arc<Helper>,
    mut f: Pin<&mut (dyn Future<Output = ()> + Send)>,
    patience: Duration,
) -> bool {
    let waker = Waker::from(me.clone());
    let mut cx = Context::from_waker(&waker);
    let mut end = None;
    loop {
        if let Poll::Ready(()) = f.as_mut().poll(&mut cx) {
            return true;
        }
        WAITING.with_borrow(|w| w.as_ref().expect("set by the caller").join());
        loop {
            if me.woken() {
                break;
            }
            let now = Instant::now();
            let left = end.get_or_insert(now + patience).saturating_duration_since(now);
            if left.is_zero() {
                return false;
            }
            if me.leads.load(Ordering::Acquire) && !exec.stopping() {
                if me.begin(LISTENING) {
                    exec.lead_once(left, || me.end(LISTENING));
                }
            } else if me.begin(PARKED) {
                std::thread::park_timeout(left);
                me.end(PARKED);
            }
        }
    }
}
