//! Memory for file data in bulk: buffers that are used again and again, in large pages.
//!
//! A page of 4 KiB that is touched for the first time costs more than copying into it (the kernel clears it,
//! a host may have to find it first): a large read would spend more time on its memory than on its data
//! (docs/performance.md).

use crate::real::clock::nanos;
use bytes::Bytes;
use model::mutex::Mutex;
use rustix::time::ClockId;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// A large page. Memory of at least this size is mapped for itself: large pages would stay with what the heap
/// puts there next, and with what lies beside it.
const LARGE_BYTES: usize = 2 << 20;
/// Sizes that most bulk has: buffers of them are kept for the next ones.
const BULK_SIZES: [usize; 2] = [1 << 20, 4 << 20];
/// Buffers of each size, at most, that wait to be used again, unless [`keep`] says otherwise.
const BULK_KEEP: usize = 8;

/// A large page for which a thread works longer than this when it is touched for the first time was not
/// there: a host took the guest's free memory back, and gives it again in pieces of 4 KiB. Small pages take
/// about half of that, and the kernel has them of memory that the host left.
const LARGE_PAGE_PATIENCE: Duration = Duration::from_millis(2);
/// For so long small pages are taken then, and for twice as long each time that it is so again, up to the
/// second figure: what a host left is often beside what it took.
const SMALL_PAGES_NS: (u64, u64) = (20_000_000, 1_000_000_000);

static LARGE_PAGES: LargePages = LargePages::new();

static BULK: LazyLock<[Arc<Pool>; BULK_SIZES.len()]> =
    LazyLock::new(|| BULK_SIZES.map(|size| Pool::new(size, BULK_KEEP)));

enum Memory {
    Heap(Vec<u8>),
    Mapped(Mapped),
}

/// Whether memory is taken in large pages at the moment.
struct LargePages {
    /// Nanoseconds of the monotonic clock.
    not_until: AtomicU64,
    /// Nanoseconds for which small ones are taken the next time.
    next: AtomicU64,
}

/// Pages of its own.
struct Mapped {
    at: NonNull<u8>,
    len: usize,
}

/// Buffers of one size.
pub struct Pool {
    free: Mutex<Vec<Memory>>,
    size: usize,
    keep: AtomicUsize,
}

/// A buffer; one of a pool comes back when the last user of it, or of what was shared of it, is done.
pub struct Buffer {
    /// `None` while it is dropped.
    memory: Option<Memory>,
    len: usize,
    pool: Option<Arc<Pool>>,
}

/// How many buffers of each of the usual sizes may wait to be used again in this process.
pub fn keep(buffers: usize) {
    for pool in BULK.iter() {
        pool.keep.store(buffers, Relaxed);
    }
}

/// `len` bytes with anything in them. They hold no more memory than an eighth beyond that, so they may be
/// kept.
pub fn bulk(len: usize) -> Buffer {
    match BULK_SIZES.iter().position(|size| len <= *size && len > size / 8 * 7) {
        Some(i) => {
            let mut b = BULK[i].get();
            b.len = len;
            b
        }
        None => Buffer { memory: Some(Memory::new(len)), len, pool: None },
    }
}

impl Pool {
    /// Buffers of `size` bytes, of which at most `keep` wait to be used again.
    pub fn new(size: usize, keep: usize) -> Arc<Pool> {
        Arc::new(Pool { free: Mutex::new(Vec::new()), size, keep: AtomicUsize::new(keep) })
    }

    /// A buffer with anything in it.
    pub fn get(self: &Arc<Pool>) -> Buffer {
        let free = self.free.lock().pop();
        let memory = free.unwrap_or_else(|| Memory::new(self.size));
        assert_eq!(memory.bytes().len(), self.size, "all buffers of a pool have its size");
        Buffer { memory: Some(memory), len: self.size, pool: Some(self.clone()) }
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
        &self.memory.as_ref().expect("until it is dropped").bytes()[..self.len]
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory.as_ref().expect("until it is dropped").bytes()[..self.len]
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory.as_mut().expect("until it is dropped").bytes_mut()[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let (Some(pool), Some(memory)) = (&self.pool, self.memory.take()) else { return };
        let mut free = pool.free.lock();
        if free.len() < pool.keep.load(Relaxed) {
            free.push(memory);
        }
    }
}

impl Memory {
    /// Zeros.
    fn new(len: usize) -> Memory {
        let mapped = if len >= LARGE_BYTES { Mapped::new(len) } else { None };
        mapped.map_or_else(|| Memory::Heap(vec![0; len]), Memory::Mapped)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Memory::Heap(v) => v,
            Memory::Mapped(m) => m.bytes(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Heap(v) => v,
            Memory::Mapped(m) => m.bytes_mut(),
        }
    }
}

impl LargePages {
    const fn new() -> LargePages {
        LargePages { not_until: AtomicU64::new(0), next: AtomicU64::new(SMALL_PAGES_NS.0) }
    }

