//! Production: an executor of our own for tasks and sockets, tokio for timers, new connections and blocking
//! calls, plain system calls for the disk.
//!
//! `net` carries frames over TCP, `disk` is the host's file system, `clock` its clocks. `exec` runs tasks,
//! `reactor` tells them of their sockets, `helper` lets threads that wait for an answer do both (decision
//! 0014). A [`World`] made here works from any thread: whatever needs tokio's runtime enters it by itself.

mod cached;
pub(crate) mod clock;
mod disk;
mod exec;
mod helper;
mod net;
mod reactor;
mod reserved;
mod stream;
mod volatile;

pub use disk::RealDisk;
pub use volatile::VolatileDisk;

use crate::{BoxFuture, Rand, Spawn, World};
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;

/// Threads that blocking calls (disk flushes) may occupy at a time; more wait their turn.
const BLOCKING_THREADS_MAX: usize = 64;
/// How long [`Runtime::shutdown`] waits for tasks to come to their next wait, and for blocking calls under
/// way.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks whether the threads have ended.
const END_TICK: Duration = Duration::from_millis(1);

/// Owns the threads behind a real [`World`]. Dropping it abandons what still runs.
pub struct Runtime {
    exec: Arc<exec::Exec>,
    threads: Vec<exec::Thread>,
    rt: Option<tokio::runtime::Runtime>,
}

/// Starts a runtime with `workers` threads (2 suit most daemons) and gives access to the host.
pub fn start(workers: usize) -> io::Result<(World, Runtime)> {
    start_with(workers, false)
}

/// The same for a program whose own threads wait for answers in [`World::block_on_for`]: they look after the
/// sockets themselves meanwhile.
pub fn start_helped(workers: usize) -> io::Result<(World, Runtime)> {
    start_with(workers, true)
}

fn start_with(workers: usize, helpers: bool) -> io::Result<(World, Runtime)> {
    let rt = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("nacre-timer")
        .enable_all()
        .build()?;
    let handle = rt.handle().clone();
    let (exec, threads) = exec::Exec::start(reactor::Reactor::new(helpers)?, workers.max(1))?;
    let world = World {
        clock: Arc::new(clock::RealClock::new(handle.clone())),
        net: Arc::new(net::RealNet { handle: handle.clone(), exec: exec.clone() }),
        disk: host_disk(),
        rand: Arc::new(RealRand),
        tasks: Arc::new(RealSpawn { handle, exec: exec.clone() }),
    };
    Ok((world, Runtime { exec, threads, rt: Some(rt) }))
}

/// The host's disk, or for tests one that forgets what was not flushed when the process is killed.
fn host_disk() -> Arc<dyn crate::Disk> {
    match std::env::var_os("NACRE_VOLATILE_DISK") {
        Some(v) if v == "1" => {
            tracing::warn!("NACRE_VOLATILE_DISK=1: what is not flushed is lost when this process dies");
            Arc::new(VolatileDisk::new(Arc::new(RealDisk)))
        }
        _ => Arc::new(RealDisk),
    }
}

impl Runtime {
    fn rt(&self) -> &tokio::runtime::Runtime {
        self.rt.as_ref().expect("present until drop")
    }

    /// From now on a task that panics ends the process, unless its name is in `but`: in a daemon others wait
    /// for each of them, and would wait for ever, while pings are answered and nobody takes over. Who finds a
    /// lock whose holder panicked ends the process as well (decision 0053). Without this a panic ends the
    /// task alone.
    pub fn end_on_panic(&self, but: &'static [&'static str]) {
        self.exec.end_on_panic(but);
    }

    /// Runs `f` on the calling thread; must not be called from a task of the runtime.
    pub fn block_on<T>(&self, f: impl Future<Output = T>) -> T {
        // One loop is compiled for each type of result, not for each future.
        let f: Pin<&mut dyn Future<Output = T>> = pin!(f);
        self.rt().block_on(f)
    }

    /// Drops every task and waits a few seconds for blocking calls under way. Must not be called from a task.
    pub fn shutdown(mut self) {
        self.end_tasks();
        if let Some(rt) = self.rt.take() {
            rt.shutdown_timeout(SHUTDOWN_PATIENCE);
        }
    }

    /// The threads end after the polls that they are in.
    fn end_tasks(&mut self) {
        self.exec.stop();
        let end = crate::sys::Deadline::after(SHUTDOWN_PATIENCE);
        let me = std::thread::current().id();
        for t in self.threads.drain(..).filter(|t| t.thread().id() != me) {
            while !t.is_finished() && !end.passed() {
                crate::sys::sleep(END_TICK);
            }
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Before the timers go: a task that finds none of them any more panics.
        self.end_tasks();
        if let Some(rt) = self.rt.take() {
            rt.shutdown_background();
        }
    }
}

/// Polls its future inside the runtime, so that any thread may poll it.
pub(crate) struct Entered<F> {
    handle: Handle,
    future: Pin<Box<F>>,
}

impl<F: Future> Entered<F> {
    pub(crate) fn new(handle: Handle, future: F) -> Entered<F> {
        Entered { handle, future: Box::pin(future) }
    }
}

impl<F: Future> Future for Entered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let _guard = this.handle.enter();
        this.future.as_mut().poll(cx)
    }
}

struct RealRand;

impl Rand for RealRand {
    fn fill(&self, buf: &mut [u8]) {
        getrandom::fill(buf).expect("the host gives random bytes");
    }
}

struct RealSpawn {
    handle: Handle,
    exec: Arc<exec::Exec>,
}

impl Spawn for RealSpawn {
    fn spawn(&self, name: &'static str, f: BoxFuture<()>) {
        self.exec.spawn(name, f);
    }

    fn block_on_for(&self, f: Pin<&mut (dyn Future<Output = ()> + Send)>, patience: Duration) -> bool {
        helper::block_on_for(&self.exec, f, patience)
    }

    fn run_briefly(&self, f: Box<dyn FnOnce() + Send>) -> BoxFuture<()> {
        match self.exec.run_here(f) {
            None => Box::pin(std::future::ready(())),
            Some(f) => self.run_blocking(f),
        }
    }

    fn run_blocking(&self, f: Box<dyn FnOnce() + Send>) -> BoxFuture<()> {
        let exec = self.exec.clone();
        let task = self.handle.spawn_blocking(move || {
            // Told here, because who waits for it may be gone.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
                exec.panicked("blocking call");
                std::panic::resume_unwind(panic);
            }
        });
        Box::pin(async move {
            match task.await {
                Ok(()) => {}
                Err(e) => match e.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime is going away, and this task with it.
                    Err(_) => std::future::pending().await,
                },
            }
        })
    }
}
