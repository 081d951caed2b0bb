//! Which sockets have news, and who looks.
//!
//! One epoll instance (`outer`) is what idle threads of the executor sleep in. Sockets are registered
//! edge-triggered: a source counts its events, its user remembers up to which of them it emptied the socket,
//! and so neither a lock nor a second system call is needed to know whether there may be more.
//!
//! With helpers (threads outside the executor that wait for one answer each, `helper.rs`) sockets lie in an
//! instance of their own (`inner`), which is part of the outer one. A helper that leads takes the inner one
//! out of the outer's sight and sleeps in it itself: what it waits for arrives on its own thread. When it
//! leaves it puts it back, and what came meanwhile is reported to the idle threads by that act: nothing gets
//! lost, and nobody has to be woken.

use crate::lock;
use model::Map;
use model::mutex::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

/// Not sockets: the inner instance, the bell of the idle threads, the alarm of the leading helper.
const INNER: u64 = 0;
const BELL: u64 = 1;
const ALARM: u64 = 2;
const FIRST_SOURCE: u64 = 16;
/// Events taken at a time.
const BATCH: usize = 32;

/// The events of one descriptor.
#[derive(Default)]
pub(super) struct Source {
    reads: AtomicU64,
    writes: AtomicU64,
    /// The peer will send no more, or the connection failed: there is always something to be read now.
    ended: AtomicBool,
    wakers: Mutex<[Option<Waker>; 2]>,
}

/// What a source's user waits for.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Read = 0,
    Write = 1,
}

impl Source {
    /// Events of one side so far. Whoever finds the socket empty (full) afterwards waits for more than these.
    pub fn events(&self, side: Side) -> u64 {
        match side {
            Side::Read => self.reads.load(Ordering::Acquire),
            Side::Write => self.writes.load(Ordering::Acquire),
        }
    }

    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Wakes `cx` at the next event. True if there was one since `seen` already: look again.
    pub fn wait(&self, side: Side, seen: u64, cx: &Context<'_>) -> bool {
        {
            let mut w = lock(&self.wakers);
            let w = &mut w[side as usize];
            if !w.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                *w = Some(cx.waker().clone());
            }
        }
        self.events(side) != seen || (matches!(side, Side::Read) && self.ended())
    }

    fn happened(&self, flags: EventFlags) {
        let gone = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if gone {
            self.ended.store(true, Ordering::Release);
        }
        let read = gone || flags.contains(EventFlags::IN);
        let write = flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR);
        if read {
            self.reads.fetch_add(1, Ordering::AcqRel);
        }
        if write {
            self.writes.fetch_add(1, Ordering::AcqRel);
        }
        let (r, w) = {
            let mut w = lock(&self.wakers);
            (w[0].take_if(|_| read), w[1].take_if(|_| write))
        };
        for w in [r, w].into_iter().flatten() {
            w.wake();
        }
    }
}

/// A registered descriptor; taken out again when dropped.
pub(super) struct Registration {
    reactor: Arc<Reactor>,
    token: u64,
    pub source: Arc<Source>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.reactor.sources).remove(&self.token);
    }
}

/// What a look at the events found besides sockets.
#[derive(Default, Clone, Copy)]
pub(super) struct Signs {
    /// Some thread was to look at the queue of tasks.
    pub bell: bool,
    /// The leading helper was to look up.
    pub alarm: bool,
}

pub(super) struct Reactor {
    outer: OwnedFd,
    inner: Option<OwnedFd>,
    bell: OwnedFd,
    alarm: OwnedFd,
    sources: Mutex<Map<u64, Arc<Source>>>,
    next_token: AtomicU64,
}

const EDGE: EventFlags = EventFlags::IN.union(EventFlags::ET);

