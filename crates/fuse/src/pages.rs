//! The kernel's pages of files, and how it is made to give them up: FUSE_NOTIFY_INVAL_INODE with a range.
//!
//! That takes the lock of each page and writes what was stored into it, so it waits for READs that fill pages
//! and WRITEs of pages, which are answered without waiting for it (`client/src/data/fill.rs`). It runs on
//! threads of its own, one for each file that is at it: what one file waits for must not keep another's
//! locks.
//!
//! Nothing but an answer, or the end of the connection, wakes a thread that waits for a page, not even kill
//! -9, and the thread's own descriptor keeps the connection from ending with the daemon. So each has a table
//! of descriptors of its own with nothing in it but that one: everything else of a killed daemon is closed,
//! which tells the servers, and the guard, who ends the connection (`guard.rs`). Such a thread must not do
//! anything that needs a descriptor, such as waking a task: another one does that.

use crate::abi::{self, NotifyInvalInode};
use crate::guard;
use crate::nodes::Nodes;
use crate::reply::Channel;
use crate::writeback::Writeback;
use client::CancelOnDrop;
use model::mutex::{Condvar, Mutex, MutexGuard};
use model::{Errno, Fid};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use world::World;
use zerocopy::IntoBytes;

/// Threads at most. A file of which the kernel cannot give up pages keeps one until its OST answers.
const THREADS_MAX: usize = 64;
/// Threads that stay when there is nothing to do.
const THREADS_KEPT: usize = 2;

struct Job {
    fid: Fid,
    ranges: Vec<(u64, u64)>,
    over: CancelOnDrop,
}

/// A job that the kernel has done.
struct Done {
    fid: Fid,
    over: CancelOnDrop,
    error: Option<Errno>,
}

/// What the kernel has done: for [`Pages::finish`].
pub struct AllDone(Receiver<Done>);

#[derive(Default)]
struct PageJobs {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    ended: bool,
}

/// The pages of one mount.
pub struct Pages {
    world: World,
    channel: Arc<Channel>,
    nodes: Arc<Nodes>,
    writeback: Arc<Writeback>,
    inner: Mutex<PageJobs>,
    changed: Condvar,
    done: Sender<Done>,
}

impl Pages {
    pub fn new(
        world: World,
        channel: Arc<Channel>,
        nodes: Arc<Nodes>,
        writeback: Arc<Writeback>,
    ) -> (Arc<Pages>, AllDone) {
        let (inner, changed) = Default::default();
        let (done, rx) = self::channel();
        (Arc::new(Pages { world, channel, nodes, writeback, inner, changed, done }), AllDone(rx))
    }

    fn lock(&self) -> MutexGuard<'_, PageJobs> {
        self.inner.lock()
    }

    /// Has the kernel give up pages, and drops `over` when it has and what it wrote is with the client.
    pub fn forget(self: &Arc<Self>, fid: Fid, ranges: Vec<(u64, u64)>, over: CancelOnDrop) {
        let mut t = self.lock();
        if t.ended {
            return; // and with the connection the pages are gone
        }
        t.jobs.push_back(Job { fid, ranges, over });
        if t.jobs.len() <= t.idle || t.threads >= THREADS_MAX {
            self.changed.notify_one();
            return;
        }
        t.threads += 1;
        assert!(t.threads <= THREADS_MAX, "so many threads there are and no more");
        drop(t);
        if let Err(e) = self.spawn() {
            // Then it waits for those that there are: at least the first of all.
            tracing::error!("no further thread for pages that the kernel must give up: {e}");
            self.changed.notify_one();
        }
    }

    /// One more thread that does jobs; the first before there are any.
    pub fn start(self: &Arc<Self>) -> std::io::Result<()> {
        self.lock().threads += 1;
        self.spawn()
    }

    /// The thread of which `threads` speaks already.
    fn spawn(self: &Arc<Self>) -> std::io::Result<()> {
        let p = self.clone();
        world::sys::thread("fuse-pages", move || p.run()).inspect_err(|_| self.lock().threads -= 1)
    }

    /// The session is over.
    pub fn stop(&self) {
        let left = {
            let mut t = self.lock();
            t.ended = true;
            std::mem::take(&mut t.jobs)
        };
        self.changed.notify_all();
        drop(left);
    }

    fn run(&self) {
        let own = match guard::only_descriptor(&self.channel) {
            Ok(own) => own,
            Err(e) => {
                tracing::warn!(
                    "kill -9 may leave the mount to be unmounted by force: no descriptors of its own: {e}"
                );
                None
            }
        };
        let channel = own.as_ref().unwrap_or(&self.channel);
        let mut t = self.lock();
        loop {
            if let Some(job) = t.jobs.pop_front() {
                drop(t);
                self.give_up(channel, job);
                t = self.lock();
                continue;
            }
            if t.ended || t.idle >= THREADS_KEPT {
                assert!(t.threads > t.idle, "the thread that ends was counted, and did something");
                t.threads -= 1;
                return;
            }
            t.idle += 1;
            assert!(t.idle <= t.threads, "whoever is idle is one of the threads");
            t = self.changed.wait(t);
            t.idle -= 1;
        }
    }

    fn give_up(&self, channel: &Channel, job: Job) {
        let mut error = None;
        // The kernel may have forgotten the inode, and its pages with it.
        if let Some(ino) = self.nodes.id(job.fid) {
            for (start, end) in &job.ranges {
                let Ok(off) = i64::try_from(*start) else { continue };
                // 0: up to the end.
                let len = i64::try_from(end - start).unwrap_or(0);
                let msg = NotifyInvalInode { ino, off, len };
                match channel.notify(abi::NOTIFY_INVAL_INODE, msg.as_bytes()) {
                    Ok(()) | Err(Errno::ENOENT) => {}
                    Err(e) => {
                        error = Some(e);
                        break;
                    }
                }
            }
        }
        drop(self.done.send(Done { fid: job.fid, over: job.over, error }));
    }

    /// Ends jobs that the kernel has done, for as long as the daemon lives: in a thread of its own.
    pub fn finish(&self, all: &AllDone) {
        while let Ok(Done { fid, over, error }) = all.0.recv() {
            if let Some(e) = error {
                tracing::debug!(%fid, "the kernel gives up no pages any more: {e}");
            }
            if self.writeback.is_idle() {
                continue;
            }
            // What the kernel wrote was perhaps accepted without being with the client yet.
            let writeback = self.writeback.clone();
            self.world.spawn("fuse-pages", async move {
                writeback.settle(fid).await;
                drop(over);
            });
        }
    }
}
