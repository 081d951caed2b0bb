//! Runs tasks on a few threads that sleep in the reactor when there is nothing to do.
//!
//! What matters here is how seldom one thread has to wake another, as that costs more than most of what a
//! task does between two waits: a task that is woken or spawned by what a thread just did is run by that very
//! thread next, and only if there is a second one does another thread hear of it.

use super::reactor::Reactor;
use crate::{BoxFuture, lock};
use model::Map;
use model::mutex::Mutex;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Tasks a thread runs before it looks after the sockets again.
const LOOK_AFTER: usize = 32;
/// Tasks in a row that were each woken by the one before, before others have their turn.
const CHAIN_MAX: usize = 8;

/// A task's state: nobody will run it, it is queued, it runs, it runs and is to run again, it is over.
const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const AGAIN: u8 = 3;
const DONE: u8 = 4;

pub(super) struct Task {
    exec: Arc<Exec>,
    number: u64,
    name: &'static str,
    state: AtomicU8,
    future: Mutex<Option<BoxFuture<()>>>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let mut now = self.state.load(Ordering::Acquire);
        loop {
            let next = match now {
                IDLE => QUEUED,
                RUNNING => AGAIN,
                _ => return,
            };
            match self.state.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if next == QUEUED => return self.exec.clone().schedule(self),
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !matches!(self.state.load(Ordering::Acquire), QUEUED | AGAIN | DONE) {
            self.clone().wake();
        }
    }
}

impl Task {
    /// Polls it once.
    pub fn run(self: Arc<Self>) {
        if self.state.compare_exchange(QUEUED, RUNNING, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // Dropped with all others while it waited for its turn.
            return;
        }
        let waker = Waker::from(self.clone());
        let over = {
            let mut slot = lock(&self.future);
            let Some(f) = slot.as_mut() else { return self.end() };
            let poll = AssertUnwindSafe(|| f.as_mut().poll(&mut Context::from_waker(&waker)));
            // The panic was told by its hook; unless the task is essential it ends the task alone.
            let polled = catch_unwind(poll);
            if polled.is_err() {
                self.exec.panicked(self.name);
            }
            !matches!(polled, Ok(Poll::Pending))
        };
        if over {
            return self.end();
        }
        match self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(DONE) => {}
            Err(state) => {
                assert_eq!(state, AGAIN, "a task that runs is woken, over, or neither");
                let again = self.state.compare_exchange(AGAIN, QUEUED, Ordering::AcqRel, Ordering::Acquire);
                if again.is_ok() {
                    self.exec.push(self.clone());
                }
            }
        }
    }

    fn end(&self) {
        self.state.store(DONE, Ordering::Release);
        lock(&self.exec.tasks).remove(&self.number);
        let future = lock(&self.future).take();
        if catch_unwind(AssertUnwindSafe(|| drop(future))).is_err() {
            self.exec.panicked(self.name);
        }
    }
}

/// What a thread does for an executor.
enum Role {
    None,
    /// Runs tasks; the one to run next.
    Runner(Option<Arc<Task>>),
    /// Looks after the sockets for itself; the tasks that are woken by that.
    Collector(Vec<Arc<Task>>),
}

struct Here {
    exec: u64,
    role: Role,
}

thread_local! {
    static HERE: RefCell<Here> = const { RefCell::new(Here { exec: 0, role: Role::None }) };
}

/// A thread blocks until this is dropped.
struct Standing<'a>(&'a AtomicUsize);

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "whoever stands is counted");
    }
}

static NEXT_EXEC: AtomicU64 = AtomicU64::new(1);

pub(super) struct Exec {
    number: u64,
    pub reactor: Arc<Reactor>,
    queue: Mutex<VecDeque<Arc<Task>>>,
    /// Threads that sleep in the reactor, or are about to.
    idle: AtomicUsize,
    /// A bell was rung and nobody heard it yet.
    ringing: AtomicBool,
    /// Threads that block in a task ([`Exec::run_here`]).
    standing: AtomicUsize,
    /// Every task that is not over.
    tasks: Mutex<Map<u64, Arc<Task>>>,
    next_task: AtomicU64,
    threads: AtomicUsize,
    stopping: AtomicBool,
    /// Tasks with other names than these end the process when they panic.
    essential_but: OnceLock<&'static [&'static str]>,
    pub helpers: super::helper::Helpers,
}

