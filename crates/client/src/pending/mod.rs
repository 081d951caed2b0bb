//! Asynchronous metadata: operations that are executed here, under exclusive leases, answered at once, and told to the
//! metadata server in batches a little later (decision 0018).
//!
//! `rules` say what an operation makes of inodes, `meta/cache/owned.rs` executes it on what is known, `log` holds what the
//! server has not heard of; `own` gets directories, `flush` sends batches, `local` is what the operations in
//! `ops/VERB.rs` ask first. They go to the server as ever if it cannot be done here.
//!
//! *No request overtakes what was executed here*: every request to a metadata server passes
//! [`Fs::tell_pending`] (`targets.rs`), which has everything sent that was executed until then. A request that changes
//! something marks what it changes as busy before that, so that nothing new is executed on it meanwhile.

mod flush;
mod local;
mod log;
mod own;
pub(crate) mod rules;

pub(crate) use log::{Log, Queued, TOUCHED_MAX};
pub(crate) use rules::Blocks;

use crate::Fs;
use model::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use world::sync;

/// Where operations are executed here: there is one metadata target.
pub(crate) const MDT: u16 = crate::locate::ROOT_MDT;
/// How long an unmount waits for the metadata server to take what was executed here.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(30);
/// How long `lru_size=clear` waits for it.
const CLEAR_PATIENCE: Duration = Duration::from_secs(5);

/// What is shared by those who queue, those who wait and the one who sends.
#[derive(Default)]
pub(crate) struct Pending {
    /// `llite.*.md_writeback`=0.
    off: AtomicBool,
    /// Somebody sends until there is nothing left.
    sending: AtomicBool,
    /// Leases are to be given back when there is nothing left.
    drop: AtomicBool,
    /// Told to send now.
    hurry: sync::Notify,
    /// Told when operations are over.
    over: sync::Notify,
    /// Directories that are being asked for.
    owning: Mutex<model::Set<model::Fid>>,
    /// Told when one was answered.
    owned: sync::Notify,
    pub executed: AtomicU64,
    pub batches: AtomicU64,
    pub asked: AtomicU64,
    pub refused: AtomicU64,
    pub lost: AtomicU64,
}

impl Pending {
    /// When there is nothing left to send, leases are given back.
    pub(crate) fn drop_once_told(&self, log: &Log) {
        self.drop.store(!log.is_empty(), Relaxed);
        self.hurry.notify_one();
    }

    pub(crate) fn is_on(&self) -> bool {
        !self.off.load(Relaxed)
    }
}

impl Fs {
    /// `llite.*.md_writeback`. What was executed here before is sent.
    pub(crate) fn set_md_writeback(&self, on: bool) {
        self.pending.off.store(!on, Relaxed);
        self.pending.hurry.notify_one();
    }

    /// Whether this setting gives all leases back: only then there is something to wait for ([`Fs::leases_dropped`]).
    pub fn clears_leases(&self, name: &str, value: &str) -> bool {
        value == "clear" && self.get_param(name).iter().any(|(n, _)| n.ends_with(".lru_size"))
    }

    /// Waits until the leases are given back that [`Fs::drop_leases`] left for operations that were not sent. `EAGAIN`: it
    /// takes longer than [`CLEAR_PATIENCE`]; they go back when the server has taken the operations.
    pub async fn leases_dropped(self: &Arc<Self>) -> Result<(), Errno> {
        let dropped = async {
            loop {
                let mut over = Box::pin(self.pending.over.notified());
                over.as_mut().enable();
                if !self.pending.drop.load(Relaxed) {
                    return;
                }
                over.await;
            }
        };
        self.cx.world.timeout(CLEAR_PATIENCE, dropped).await.ok_or(Errno::EAGAIN)
    }

    /// Has everything sent that was executed here until now, and waits for the answer. What is lost on the way is the
    /// business of fsync.
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

