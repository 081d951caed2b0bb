//! Dirty pages of shared mappings that the kernel writes back.
//!
//! Nobody can interrupt such a WRITE, and a process that unmaps or truncates the file waits for it in state
//! D. So it is answered after half a second whether the servers answered or not: the data stays in bounded
//! memory and is written in the background, in order, inode by inode. Whatever else is asked of the inode
//! waits for that (interruptibly). What does not fit is lost with EIO. No error is the answer to such a
//! WRITE: each open file is told at its next fsync by the mount ([`client::ErrorCursor`]), and would be told
//! by the kernel a second time.

use bytes::Bytes;
use client::{Fs, Pages};
use model::mutex::{Mutex, MutexGuard};
use model::{Errno, Fid, Map};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use world::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use world::{Either, World, select};

/// Memory for data that the kernel thinks is written.
pub const MEMORY_MAX_BYTES: usize = 64 << 20;
/// How long the kernel waits for one write.
pub const PATIENCE: Duration = Duration::from_millis(500);

struct Item {
    off: u64,
    data: Bytes,
    memory: OwnedSemaphorePermit,
    done: oneshot::Sender<()>,
}

struct Queue {
    items: VecDeque<Item>,
    idle: Arc<Notify>,
}

#[derive(Default)]
struct WritebackQueue {
    /// Inodes with writes that are waiting or under way.
    busy: Map<Fid, Queue>,
}

/// Page writes of one mount.
pub struct Writeback {
    inner: Mutex<WritebackQueue>,
    /// Number of busy inodes: spares the lock on the common way.
    busy: AtomicUsize,
    memory: Arc<Semaphore>,
    /// The servers did not answer in time lately: do not try the kernel's patience again.
    stalled: AtomicBool,
}

impl Default for Writeback {
    fn default() -> Writeback {
        Writeback {
            inner: Mutex::default(),
            busy: AtomicUsize::new(0),
            memory: Arc::new(Semaphore::new(MEMORY_MAX_BYTES)),
            stalled: AtomicBool::new(false),
        }
    }
}

impl Writeback {
    fn lock(&self) -> MutexGuard<'_, WritebackQueue> {
        self.inner.lock()
    }

    fn patience(&self) -> Duration {
        if self.stalled.load(Ordering::Relaxed) { Duration::ZERO } else { PATIENCE }
    }

    /// Takes a page write. Ready when it is written or lost, or after [`PATIENCE`].
    pub async fn write(self: Arc<Self>, world: World, fs: Arc<Fs>, fid: Fid, off: u64, data: Bytes) {
        let Some(memory) = self.room(&world, data.len()).await else {
            tracing::error!(%fid, off, "page write refused: {MEMORY_MAX_BYTES} bytes wait for the servers already");
            self.stalled.store(true, Ordering::Relaxed);
            return Pages(&fs).pages_lost(fid, off, data.len() as u64, Errno::EIO);
        };
        let (done, written) = oneshot::channel();
        let item = Item { off, data, memory, done };
        let start = {
            let mut t = self.lock();
            let fresh = !t.busy.contains_key(&fid);
            let q = t
                .busy
                .entry(fid)
                .or_insert_with(|| Queue { items: VecDeque::new(), idle: Arc::new(Notify::new()) });
            q.items.push_back(item);
            assert!(!fresh || q.items.len() == 1, "nothing waits for an inode that is idle");
            if fresh {
                self.busy.fetch_add(1, Ordering::Release);
            }
            fresh
        };
        if start {
            world.spawn("writeback", self.clone().drain(fs, fid));
        }
        match select(written, world.sleep(self.patience())).await {
            Either::Left(_) => {}
            Either::Right(()) => {
                if !self.stalled.swap(true, Ordering::Relaxed) {
                    tracing::warn!("the servers do not answer: page writes wait in memory");
                }
            }
        }
    }

    /// Memory for so many bytes, if there is some in time.
    async fn room(&self, world: &World, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let want = u32::try_from(bytes).ok()?;
        if let Ok(m) = self.memory.clone().try_acquire_many_owned(want) {
            return Some(m);
        }
        world.timeout(self.patience(), self.memory.clone().acquire_many_owned(want)).await?.ok()
    }

    /// Writes one inode's queue in order until it is empty.
    async fn drain(self: Arc<Self>, fs: Arc<Fs>, fid: Fid) {
        loop {
            let item = {
                let mut t = self.lock();
                let q = t.busy.get_mut(&fid).expect("an inode is busy while it is drained");
                match q.items.pop_front() {
                    Some(i) => i,
                    None => {
                        let idle = q.idle.clone();
                        t.busy.remove(&fid);
                        let before = self.busy.fetch_sub(1, Ordering::Release);
                        assert!(before > 0, "an inode that is drained is counted");
                        idle.notify_waiters();
                        return;
                    }
                }
            };
            let r = Pages(&fs).write_pages(fid, item.off, item.data).await;
            self.stalled.store(false, Ordering::Relaxed);
            drop(item.memory);
            if let Err(e) = r {
                tracing::error!(%fid, off = item.off, "a page that the kernel thinks written is lost: {e}");
            }
            let _ = item.done.send(());
        }
    }

    /// Waits until nothing of this inode is under way.
    pub async fn settle(&self, fid: Fid) {
        while self.busy.load(Ordering::Acquire) != 0 {
            let idle = {
                let t = self.lock();
                match t.busy.get(&fid) {
                    // Made under the lock, so that the notification cannot be missed.
                    Some(q) => q.idle.clone().notified_owned(),
                    None => return,
                }
            };
            idle.await;
        }
    }

    /// Nothing is under way for any inode.
    pub fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Acquire) == 0
    }
}
