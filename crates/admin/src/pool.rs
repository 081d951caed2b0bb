//! Threads that work on a tree together, and what ends their work before its time.

use model::mutex::{Condvar, Mutex};
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use world::sys::load::Buffer;
use world::sys::process::{self, SIGHUP, SIGINT, SIGTERM};
use world::sys::{self, load};

/// Exit status of a command that was called wrongly, or could begin nothing.
pub const EXIT_USAGE: i32 = 2;
/// Exit status of a command that a signal ended.
pub const EXIT_INTERRUPTED: i32 = 130;
/// Bytes that a worker reads or writes at once.
pub const BLOCK_BYTES: usize = 1 << 20;
/// The most threads that a user may ask for.
pub const THREADS_MAX: usize = 256;

/// Ends the work of a command in order, from any thread.
#[derive(Clone, Default)]
pub struct Stop {
    wanted: Arc<AtomicBool>,
    /// Steps after which it ends by itself; 0: never. Tests stop in the middle with it.
    limit: u64,
    steps: Arc<AtomicU64>,
}

impl Stop {
    /// One that ends the work by itself after so many steps.
    pub fn after(limit: u64) -> Stop {
        Stop { limit, ..Stop::default() }
    }

    pub fn now(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    pub fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Something was done: a name, or a block of data. Whether to go on.
    pub fn step(&self) -> bool {
        if self.limit > 0 && self.steps.fetch_add(1, Ordering::Relaxed) + 1 >= self.limit {
            self.now();
        }
        !self.wanted()
    }

    /// Lets Ctrl-C and SIGTERM end the work in order; a second one ends the program at once. To be called
    /// before any thread starts.
    pub(crate) fn handle_signals(&self, command: &'static str) -> std::io::Result<()> {
        let signals = [SIGINT, SIGTERM, SIGHUP];
        process::block_signals(&signals);
        let stop = self.clone();
        sys::thread("signals", move || {
            loop {
                if process::wait_signal(&signals, Duration::from_secs(3600)).is_none() {
                    continue;
                }
                if stop.wanted() {
                    load::exit(EXIT_INTERRUPTED);
                }
                eprintln!("{command}: interrupted; what is under way is ended (once more: at once)");
                stop.now();
            }
        })
    }
}

/// What a command with workers begins with: its arguments, and what ends it before its time. The exit status
/// if it cannot begin, or was only asked for its help.
pub fn begin<A: clap::Parser>(name: &'static str, args: &[OsString]) -> Result<(A, Stop), i32> {
    let all = std::iter::once(OsString::from(name)).chain(args.iter().cloned());
    let args = A::try_parse_from(all).map_err(|e| {
        let _ = e.print();
        e.exit_code()
    })?;
    let stop = Stop::default();
    stop.handle_signals(name).map_err(|e| {
        eprintln!("{name}: cannot watch for signals: {e}");
        EXIT_USAGE
    })?;
    process::raise_open_files();
    Ok((args, stop))
}

/// Tasks that wait for a worker. The last that came is done first, so that a tree is walked downwards and
/// few of its names wait at a time.
pub struct Pool<T> {
    state: Mutex<Waiting<T>>,
    changed: Condvar,
    stop: Stop,
}

struct Waiting<T> {
    tasks: Vec<T>,
    /// Workers that have a task, which may bring more.
    busy: usize,
    ended: bool,
}

impl<T: Send> Pool<T> {
    pub fn new(stop: &Stop) -> Pool<T> {
        let state = Waiting { tasks: Vec::new(), busy: 0, ended: false };
        Pool { state: Mutex::new(state), changed: Condvar::new(), stop: stop.clone() }
    }

    pub fn push(&self, task: T) {
        self.state.lock().tasks.push(task);
        self.changed.notify_one();
    }

    /// The last of them is done first.
    pub fn push_all(&self, tasks: impl IntoIterator<Item = T>) {
        self.state.lock().tasks.extend(tasks);
        self.changed.notify_all();
    }

    /// Does all tasks, and those that they bring, on so many threads. Ends early if that is wanted, and
    /// returns what waits then.
    pub fn run(&self, threads: usize, work: impl Fn(T, &mut Buffer) + Sync) -> Vec<T> {
        self.state.lock().ended = false;
        sys::together(threads, |_| {
            let mut buffer = Buffer::new(BLOCK_BYTES);
            while let Some(task) = self.next() {
                // Whatever ends the work on it, others must not wait for this worker.
                let busy = Busy(self);
                work(task, &mut buffer);
                drop(busy);
            }
        });
        std::mem::take(&mut self.state.lock().tasks)
    }

    fn next(&self) -> Option<T> {
        let mut s = self.state.lock();
        loop {
            if self.stop.wanted() || (s.tasks.is_empty() && s.busy == 0) {
                s.ended = true;
                drop(s);
                self.changed.notify_all();
                return None;
            }
            if s.ended {
                return None;
            }
            if let Some(t) = s.tasks.pop() {
                s.busy += 1;
                return Some(t);
            }
            s = self.changed.wait(s);
        }
    }
}

struct Busy<'a, T: Send>(&'a Pool<T>);

impl<T: Send> Drop for Busy<'_, T> {
    fn drop(&mut self) {
        let mut s = self.0.state.lock();
        assert!(s.busy > 0, "who gives a task back had taken one");
        s.busy -= 1;
        let last = s.busy == 0;
        drop(s);
        // Who waits for tasks of the last one that worked hears that there are none. A stop is noticed here
        // too: somebody works as long as others wait.
        if last || self.0.stop.wanted() {
            self.0.changed.notify_all();
        }
    }
}

/// The threads that work if nobody says how many: twice as many as processors, as half of them wait.
pub fn default_threads() -> usize {
    (2 * sys::idle::processors()).min(THREADS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_bring_more_tasks_until_none_is_left() {
        let done = AtomicU64::new(0);
        let stop = Stop::default();
        let pool = Pool::new(&stop);
        pool.push(12u32);
        let left = pool.run(4, |n, _| {
            done.fetch_add(1, Ordering::Relaxed);
            if n > 0 {
                pool.push_all([n - 1, n - 1]);
            }
        });
        assert_eq!(done.into_inner(), (1 << 13) - 1);
        assert!(left.is_empty() && !stop.wanted());
    }

    #[test]
    fn a_stop_ends_the_work_and_gives_back_what_waits() {
        let stop = Stop::after(10);
        let pool = Pool::new(&stop);
        let done = AtomicU64::new(0);
        pool.push(());
        let left = pool.run(3, |(), _| {
            done.fetch_add(1, Ordering::Relaxed);
            pool.push_all([(), ()]);
            stop.step();
        });
        assert!(stop.wanted());
        assert!((10..=12).contains(&done.load(Ordering::Relaxed)), "each worker ends its own task");
        assert!(!left.is_empty() && pool.state.lock().tasks.is_empty());
    }
}