impl Reactor {
    pub fn new(helpers: bool) -> io::Result<Arc<Reactor>> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let (outer, bell, alarm) = (epoll::create(CreateFlags::CLOEXEC)?, event()?, event()?);
        epoll::add(&outer, &bell, EventData::new_u64(BELL), EDGE)?;
        let inner = if helpers {
            let inner = epoll::create(CreateFlags::CLOEXEC)?;
            epoll::add(&inner, &alarm, EventData::new_u64(ALARM), EDGE)?;
            epoll::add(&outer, &inner, EventData::new_u64(INNER), EDGE)?;
            Some(inner)
        } else {
            None
        };
        Ok(Arc::new(Reactor {
            outer,
            inner,
            bell,
            alarm,
            sources: Mutex::default(),
            next_token: AtomicU64::new(FIRST_SOURCE),
        }))
    }

    /// Watches a descriptor until the registration is dropped (before the descriptor is).
    pub fn register(self: &Arc<Self>, fd: BorrowedFd<'_>) -> io::Result<Registration> {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let source = Arc::new(Source::default());
        let other = lock(&self.sources).insert(token, source.clone());
        assert!(other.is_none(), "numbers of descriptors that are watched are never reused");
        let registration = Registration { reactor: self.clone(), token, source };
        let all = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(self.inner.as_ref().unwrap_or(&self.outer), fd, EventData::new_u64(token), all)?;
        Ok(registration)
    }

    /// Whether helpers may lead here.
    pub fn has_helpers(&self) -> bool {
        self.inner.is_some()
    }

    /// Makes one idle thread look at the queue.
    pub fn ring(&self) {
        ring(&self.bell);
    }

    /// Makes the leading helper look up.
    pub fn alarm(&self) {
        ring(&self.alarm);
    }

    /// Idle threads look after the sockets, or leave that to a helper.
    pub fn set_armed(&self, on: bool) {
        let Some(inner) = &self.inner else { return };
        let flags = if on { EDGE } else { EventFlags::empty() };
        epoll::modify(&self.outer, inner, EventData::new_u64(INNER), flags)
            .expect("the inner instance is registered as long as the reactor lives");
    }

    /// Sleeps until there is an event (for `patience` at most; `None`: for ever), and wakes who waits for it;
    /// calls `awake` between the two.
    pub fn turn(&self, patience: Option<Duration>, awake: impl FnOnce()) -> Signs {
        let (mut signs, nested, _) = self.wait(&self.outer, patience, awake);
        if nested && let Some(inner) = &self.inner {
            loop {
                let (s, _, full) = self.wait(inner, Some(Duration::ZERO), || ());
                signs.alarm |= s.alarm;
                if !full {
                    break;
                }
            }
        }
        signs
    }

    /// The same for a helper that leads: sockets only.
    pub fn turn_inner(&self, patience: Duration, awake: impl FnOnce()) {
        let inner = self.inner.as_ref().expect("only with helpers");
        self.wait(inner, Some(patience), awake);
    }

    /// The signs, whether the inner instance has news, whether there may be more.
    fn wait(&self, on: &OwnedFd, patience: Option<Duration>, awake: impl FnOnce()) -> (Signs, bool, bool) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(BATCH);
        let limit = patience.map(|d| Timespec {
            tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(d.subsec_nanos()),
        });
        match epoll::wait(on, spare_capacity(&mut events), limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => panic!("epoll_wait: {e}"),
        }
        awake();
        let (mut signs, mut nested) = (Signs::default(), false);
        for e in &events {
            let (token, flags) = (e.data.u64(), e.flags);
            match token {
                INNER => nested = true,
                BELL => signs.bell = true,
                ALARM => signs.alarm = true,
                token => {
                    // Those that were dropped meanwhile are not found any more.
                    let source = lock(&self.sources).get(&token).cloned();
                    if let Some(s) = source {
                        s.happened(flags);
                    }
                }
            }
        }
        (signs, nested, events.len() == BATCH)
    }
}

/// Edge-triggered: each write is an event, nobody reads the number.
fn ring(bell: &impl AsFd) {
    // The number is far from its end as long as nobody rings 2^64 times.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}