impl Exec {
    /// Starts `threads` threads.
    pub fn start(reactor: Arc<Reactor>, threads: usize) -> std::io::Result<(Arc<Exec>, Vec<Thread>)> {
        let exec = Arc::new(Exec {
            number: NEXT_EXEC.fetch_add(1, Ordering::Relaxed),
            reactor,
            queue: Mutex::default(),
            idle: AtomicUsize::new(0),
            ringing: AtomicBool::new(false),
            standing: AtomicUsize::new(0),
            tasks: Mutex::default(),
            next_task: AtomicU64::new(0),
            threads: AtomicUsize::new(threads),
            stopping: AtomicBool::new(false),
            essential_but: OnceLock::new(),
            helpers: super::helper::Helpers::default(),
        });
        let mut handles = Vec::new();
        for n in 0..threads {
            let e = exec.clone();
            let t = std::thread::Builder::new().name(format!("nacre-{n}")).spawn(move || e.work());
            match t {
                Ok(t) => handles.push(t),
                Err(e) => {
                    exec.threads.fetch_sub(threads - n, Ordering::AcqRel);
                    exec.stop();
                    return Err(e);
                }
            }
        }
        Ok((exec, handles))
    }

    /// See [`super::Runtime::end_on_panic`].
    pub fn end_on_panic(&self, but: &'static [&'static str]) {
        let _ = self.essential_but.set(but);
        model::mutex::end_process_if_torn();
    }

    /// A task panicked. If others wait for what it does, they would wait for ever: better the whole process
    /// ends, which somebody sees.
    pub fn panicked(&self, name: &'static str) {
        if self.essential_but.get().is_some_and(|but| !but.contains(&name)) {
            tracing::error!("task '{name}' panicked: the process ends, so that nobody waits for it for ever");
            std::process::abort();
        }
    }

    pub fn spawn(self: &Arc<Self>, name: &'static str, future: BoxFuture<()>) {
        let number = self.next_task.fetch_add(1, Ordering::Relaxed);
        let task = Arc::new(Task {
            exec: self.clone(),
            number,
            name,
            state: AtomicU8::new(QUEUED),
            future: Mutex::new(Some(future)),
        });
        {
            let mut t = lock(&self.tasks);
            // Looked at with the lock held: what is inserted before the end is dropped at the end.
            if self.stopping() && self.threads.load(Ordering::Acquire) == 0 {
                drop(t);
                return task.end();
            }
            let other = t.insert(number, task.clone());
            assert!(other.is_none(), "numbers of tasks are never reused");
        }
        self.schedule(task);
    }

    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The threads end after the task that they run; every other task is dropped by the last of them.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.reactor.ring();
        self.reactor.alarm();
    }

    /// A task is to run: next on this thread if that looks for something to do, else on some thread.
    fn schedule(&self, task: Arc<Task>) {
        let mut task = Some(task);
        let _ = HERE.try_with(|h| {
            // Borrowed already only while a task is dropped from within: the queue takes it.
            let Ok(mut h) = h.try_borrow_mut() else { return };
            if h.exec != self.number {
                return;
            }
            match &mut h.role {
                Role::Runner(next) if next.is_none() => *next = task.take(),
                Role::Collector(all) => all.extend(task.take()),
                Role::Runner(_) | Role::None => {}
            }
        });
        if let Some(t) = task {
            self.push(t);
        }
    }

    /// Puts a task behind all others and makes sure that somebody looks.
    fn push(&self, task: Arc<Task>) {
        lock(&self.queue).push_back(task);
        self.ring_if_idle();
    }

    /// One bell at a time: who hears it looks at the queue, and rings for the next one if there is more.
    fn ring_if_idle(&self) {
        fence(Ordering::SeqCst);
        if self.idle.load(Ordering::SeqCst) > 0 && !self.ringing.swap(true, Ordering::AcqRel) {
            self.reactor.ring();
        }
    }

    /// Runs something that blocks, on this thread. Gives it back if this is none of the executor's threads,
    /// if no other one is idle, or if too few would be left should they all block.
    pub fn run_here(&self, f: Box<dyn FnOnce() + Send>) -> Option<Box<dyn FnOnce() + Send>> {
        let runs = HERE.with_borrow(|h| h.exec == self.number && matches!(h.role, Role::Runner(_)));
        if !runs || self.idle.load(Ordering::SeqCst) == 0 {
            return Some(f);
        }
        let _standing = Standing(&self.standing);
        if self.standing.fetch_add(1, Ordering::AcqRel) + 1 >= self.threads.load(Ordering::Acquire) {
            return Some(f);
        }
        // What would be next here is not to wait.
        if let Some(t) = Self::take_next() {
            self.push(t);
        }
        f();
        None
    }

    fn take_next() -> Option<Arc<Task>> {
        HERE.with_borrow_mut(|h| match &mut h.role {
            Role::Runner(next) => next.take(),
            _ => None,
        })
    }

    /// What a thread does all its life.
    fn work(self: Arc<Self>) {
        HERE.with_borrow_mut(|h| *h = Here { exec: self.number, role: Role::Runner(None) });
        let (mut ran, mut chain) = (0, 0);
        while !self.stopping() {
            let mut task = Self::take_next();
            chain = if task.is_some() { chain + 1 } else { 0 };
            if chain > CHAIN_MAX
                && let Some(t) = task.take()
            {
                lock(&self.queue).push_back(t);
                chain = 0;
            }
            let task = task.or_else(|| lock(&self.queue).pop_front());
            match task {
                Some(t) => {
                    t.run();
                    ran += 1;
                    if ran >= LOOK_AFTER {
                        ran = 0;
                        self.look(Some(Duration::ZERO), || ());
                    }
                }
                None => {
                    ran = 0;
                    self.idle.fetch_add(1, Ordering::SeqCst);
                    fence(Ordering::SeqCst);
                    let none = lock(&self.queue).is_empty() && !self.stopping();
                    let busy = || {
                        let before = self.idle.fetch_sub(1, Ordering::SeqCst);
                        assert!(before > 0, "whoever is idle is counted");
                    };
                    if none { self.look(None, busy) } else { busy() }
                }
            }
        }
        let left = Self::take_next();
        HERE.with_borrow_mut(|h| h.role = Role::None);
        drop(left);
        // The next one shall hear of it too.
        self.reactor.ring();
        if self.threads.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.drop_all();
        }
    }

    /// `awake` is called before anybody is woken.
    fn look(&self, patience: Option<Duration>, awake: impl FnOnce()) {
        let signs = self.reactor.turn(patience, awake);
        if signs.bell {
            self.ringing.store(false, Ordering::Release);
            // More than this thread can begin with: the next one is to help.
            if lock(&self.queue).len() > 1 {
                self.ring_if_idle();
            }
        }
        if signs.alarm {
            // It was meant for a helper that leads.
            self.helpers.repeat_alarm(&self.reactor);
        }
    }

    fn drop_all(&self) {
        lock(&self.queue).clear();
        let all = std::mem::take(&mut *lock(&self.tasks));
        for t in all.into_values() {
            t.end();
        }
        lock(&self.queue).clear();
    }

    /// Looks after the sockets on a thread that is none of ours, and runs what is woken by that.
    /// `awake` is called before anybody is woken.
    pub fn lead_once(&self, patience: Duration, awake: impl FnOnce()) {
        HERE.with_borrow_mut(|h| *h = Here { exec: self.number, role: Role::Collector(Vec::new()) });
        self.reactor.turn_inner(patience, awake);
        let role = HERE.with_borrow_mut(|h| std::mem::replace(&mut h.role, Role::None));
        let Role::Collector(tasks) = role else { unreachable!("set above, by this thread") };
        for t in tasks {
            t.run();
        }
    }
}

pub(super) type Thread = std::thread::JoinHandle<()>;