    /// As [`Fs::tell_pending`], for an fsync. True: the server has all of it on disk, and everything that it had executed
    /// before the last batch, which was sent after this was called.
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
        self.meta.lock().log.proven() >= end
    }

    /// Waits until the operations up to `position` are over.
    pub(crate) async fn pending_over(self: &Arc<Self>, position: u64) {
        loop {
            let mut over = Box::pin(self.pending.over.notified());
            over.as_mut().enable();
            {
                let mut c = self.meta.lock();
                if c.log.over() >= position {
                    return;
                }
                c.log.want(position);
            }
            self.send_pending();
            self.pending.hurry.notify_one();
            over.await;
        }
    }

    /// Waits while the log is full.
    async fn pending_room(self: &Arc<Self>) {
        loop {
            let mut over = Box::pin(self.pending.over.notified());
            over.as_mut().enable();
            if !self.meta.lock().log.is_full() {
                return;
            }
            self.send_pending();
            over.await;
        }
    }

    /// At the end of a mount.
    pub(crate) async fn tell_pending_at_unmount(self: &Arc<Self>) {
        if self.cx.world.timeout(UNMOUNT_PATIENCE, self.tell_pending()).await.is_none() {
            tracing::error!("the metadata server does not take what was executed here: it is lost");
            self.all_pending_lost(model::Errno::EIO);
        }
    }

    /// The leases are gone, and everything that was executed under them and not answered.
    pub(crate) fn all_pending_lost(&self, why: model::Errno) {
        let life = self.targets.get(model::TargetId::mdt(MDT)).map_or(0, |t| t.import.life());
        self.meta.clear(life, |lost| self.report_lost(lost, why));
        self.pending.over.notify_waiters();
    }

    /// Operations of which a batch says, or which say by themselves, that they never happened. With the cache locked in which they
    /// waited: an fsync that finds nothing left to send finds the error.
    fn report_lost(&self, lost: &[Queued], why: model::Errno) {
        if lost.is_empty() {
            return;
        }
        self.pending.lost.fetch_add(lost.len() as u64, Relaxed);
        let made = lost.iter().map(|q| q.made).filter(|f| *f != model::Fid::NONE).collect();
        let files = lost.iter().flat_map(Queued::touches).collect();
        self.cx.changes_lost(&crate::base::lost::Changed { files, made }, why);
        for q in lost {
            self.cx.errors.add_operation(self.cx.world.wall(), q.touched[0], q.text(), why);
        }
    }

    /// Operations executed here so far, of those answered, and of those known to be durable; for tests.
    pub fn pending_state(&self) -> (u64, u64, u64) {
        let (committed, kept) = self
            .targets
            .get(model::TargetId::mdt(MDT))
            .map_or((0, 0), |t| (t.import.last_committed(), t.import.uncommitted().0));
        let mut c = self.meta.lock();
        (c.log.end(), c.log.over(), c.log.durable(committed, kept))
    }

    /// Operations and bytes that were executed here and not answered.
    pub(crate) fn pending_load(&self) -> (usize, usize) {
        self.meta.lock().log.load()
    }

    /// What was counted, a line each.
    pub(crate) fn pending_text(&self) -> String {
        let p = &self.pending;
        let n = |c: &AtomicU64| c.load(Relaxed);
        format!(
            "executed: {}\nbatches: {}\ndirectories_asked: {}\ndirectories_refused: {}\nlost: {}",
            n(&p.executed),
            n(&p.batches),
            n(&p.asked),
            n(&p.refused),
            n(&p.lost)
        )
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.meta.lock().log.is_empty()
    }

    /// Nothing is executed here unless it is worth while and safe; `dir` may be any file.
    fn executes_here(&self, fid: model::Fid) -> bool {
        self.pending.is_on()
            && !self.cx.is_dirsync()
            && !self.cx.is_closed()
            && self.locate.mdt_of(fid) == MDT
    }
}
