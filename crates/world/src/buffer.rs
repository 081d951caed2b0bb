//! Memory for file data in bulk: buffers that are used again and again, and large pages for what is kept.
//!
//! A page of 4 KiB that is touched for the first time costs the kernel about as much as copying it twice: without
//! either a large read spends more time on its memory than on its data (docs/performance.md).

use bytes::{Bytes, BytesMut};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};

/// From this size on memory is asked for in large pages.
const LARGE_MIN_BYTES: usize = 512 << 10;

/// Buffers of one size.
pub struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
    size: usize,
    keep: usize,
}

/// A buffer of the pool; it comes back when the last user of it, or of what was shared of it, is done.
pub struct Buffer {
    bytes: Vec<u8>,
    pool: Arc<Pool>,
}

impl Pool {
    /// Buffers of `size` bytes, of which at most `keep` wait to be used again.
    pub fn new(size: usize, keep: usize) -> Arc<Pool> {
        Arc::new(Pool { free: Mutex::new(Vec::new()), size, keep })
    }

    /// A buffer with anything in it.
    pub fn get(self: &Arc<Pool>) -> Buffer {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = free.unwrap_or_else(|| {
            let mut fresh = vec![0; self.size];
            advise_large(&mut fresh);
            fresh
        });
        Buffer { bytes, pool: self.clone() }
    }
}

impl Buffer {
    /// A range of the buffer as shared bytes.
    pub fn share(self, range: std::ops::Range<usize>) -> Bytes {
        Bytes::from_owner(self).slice(range)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.pool.keep {
            free.push(bytes);
        }
    }
}

/// Room for exactly `len` bytes, in large pages if there are many.
pub fn with_capacity(len: usize) -> BytesMut {
    let mut b = BytesMut::with_capacity(len);
    advise(b.spare_capacity_mut());
    b
}

fn advise_large(memory: &mut [u8]) {
    let at = memory.as_mut_ptr().cast::<MaybeUninit<u8>>();
    // SAFETY: the same bytes, of which only the address and the length are looked at.
    #[allow(unsafe_code)]
    advise(unsafe { std::slice::from_raw_parts_mut(at, memory.len()) });
}

/// Asks the kernel for large pages; what is not granted stays as it is.
fn advise(memory: &mut [MaybeUninit<u8>]) {
    const PAGE: usize = 4096;
    if memory.len() < LARGE_MIN_BYTES {
        return;
    }
    let start = memory.as_ptr().addr();
    let from = start / PAGE * PAGE;
    let len = (start + memory.len()).next_multiple_of(PAGE) - from;
    let at = memory.as_mut_ptr().wrapping_byte_sub(start - from);
    // SAFETY: a hint about how pages are to be backed; it changes no byte, whoever else has some in the first or last page.
    #[allow(unsafe_code)]
    unsafe {
        libc::madvise(at.cast(), len, libc::MADV_HUGEPAGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back() {
        let p = Pool::new(64, 4);
        let mut b = p.get();
        b[3] = 7;
        let at = b.as_ref().as_ptr();
        let shared = b.share(3..5);
        assert_eq!(&shared[..], &[7, 0]);
        let copy = shared.clone();
        drop(shared);
        assert_ne!(p.get().as_ref().as_ptr(), at, "still in use");
        drop(copy);
        let again: Vec<_> = (0..2).map(|_| p.get()).collect();
        assert!(again.iter().any(|b| b.as_ref().as_ptr() == at));
    }

    #[test]
    fn no_more_are_kept_than_said() {
        let p = Pool::new(1 << 20, 1);
        drop([p.get(), p.get(), p.get()]);
        assert_eq!(p.free.lock().unwrap().len(), 1);
    }

    #[test]
    fn large_memory_is_as_long_as_asked_for() {
        for len in [0, 1, LARGE_MIN_BYTES, (4 << 20) + 1] {
            let mut b = with_capacity(len);
            b.resize(len, 5);
            assert!(b.iter().all(|x| *x == 5));
        }
    }
}