    fn are_quick(&self, now: u64) -> bool {
        now >= self.not_until.load(Relaxed)
    }

    /// The first touch of one took a thread so long. Says whether that was quick.
    fn took(&self, worked: Duration, now: u64) -> bool {
        if worked <= LARGE_PAGE_PATIENCE {
            self.next.store(SMALL_PAGES_NS.0, Relaxed);
            return true;
        }
        // Others that were at it at the same moment say nothing new.
        if self.are_quick(now) {
            let pause = self.next.load(Relaxed);
            assert!((SMALL_PAGES_NS.0..=SMALL_PAGES_NS.1).contains(&pause), "it is bounded");
            self.not_until.store(now.saturating_add(pause), Relaxed);
            self.next.store((pause * 2).min(SMALL_PAGES_NS.1), Relaxed);
        }
        false
    }
}

#[allow(unsafe_code)]
impl Mapped {
    /// `None`: the kernel has no more mappings.
    fn new(len: usize) -> Option<Mapped> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of no file, where the kernel finds room.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        if LARGE_PAGES.are_quick(nanos(ClockId::Monotonic)) {
            Mapped::take_large(at, len);
        }
        Some(Mapped { at: NonNull::new(at.cast())?, len })
    }

    /// In large pages; the first one shows whether they are quick.
    fn take_large(at: *mut libc::c_void, len: usize) {
        assert!(len >= LARGE_BYTES, "there is room for a large page");
        // SAFETY: a hint about how these pages of ours are to be backed; it changes no byte.
        unsafe { libc::madvise(at, len, libc::MADV_HUGEPAGE) };
        let before = nanos(ClockId::ThreadCPUTime);
        // SAFETY: touches pages of ours, which are zeros and stay so. Kernels before 5.14 do nothing.
        unsafe { libc::madvise(at, LARGE_BYTES, libc::MADV_POPULATE_WRITE) };
        let worked = nanos(ClockId::ThreadCPUTime).saturating_sub(before);
        if !LARGE_PAGES.took(Duration::from_nanos(worked), nanos(ClockId::Monotonic)) {
            // SAFETY: as the first one.
            unsafe { libc::madvise(at, len, libc::MADV_NOHUGEPAGE) };
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped with this length, zeros at first, and ours until it is dropped.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed by nobody else.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

// SAFETY: plain bytes that belong to the value, as those of a `Vec<u8>`.
#[allow(unsafe_code)]
unsafe impl Send for Mapped {}
// SAFETY: the same; they are changed through `&mut` alone.
#[allow(unsafe_code)]
unsafe impl Sync for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and not used any more.
        #[allow(unsafe_code)]
        unsafe {
            libc::munmap(self.at.as_ptr().cast(), self.len);
        }
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
        assert_eq!(p.free.lock().len(), 1);
    }

    #[test]
    fn small_pages_are_taken_while_large_ones_have_to_be_fetched() {
        let (p, ms) = (LargePages::new(), 1_000_000);
        let (quick, slow) = (Duration::from_micros(200), Duration::from_millis(5));
        assert!(p.are_quick(5) && p.took(quick, 5) && p.are_quick(6));
        assert!(!p.took(slow, 6) && !p.took(slow, 7), "two at the same moment");
        assert!(
            !p.are_quick(7) && !p.are_quick(5 + 20 * ms) && p.are_quick(6 + 20 * ms),
            "it is tried again"
        );
        assert!(!p.took(slow, 100 * ms) && !p.are_quick(139 * ms) && p.are_quick(140 * ms), "twice as long");
        assert!(
            p.took(quick, 140 * ms) && !p.took(slow, 200 * ms) && p.are_quick(220 * ms),
            "from the start"
        );
        let mut now = 1_000 * ms;
        for _ in 0..20 {
            p.took(slow, now);
            now = p.not_until.load(Relaxed);
        }
        assert!(!p.took(slow, now) && p.are_quick(now + 1_000 * ms), "a second at most");
    }

    #[test]
    fn bulk_is_as_long_as_asked_for_and_holds_little_more() {
        for len in
            [0, 1, 4096, 900 << 10, 1 << 20, (1 << 20) + 1, 3 << 20, (4 << 20) - 5, 4 << 20, (4 << 20) + 1]
        {
            let mut b = bulk(len);
            b.fill(5);
            let holds = b.memory.as_ref().unwrap().bytes().len();
            assert!(holds <= len + len / 7, "{len}: {holds}");
            let b = b.freeze();
            assert!(b.len() == len && b.iter().all(|x| *x == 5));
        }
    }
}
