//! Pages of small files in a kernel: filled under the lease on the inode, given up before that is (decision
//! 0016).
//!
//! Nobody can store into them: a file that is open for reading and writing gets objects before a page of it
//! is filled.

use crate::base::Context;
use crate::base::cache_holder::{CacheHolder, pages_given_up};
use model::mutex::{Mutex, MutexGuard};
use model::planted::{self, Bug};
use model::{Fid, Map};
use std::sync::Arc;
use world::sync::{Notify, oneshot};

#[derive(Default)]
struct Noted {
    /// Grows with each fill.
    fills: u64,
    /// A sweep is under way; who waits for its end.
    sweeping: Option<Vec<oneshot::Sender<()>>>,
    /// There are no pages, and none are filled until the file has objects.
    growing: usize,
}

/// Small files of which a kernel may have pages: no more than there are leases.
pub(crate) struct Mapped {
    cx: Arc<Context>,
    files: Mutex<Map<Fid, Noted>>,
    /// A sweep began or ended.
    pub changed: Notify,
}

impl Mapped {
    pub(super) fn new(cx: &Arc<Context>) -> Arc<Mapped> {
        Arc::new(Mapped { cx: cx.clone(), files: Mutex::default(), changed: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Map<Fid, Noted>> {
        self.files.lock()
    }

    /// A page is filled under the lease. With the cache locked, in which the lease was found. False if it may
    /// not be.
    pub(crate) fn note(&self, fid: Fid) -> bool {
        let mut files = self.lock();
        let s = files.entry(fid).or_default();
        s.fills += u64::from(s.growing == 0);
        s.growing == 0
    }

    /// A fill wants objects: it must not wait for a sweep, so there must be no pages. False if there are.
    pub(crate) fn begin_growth(&self, fid: Fid) -> bool {
        let mut files = self.lock();
        match files.get_mut(&fid) {
            Some(s) if s.growing == 0 => return false,
            Some(s) => s.growing += 1,
            None => drop(files.insert(fid, Noted { growing: 1, ..Noted::default() })),
        }
        true
    }

    pub(crate) fn end_growth(&self, fid: Fid) {
        let mut files = self.lock();
        let s = files.get_mut(&fid).expect("it is growing");
        assert!(s.growing > 0 && s.sweeping.is_none(), "where a file grows there are no pages");
        s.growing -= 1;
        if s.growing == 0 {
            files.remove(&fid);
        }
    }

    /// A page is filled although the lease is going. False if it is not any more.
    pub(crate) fn note_late(&self, fid: Fid) -> bool {
        match self.lock().get_mut(&fid) {
            Some(s) if s.sweeping.is_some() => {
                s.fills += 1;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn is_sweeping(&self, fid: Fid) -> bool {
        self.lock().get(&fid).is_some_and(|s| s.sweeping.is_some())
    }

    /// A sweep of the file: (its end, whether the caller must do it). `None`: there is nothing to sweep.
    fn begin(&self, fid: Fid) -> Option<(oneshot::Receiver<()>, bool)> {
        let mut files = self.lock();
        let s = files.get_mut(&fid).filter(|s| s.growing == 0)?;
        let (tx, rx) = oneshot::channel();
        let fresh = s.sweeping.is_none();
        s.sweeping.get_or_insert_default().push(tx);
        drop(files);
        self.changed.notify_waiters();
        Some((rx, fresh))
    }

    /// Until no page was filled meanwhile.
    async fn sweep(&self, cache_holder: &dyn CacheHolder, fid: Fid) {
        loop {
            let before = self.lock().get(&fid).map_or(0, |s| s.fills);
            pages_given_up(cache_holder, fid, vec![(0, u64::MAX)]).await;
            let mut files = self.lock();
            if files.get(&fid).is_none_or(|s| s.fills == before) {
                files.remove(&fid);
                drop(files);
                self.changed.notify_waiters();
                return;
            }
        }
    }

    /// Those that are not being swept.
    pub(crate) fn idle(&self) -> Vec<Fid> {
        self.lock().iter().filter(|(_, s)| s.sweeping.is_none() && s.growing == 0).map(|(f, _)| *f).collect()
    }

    /// All of them; they are not noted any more.
    pub(super) fn take(&self) -> Vec<Fid> {
        let mut files = self.lock();
        let busy = |s: &Noted| s.sweeping.is_some() || s.growing > 0;
        let idle: Vec<Fid> = files.iter().filter(|(_, s)| !busy(s)).map(|(f, _)| *f).collect();
        files.retain(|_, s| busy(s));
        idle
    }

    /// Starts to sweep those of these files of which there are pages; the ends of the sweeps.
    pub(crate) fn begin_sweeps(
        self: &Arc<Self>,
        fids: impl Iterator<Item = Fid>,
    ) -> Vec<oneshot::Receiver<()>> {
        let Some(cache_holder) = self.cx.cache_holder.get() else { return Vec::new() };
        let mut out = Vec::new();
        for fid in fids {
            if planted::on(Bug::PagesKeptWithoutLock) {
                continue;
            }
            let Some((over, fresh)) = self.begin(fid) else { continue };
            out.push(over);
            if fresh {
                let (mapped, cache_holder) = (self.clone(), cache_holder.clone());
                self.cx.world.spawn("client-sweep", async move { mapped.sweep(&*cache_holder, fid).await });
            }
        }
        out
    }

    /// No pages are left that were filled under a lease, unless they are filled anew.
    pub(crate) async fn sweep_all_of(self: &Arc<Self>, fid: Fid) {
        swept(self.begin_sweeps([fid].into_iter())).await;
    }
}

/// Until all of these sweeps are over.
pub(super) async fn swept(sweeps: Vec<oneshot::Receiver<()>>) {
    for over in sweeps {
        let _ = over.await;
    }
}
