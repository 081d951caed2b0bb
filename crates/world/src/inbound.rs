//! How much memory requests may take that were received and are not done, in all and of one connection.
//!
//! The share of a connection follows what is left: it may have half as much as is free ("dynamic queue length
//! thresholds", Choudhury and Hahne, IEEE/ACM Transactions on Networking 6, 1998). A lone peer gets a third
//! of everything, n greedy ones leave two parts in n + 2 for whoever comes next; nobody has to be told a
//! number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use wire::frame::{FLAG_WAITED_FOR, NO_SLOT};
use wire::{Frame, FrameKind, Header};

/// What a request takes beside its own bytes: it is decoded, has a task, and an answer.
const OVERHEAD_BYTES: usize = 1024;

/// One pool of memory.
#[derive(Debug)]
struct Pool {
    max: AtomicUsize,
    used: AtomicUsize,
}

impl Pool {
    fn new(max: usize) -> Pool {
        Pool { max: AtomicUsize::new(max), used: AtomicUsize::new(0) }
    }

    /// Whoever has `mine` of it wants so many more. When nobody has anything, anything is granted: one
    /// message larger than everything must not wait for ever.
    fn take(&self, mine: usize, bytes: usize) -> bool {
        let grant = |used: usize| {
            let free = self.max.load(Relaxed).saturating_sub(used);
            let fits = mine.saturating_add(bytes) <= free / 2;
            (used == 0 || fits).then(|| used.saturating_add(bytes))
        };
        self.used.fetch_update(Relaxed, Relaxed, grant).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Relaxed);
        assert!(before >= bytes, "{bytes} bytes of memory come back, and {before} were given out");
    }
}

/// The memory of a server's requests.
#[derive(Debug)]
pub struct Inbound {
    ordinary: Pool,
    /// For requests that others may wait for ([`FLAG_WAITED_FOR`]): all the rest may be taken by those that
    /// wait.
    kept: Pool,
    refused: AtomicU64,
}

impl Inbound {
    /// A quarter of these bytes is kept for requests that others may wait for.
    pub fn new(max_bytes: usize) -> Arc<Inbound> {
        let inbound = Inbound { ordinary: Pool::new(0), kept: Pool::new(0), refused: AtomicU64::new(0) };
        inbound.set_max_bytes(max_bytes);
        Arc::new(inbound)
    }

    /// What is taken already stays.
    pub fn set_max_bytes(&self, max_bytes: usize) {
        let kept = max_bytes / 4;
        self.ordinary.max.store(max_bytes - kept, Relaxed);
        self.kept.max.store(kept, Relaxed);
    }

    /// A connection's part of it.
    pub fn share(self: &Arc<Inbound>) -> Arc<Share> {
        let (ordinary, kept) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Share { inbound: self.clone(), ordinary, kept })
    }

    pub fn max_bytes(&self) -> usize {
        self.ordinary.max.load(Relaxed) + self.kept.max.load(Relaxed)
    }

    pub fn used_bytes(&self) -> usize {
        self.ordinary.used.load(Relaxed) + self.kept.used.load(Relaxed)
    }

    /// Requests for which there was no room, ever.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}

/// What one connection has of it. Asked by its one receiver.
#[derive(Debug)]
pub struct Share {
    inbound: Arc<Inbound>,
    ordinary: AtomicUsize,
    kept: AtomicUsize,
}

/// Memory of one request, until it is dropped.
#[derive(Debug)]
pub struct Room {
    share: Arc<Share>,
    bytes: usize,
    kept: bool,
}

impl Share {
    /// Room for a frame with so many bytes behind its header. `None`: there is none now; never for what is no
    /// request of a slot.
    pub fn take(self: &Arc<Share>, h: &Header, bytes: usize) -> Option<Room> {
        let bytes = bytes.saturating_add(OVERHEAD_BYTES);
        let room = |kept| Room { share: self.clone(), bytes, kept };
        let all = &self.inbound;
        if all.ordinary.take(self.ordinary.load(Relaxed), bytes) {
            self.ordinary.fetch_add(bytes, Relaxed);
            return Some(room(false));
        }
        if h.flags & FLAG_WAITED_FOR != 0 && all.kept.take(self.kept.load(Relaxed), bytes) {
            self.kept.fetch_add(bytes, Relaxed);
            return Some(room(true));
        }
        if h.kind == FrameKind::Request && h.slot != NO_SLOT {
            all.refused.fetch_add(1, Relaxed);
            return None;
        }
        all.ordinary.used.fetch_add(bytes, Relaxed);
        self.ordinary.fetch_add(bytes, Relaxed);
        Some(room(false))
    }

