//! Commands that work for long: an interrupt from the terminal ends them between two steps, with what they
//! found printed whole, or within a second if a server does not answer.

use crate::output;
use crate::pool::Stop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;
use world::sys::process::{self, SIGINT, SIGTERM};
use world::sys::{self, Deadline};

const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];
/// Between two looks at progress.
const TICK: Duration = Duration::from_millis(100);
/// Between two looks of who sleeps.
const STOP_LOOK: Duration = Duration::from_millis(20);
/// How long what is under way may go on after an interrupt.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long standard output may take what is still to be printed then.
const FLUSH_PATIENCE: Duration = Duration::from_millis(200);

/// Whether the command was told to stop.
#[derive(Default)]
pub struct Interrupt {
    signal: AtomicI32,
    done: AtomicBool,
    /// What ends the command as well.
    stop: Option<Stop>,
}

impl Interrupt {
    /// For a step of a command that a [`Stop`] ends.
    pub fn by(stop: &Stop) -> Interrupt {
        Interrupt { stop: Some(stop.clone()), ..Interrupt::default() }
    }

    pub fn stopped(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0 || self.stop.as_ref().is_some_and(Stop::wanted)
    }

    /// Sleeps for so long, or until the command is told to stop.
    pub fn pause(&self, d: Duration) {
        let end = Deadline::after(d);
        while !end.passed() && !self.stopped() {
            sys::sleep(STOP_LOOK.min(d));
        }
    }

    #[cfg(test)]
    pub(crate) fn stop(&self) {
        self.signal.store(SIGINT, Ordering::Relaxed);
    }

    /// The exit status of a program that a signal stopped, if one did.
    pub fn exit_code(&self) -> Option<i32> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            s => Some(128 + s),
        }
    }
}

/// Runs `work`, which looks at [`Interrupt::stopped`] between its steps, and calls `tick` ten times a second
/// beside it.
pub fn guarded<T>(tick: impl Fn() + Send + 'static, work: impl FnOnce(&Interrupt) -> T) -> (T, Option<i32>) {
    process::block_signals(&SIGNALS);
    let state = Arc::new(Interrupt::default());
    let watched = state.clone();
    // Without a thread to watch for it a signal waits until the command ends.
    let watching = sys::thread("interrupt", move || watch(&watched, &tick)).is_ok();
    if !watching {
        process::unblock_signals(&SIGNALS);
    }
    let out = work(&state);
    state.done.store(true, Ordering::Relaxed);
    process::unblock_signals(&SIGNALS);
    (out, state.exit_code())
}

fn watch(state: &Interrupt, tick: &impl Fn()) {
    let mut end: Option<Deadline> = None;
    while !state.done.load(Ordering::Relaxed) {
        if let Some(s) = process::wait_signal(&SIGNALS, TICK) {
            let again = state.signal.swap(s, Ordering::Relaxed) != 0;
            end = Some(Deadline::after(if again { Duration::ZERO } else { PATIENCE }));
        }
        if end.is_some_and(|e| e.passed()) && !state.done.load(Ordering::Relaxed) {
            // Somebody waits for a server, or for whoever reads the output.
            let _ = sys::thread("flush", output::flush);
            sys::sleep(FLUSH_PATIENCE);
            world::sys::load::exit(state.exit_code().unwrap_or(1));
        }
        tick();
    }
}
