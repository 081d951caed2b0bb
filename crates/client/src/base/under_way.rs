//! Work on files that nobody waits for, and that others may have to let pass first.

use model::mutex::Mutex;
use model::{Fid, Map};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use world::sync::Notify;

/// What is under way, by file.
#[derive(Default)]
pub struct UnderWay {
    files: Mutex<Map<Fid, (usize, Arc<Notify>)>>,
    count: AtomicU64,
}

/// One piece of such work; over when dropped.
pub struct Piece {
    of: Arc<UnderWay>,
    fid: Fid,
}

impl UnderWay {
    /// Work on a file begins.
    pub fn begin(self: &Arc<Self>, fid: Fid) -> Piece {
        let mut t = self.files.lock();
        t.entry(fid).or_default().0 += 1;
        self.count.fetch_add(1, Ordering::AcqRel);
        Piece { of: self.clone(), fid }
    }

    /// How many pieces began so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Waits until there is none of a file.
    pub async fn settle(&self, fid: Fid) {
        loop {
            let over = {
                let t = self.files.lock();
                match t.get(&fid) {
                    Some((_, n)) => n.clone().notified_owned(),
                    None => return,
                }
            };
            over.await;
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut t = self.of.files.lock();
        let Some((n, over)) = t.get_mut(&self.fid) else { return };
        assert!(*n > 0, "work is under way until it is over");
        *n -= 1;
        if *n == 0 {
            let over = over.clone();
            t.remove(&self.fid);
            over.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use world::World;

    #[test]
    fn a_file_is_settled_when_its_last_piece_is_over() {
        let (world, _runtime) = world::real::start(1).unwrap();
        let (all, f, g) = (Arc::new(UnderWay::default()), Fid::new(7, 1, 0), Fid::new(7, 2, 0));
        let settled =
            |world: &World| world::block_on(world.timeout(Duration::from_millis(1), all.settle(f))).is_some();
        let _other = all.begin(g);
        assert!(settled(&world), "another file's work is not waited for");
        let (first, second) = (all.begin(f), all.begin(f));
        assert!(!settled(&world));
        drop(first);
        assert!(!settled(&world));
        drop(second);
        assert!(settled(&world));
        assert_eq!(all.count(), 3);
    }
}
