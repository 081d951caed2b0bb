//! Memory for file data in bulk: buffers that are used again and again, in large pages.
//!
//! A page of 4 KiB that is touched for the first time costs more than copying into it (the kernel clears it, a host may
//! have to find it first): a large read would spend more time on its memory than on its data (docs/performance.md).

use bytes::Bytes;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// From this size on memory is asked for in large pages.
const LARGE_MIN_BYTES: usize = 512 << 10;
/// Sizes that most bulk has: buffers of them are kept for the next ones.
const BULK_SIZES: [usize; 2] = [1 << 20, 4 << 20];
/// Buffers of each size, at most, that wait to be used again.
const BULK_KEEP: usize = 8;

static BULK: LazyLock<[Arc<Pool>; BULK_SIZES.len()]> =
    LazyLock::new(|| BULK_SIZES.map(|size| Pool::new(size, BULK_KEEP)));

/// Buffers of one size.
pub struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
    size: usize,
    keep: usize,
}

/// A buffer; one of a pool comes back when the last user of it, or of what was shared of it, is done.
pub struct Buffer {
    bytes: Vec<u8>,
    len: usize,
    pool: Option<Arc<Pool>>,
}

/// `len` bytes with anything in them. They hold no more memory than an eighth beyond that, so they may be kept.
pub fn bulk(len: usize) -> Buffer {
    match BULK_SIZES.iter().position(|size| len <= *size && len > size / 8 * 7) {
        Some(i) => {
            let mut b = BULK[i].get();
            b.len = len;
            b
        }
        None => Buffer { bytes: fresh(len), len, pool: None },
    }
}

impl Pool {
    /// Buffers of `size` bytes, of which at most `keep` wait to be used again.
    pub fn new(size: usize, keep: usize) -> Arc<Pool> {
        Arc::new(Pool { free: Mutex::new(Vec::new()), size, keep })
    }

    /// A buffer with anything in it.
    pub fn get(self: &Arc<Pool>) -> Buffer {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = free.unwrap_or_else(|| fresh(self.size));
        Buffer { bytes, len: self.size, pool: Some(self.clone()) }
    }
}

impl Buffer {
    /// A range of the buffer as shared bytes.
    pub fn share(self, range: std::ops::Range<usize>) -> Bytes {
        Bytes::from_owner(self).slice(range)
    }

    /// All of it as shared bytes.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(pool) = &self.pool else { return };
        let bytes = std::mem::take(&mut self.bytes);
        let mut free = pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < pool.keep {
            free.push(bytes);
        }
    }
}

fn fresh(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    if len >= LARGE_MIN_BYTES {
        advise(&mut bytes);
    }
    bytes
}

/// Asks the kernel for large pages; what is not granted stays as it is.
fn advise(memory: &mut [u8]) {
    const PAGE: usize = 4096;
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
    fn bulk_is_as_long_as_asked_for_and_holds_little_more() {
        for len in
            [0, 1, 4096, 900 << 10, 1 << 20, (1 << 20) + 1, 3 << 20, (4 << 20) - 5, 4 << 20, (4 << 20) + 1]
        {
            let mut b = bulk(len);
            b.fill(5);
            assert!(b.bytes.len() <= len + len / 7, "{len}: {}", b.bytes.len());
            let b = b.freeze();
            assert!(b.len() == len && b.iter().all(|x| *x == 5));
        }
    }
}