    /// What becomes of a frame that is here already.
    pub fn admit(self: &Arc<Share>, f: Frame) -> Received {
        match self.take(&f.header, f.body.len() + f.bulk.len()) {
            Some(room) => Received::Frame(f, Some(room)),
            None => Received::Dropped(f.header),
        }
    }
}

impl Room {
    /// Whether it is of the memory for requests that others may wait for.
    pub fn is_kept(&self) -> bool {
        self.kept
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let all = &self.share.inbound;
        let (pool, mine) = match self.kept {
            true => (&all.kept, &self.share.kept),
            false => (&all.ordinary, &self.share.ordinary),
        };
        pool.give_back(self.bytes);
        let before = mine.fetch_sub(self.bytes, Relaxed);
        assert!(before >= self.bytes, "{} bytes come back from a connection that had {before}", self.bytes);
    }
}

/// What came on a connection whose memory is bounded.
#[derive(Debug)]
pub enum Received {
    /// With its room; without one if its first bytes came before there was a bound.
    Frame(Frame, Option<Room>),
    /// There was no room for it: nothing is known of it but its header.
    Dropped(Header),
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: usize = 64 << 10;

    fn request(flags: u8) -> Header {
        let mut h = Header::new(FrameKind::Request);
        h.flags |= flags;
        h
    }

    /// As many requests as one connection gets.
    fn all(share: &Arc<Share>, h: &Header) -> Vec<Room> {
        std::iter::from_fn(|| share.take(h, UNIT - OVERHEAD_BYTES)).take(1000).collect()
    }

    #[test]
    fn greedy_peers_leave_room_for_the_next() {
        let inbound = Inbound::new(400 * UNIT);
        let (plain, waited) = (request(0), request(FLAG_WAITED_FOR));
        let shares: Vec<_> = (0..4).map(|_| inbound.share()).collect();
        let mut held: Vec<Vec<Room>> = shares.iter().map(|s| all(s, &plain)).collect();
        let counts: Vec<usize> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [100, 67, 44, 30], "a third of what is left, each");
        // As their requests end and others come, all get the same.
        for _ in 0..200 {
            held.iter_mut().for_each(|h| drop(h.pop()));
            for (s, h) in shares.iter().zip(&mut held) {
                h.extend(all(s, &plain));
            }
        }
        assert!(
            held.iter().all(|h| (47..=53).contains(&h.len())),
            "{:?}",
            held.iter().map(Vec::len).collect::<Vec<_>>()
        );
        assert!(inbound.share().take(&plain, UNIT).is_some(), "whoever comes next");
        let used = inbound.used_bytes();
        assert!(used <= inbound.max_bytes() && inbound.refused() > 0);
        // What others wait for has room of its own.
        assert_eq!(all(&shares[3], &plain).len(), 0);
        assert_eq!(all(&shares[3], &waited).len(), 33);
        drop(held);
        assert_eq!(inbound.used_bytes(), 0);
        assert!(shares.iter().all(|s| s.ordinary.load(Relaxed) == 0 && s.kept.load(Relaxed) == 0));
    }

    #[test]
    fn what_is_larger_than_everything_comes_in_alone() {
        let inbound = Inbound::new(UNIT);
        let (a, b) = (inbound.share(), inbound.share());
        let large = a.take(&request(0), 100 * UNIT).expect("nobody has anything");
        assert!(b.take(&request(0), 1).is_none());
        assert!(b.take(&request(FLAG_WAITED_FOR), 1).is_some());
        drop(large);
        assert!(b.take(&request(0), 100 * UNIT).is_some());
    }

    #[test]
    fn what_needs_no_slot_is_always_taken() {
        let inbound = Inbound::new(UNIT);
        let hog = inbound.share();
        let _full = hog.take(&request(0), 100 * UNIT);
        let mut ping = request(0);
        ping.slot = NO_SLOT;
        let notice = Header::new(FrameKind::Notify);
        assert!(hog.take(&ping, 10).is_some() && hog.take(&notice, 10).is_some());
        assert!(matches!(
            hog.admit(Frame::new(request(0), vec![0; 10], bytes::Bytes::new())),
            Received::Dropped(_)
        ));
        assert_eq!(inbound.refused(), 1);
    }
}
