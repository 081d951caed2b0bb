//! An allocator that refuses absurd sizes: a decoder that allocates what a length field says, before it
//! has seen the bytes, is a bug.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// What one execution may allocate over its baseline at a time: the largest frame four times over.
pub const EXECUTION_MAX_BYTES: usize = 96 << 20;
/// A single allocation above this fails at once.
const SINGLE_MAX_BYTES: usize = 1 << 30;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicBool = AtomicBool::new(false);

pub struct Counting;

// SAFETY: every call goes to the system's allocator unchanged, or fails with a null pointer as the trait
// allows.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller's promise about `layout` is passed on.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > SINGLE_MAX_BYTES {
            REFUSED.store(true, Relaxed);
            return std::ptr::null_mut();
        }
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller's promise about `p` and `layout` is passed on.
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(p, layout) }
    }
}

/// Starts a measurement; the result goes to [`peak_since`].
pub fn baseline() -> usize {
    let live = LIVE.load(Relaxed);
    PEAK.store(live, Relaxed);
    live
}

/// Most bytes in use above the baseline.
pub fn peak_since(baseline: usize) -> usize {
    PEAK.load(Relaxed).saturating_sub(baseline)
}

pub fn refused() -> bool {
    REFUSED.load(Relaxed)
}
