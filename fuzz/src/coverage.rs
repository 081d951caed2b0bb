//! The counters that the compiler puts at every branch (`-sanitizer-coverage-inline-8bit-counters`).
//! Without them (a plain `cargo build`) there is no feedback, only mutation.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static START: AtomicUsize = AtomicUsize::new(0);
static STOP: AtomicUsize = AtomicUsize::new(0);

// SAFETY: this is the name and signature that the instrumentation calls before main, with the bounds of
// the counters' section.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    START.store(start as usize, Relaxed);
    STOP.store(stop as usize, Relaxed);
}

/// What has been reached so far.
pub struct Coverage {
    /// For each counter: magnitudes of its count that were seen, a bit each.
    seen: Vec<u8>,
    pub reached: usize,
}

impl Coverage {
    pub fn new() -> Coverage {
        Coverage { seen: vec![0; counters().len()], reached: 0 }
    }

    pub fn available(&self) -> bool {
        !self.seen.is_empty()
    }

    /// Sets all counters to zero.
    pub fn clear(&self) {
        counters().fill(0);
    }

    /// Whether the counters show something new since `clear`.
    pub fn harvest(&mut self) -> bool {
        let mut news = false;
        for (chunk, seen) in counters().chunks(8).zip(self.seen.chunks_mut(8)) {
            if chunk.iter().all(|&c| c == 0) {
                continue;
            }
            for (&c, s) in chunk.iter().zip(seen) {
                let magnitude = magnitude(c);
                if magnitude & !*s != 0 {
                    self.reached += usize::from(*s == 0);
                    *s |= magnitude;
                    news = true;
                }
            }
        }
        news
    }
}

/// 1, 2, 3, 4–7, 8–15, 16–31, 32–127, more: a bit each, as AFL has it.
fn magnitude(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..8 => 8,
        8..16 => 16,
        16..32 => 32,
        32..128 => 64,
        _ => 128,
    }
}

fn counters() -> &'static mut [u8] {
    let (start, stop) = (START.load(Relaxed), STOP.load(Relaxed));
    if start == 0 {
        return &mut [];
    }
    // SAFETY: the section exists for the whole life of the program and is only bytes; the engine runs on
    // one thread, and the increments that instrumented code makes are plain byte writes that it never
    // overlaps with a use of this slice that matters (a lost count is harmless).
    unsafe { std::slice::from_raw_parts_mut(start as *mut u8, stop - start) }
}
