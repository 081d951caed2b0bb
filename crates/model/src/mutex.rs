//! Locks with one policy for panics (decision 0053): what was locked while its holder panicked may be torn,
//! and is never looked at again.
//!
//! Who finds such a lock ends the process, if it is a server's or a mount's ([`end_process_if_torn`]): a
//! server is started again and recovers, and of a mount the guard ends the connection to the kernel.
//! Elsewhere, in tests and the simulator, it panics. A panic that held no lock is not seen here: it ends the
//! request that it came from, or the task.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, TryLockError};

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

static END_PROCESS: AtomicBool = AtomicBool::new(false);

/// From now on, whoever finds a lock whose holder panicked ends the process.
pub fn end_process_if_torn() {
    END_PROCESS.store(true, Ordering::Relaxed);
}

/// What a lock guards may be torn.
#[cold]
#[allow(clippy::print_stderr)]
fn torn<G>(guard: PoisonError<G>) -> G {
    // Who unwinds goes on: what becomes of the first panic is decided where it is caught.
    if !std::thread::panicking() {
        if END_PROCESS.load(Ordering::Relaxed) {
            eprintln!(
                "nacre: a thread panicked with a lock held: the process ends so that nobody sees what it left"
            );
            std::process::abort();
        }
        panic!("a thread panicked with this lock held");
    }
    guard.into_inner()
}

/// `std::sync::Mutex` with this policy.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(torn)
    }
}

impl<T: ?Sized> Mutex<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(torn)
    }

    /// `None` if somebody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(g) => Some(g),
            Err(TryLockError::Poisoned(p)) => Some(torn(p)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// As [`Mutex::lock`], of what is whole at every moment and is needed when something panicked.
    pub fn lock_whole(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}

/// `std::sync::RwLock` with this policy.
#[derive(Default, Debug)]
pub struct RwLock<T: ?Sized>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(std::sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(torn)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(torn)
    }
}

/// `std::sync::Condvar` with this policy.
#[derive(Default, Debug)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar(std::sync::Condvar::new())
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(torn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn panics(f: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(f)).is_err()
    }

    fn torn_mutex() -> Mutex<u32> {
        let m = Mutex::new(1);
        assert!(panics(|| {
            let _g = m.lock();
            half_way();
        }));
        m
    }

    fn half_way() {
        panic!("on purpose");
    }

    #[test]
    fn what_a_panic_left_half_done_is_not_looked_at() {
        let m = torn_mutex();
        assert!(panics(|| drop(m.lock())));
        assert_eq!(*m.lock_whole(), 1);
        assert!(panics(|| assert_eq!(m.into_inner(), 1)));
        let l = RwLock::new(1);
        assert!(panics(|| {
            let _g = l.write();
            half_way();
        }));
        assert!(panics(|| drop(l.read())) && panics(|| drop(l.write())));
    }

    #[test]
    fn a_panic_elsewhere_leaves_a_lock_as_it_is() {
        let m = Mutex::new(1);
        assert!(panics(half_way));
        *m.lock() += 1;
        assert_eq!(m.into_inner(), 2);
    }

    #[test]
    fn who_unwinds_is_not_ended_by_a_second_panic() {
        struct Last<'a>(&'a Mutex<u32>);
        impl Drop for Last<'_> {
            fn drop(&mut self) {
                *self.0.lock() += 1;
            }
        }
        let m = torn_mutex();
        assert!(panics(|| {
            let _last = Last(&m);
            half_way();
        }));
        assert_eq!(*m.lock_whole(), 2);
    }
}
