//! Asynchronous metadata: operations that are executed here, under exclusive leases, answered at once, and
//! told to the metadata server in batches a little later (decision 0018).
//!
//! `rules` says what an operation makes of inodes, `cache/owned.rs` executes it on what is known, `log` holds
//! what the server has not heard of; `own` gets directories, `batch` sends, `execute` is what the operations
//! in `ops/VERB.rs` ask first. They go to the server as ever if it cannot be done here.
//!
//! *No request overtakes what was executed here*: every request to a metadata server passes
//! [`Mdc::tell_pending`] (`session/mod.rs`), which has everything sent that was executed until then. A
//! request that changes something marks what it changes as busy before that, so that nothing new is executed
//! on it meanwhile.

use super::Mdc;
use super::log::{Log, Queued};
use model::mutex::Mutex;
use model::planted::{self, Bug};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use wire::msg::notify::LeaseItem;
use world::sync;

/// What is shared by those who queue, those who wait and the one who sends.
#[derive(Default)]
pub(crate) struct UntoldOps {
    /// Somebody sends until there is nothing left.
    pub(super) sending: AtomicBool,
    /// Leases are to be given back when there is nothing left.
    pub(super) drop: AtomicBool,
    /// Told to send now.
    pub(super) wake: sync::Notify,
    /// Told when operations are over.
    pub(super) over: sync::Notify,
    /// Directories that are being asked for.
    pub(super) owning: Mutex<model::Set<model::Fid>>,
    /// Told when one was answered.
    pub(super) owned: sync::Notify,
}

impl UntoldOps {
    /// When there is nothing left to send, leases are given back.
    pub(crate) fn drop_once_told(&self, log: &Log) {
        self.drop.store(!log.is_empty(), Relaxed);
        self.wake.notify_one();
    }
}

impl Mdc {
    /// What was executed here is sent at once.
    pub(crate) fn wake(&self) {
        self.untold.wake.notify_one();
    }

    /// The server needs these leases for another client.
    pub(crate) fn leases_revoked(self: &Arc<Self>, items: &[LeaseItem]) {
        self.shared.revoked.fetch_add(items.len() as u64, Relaxed);
        if planted::on(Bug::CancelBeforeInvalidate) {
            self.meta.cancel_leases(items);
            let (me, items) = (self.clone(), items.to_vec());
            self.cx.world.spawn("client-late", async move {
                me.cx.world.sleep(Duration::from_millis(3)).await;
                for i in &items {
                    let _ = me.meta.lock().revoke(i, false);
                }
            });
            return;
        }
        let (mut at_once, mut later) = (Vec::new(), Vec::new());
        let end = {
            let (now, mut c) = (self.cx.world.now(), self.meta.lock());
            let early = planted::on(Bug::LeaseBeforePending);
            for i in items {
                if c.is_exclusive(i) {
                    c.leave(i, now);
                    if c.log.is_empty() || early { &mut at_once } else { &mut later }.push(*i);
                } else {
                    at_once.push(*i);
                }
            }
            c.log.end()
        };
        self.meta.let_go_of(&at_once);
        if !later.is_empty() {
            let me = self.clone();
            self.cx.world.spawn("client-tell-and-leave", async move {
                me.pending_over(end).await;
                me.meta.let_go_of(&later);
            });
        }
    }

    /// Gives every lease back, those under which something was executed that is not sent as soon as it is.
    pub(crate) fn drop_leases(&self) {
        let now = self.cx.world.now();
        let back = {
            let mut c = self.meta.lock();
            // In one step: what is told in between would keep its lease for good.
            self.untold.drop_once_told(&c.log);
            c.expire(now, Duration::ZERO)
        };
        self.meta.give_back(back);
    }

    /// Waits until the leases are given back that [`Mdc::drop_leases`] left for operations that were not
    /// sent.
    pub(crate) async fn leases_dropped(&self) {
        loop {
            let mut over = Box::pin(self.untold.over.notified());
            over.as_mut().enable();
            if !self.untold.drop.load(Relaxed) {
                return;
            }
            over.await;
        }
    }

    /// Has everything sent that was executed here until now, and waits for the answer. What is lost on the
    /// way is the business of fsync.
    pub(crate) async fn tell_pending(self: &Arc<Self>) {
        let end = {
            let c = self.meta.lock();
            if c.log.is_empty() {
                return;
            }
            c.log.end()
        };
        self.pending_over(end).await;
    }

    /// As [`Mdc::tell_pending`], for an fsync. True: the server has all of it on disk, and everything that it
    /// had executed before the last batch, which was sent after this was called.
    pub(crate) async fn tell_pending_durably(self: &Arc<Self>) -> bool {
        let end = {
            let mut c = self.meta.lock();
            (c.log.waiting() > 0).then(|| c.log.want_durable())
        };
        let Some(end) = end else {
            self.tell_pending().await;
            return false;
        };
        self.pending_over(end).await;
        self.meta.lock().log.known_durable() >= end
    }

    /// Waits until the operations up to `position` are over.
    pub(crate) async fn pending_over(self: &Arc<Self>, position: u64) {
        loop {
            let mut over = Box::pin(self.untold.over.notified());
            over.as_mut().enable();
            {
                let mut c = self.meta.lock();
                assert!(position <= c.log.end(), "only what was queued is waited for");
                if c.log.over() >= position {
                    return;
                }
                c.log.want(position);
            }
            self.send_pending();
            self.untold.wake.notify_one();
            over.await;
        }
    }

    /// Waits while the log is full.
    pub(super) async fn pending_room(self: &Arc<Self>) {
        loop {
            let mut over = Box::pin(self.untold.over.notified());
            over.as_mut().enable();
            if !self.meta.lock().log.is_full() {
                return;
            }
            self.send_pending();
            over.await;
        }
    }

    /// The leases are gone, and everything that was executed under them and not answered.
    pub(crate) fn all_pending_lost(&self, why: model::Errno) {
        let life = self.target.import.life();
        self.meta.clear(life, |lost| self.report_lost(lost, why));
        self.untold.over.notify_waiters();
    }

    /// Operations of which a batch says, or which say by themselves, that they never happened. With the cache
    /// locked in which they waited: an fsync that finds nothing left to send finds the error.
    pub(super) fn report_lost(&self, lost: &[Queued], why: model::Errno) {
        if lost.is_empty() {
            return;
        }
        self.shared.lost.fetch_add(lost.len() as u64, Relaxed);
        let made = lost.iter().map(|q| q.made).filter(|f| *f != model::Fid::NONE).collect();
        let files = lost.iter().flat_map(Queued::touches).collect();
        self.cx.changes_lost(&crate::base::lost::Changed { files, made }, why);
        for q in lost {
            self.cx.errors.add_operation(self.cx.world.wall(), q.touched[0], q.text(), why);
        }
    }

    /// Operations executed here so far, of those answered, and of those known to be durable; for tests.
    pub fn pending_state(&self) -> (u64, u64, u64) {
        let (committed, kept) = (self.target.import.last_committed(), self.target.import.uncommitted().0);
        let mut c = self.meta.lock();
        (c.log.end(), c.log.over(), c.log.durable(committed, kept))
    }

    /// Operations and bytes that were executed here and not answered.
    pub(crate) fn pending_load(&self) -> (usize, usize) {
        self.meta.lock().log.load()
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.meta.lock().log.is_empty()
    }

    /// Nothing is executed here unless it is worth while and safe; `dir` may be any file.
    pub(super) fn executes_here(&self, fid: model::Fid) -> bool {
        self.shared.executes() && !self.cx.is_dirsync() && !self.cx.is_closed() && self.is_home_of(fid)
    }
}
