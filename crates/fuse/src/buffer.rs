//! Buffers that requests are read into. A WRITE's data stays where it was read: the buffer travels with it and
//! comes back to the pool when the last user is done.

use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers kept for reuse; more are made when needed and freed afterwards.
const POOL_MAX_BUFFERS: usize = 16;

/// Buffers of one size.
pub struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
    size: usize,
}

/// A buffer of the pool.
pub struct Buffer {
    bytes: Vec<u8>,
    pool: Arc<Pool>,
}

impl Pool {
    pub fn new(size: usize) -> Arc<Pool> {
        Arc::new(Pool { free: Mutex::new(Vec::new()), size })
    }

    pub fn get(self: &Arc<Pool>) -> Buffer {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Buffer { bytes: free.unwrap_or_else(|| vec![0; self.size]), pool: self.clone() }
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
        if free.len() < POOL_MAX_BUFFERS {
            free.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back() {
        let p = Pool::new(64);
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
}
