//! Pages of small files in a kernel: filled under the lease on the inode, given up before that is (decision 0016).
//!
//! Nobody can store into them: a file that is open for reading and writing gets objects before a page of it is filled.

use super::Cache;
use crate::base::keeper::{Keeper, Leave, pages_given_up};
use crate::ops::{Small, part};
use crate::pages::GRACE;
use crate::{Call, Fs, R};
use bytes::Bytes;
use model::planted::{self, Bug};
use model::{Fid, Layout, Map};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use world::sync::{Notify, oneshot};
use world::{Either, Instant, select};

/// How often a file is asked for a lease that others keep taking back, before it gets objects: their locks are given in turn.
const TRIES: u32 = 16;
const TRY_AGAIN: Duration = Duration::from_millis(1);

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
#[derive(Default)]
pub(crate) struct Mapped {
    files: Mutex<Map<Fid, Noted>>,
    /// A sweep began or ended.
    changed: Notify,
}

impl Mapped {
    fn lock(&self) -> MutexGuard<'_, Map<Fid, Noted>> {
        self.files.lock().expect("no panic while locked")
    }

    /// A page is filled under the lease. With the cache locked, in which the lease was found. False if it may not be.
    fn note(&self, fid: Fid) -> bool {
        let mut files = self.lock();
        let s = files.entry(fid).or_default();
        s.fills += u64::from(s.growing == 0);
        s.growing == 0
    }

    /// A fill wants objects: it must not wait for a sweep, so there must be no pages. False if there are.
    fn begin_growth(&self, fid: Fid) -> bool {
        let mut files = self.lock();
        match files.get_mut(&fid) {
            Some(s) if s.growing == 0 => return false,
            Some(s) => s.growing += 1,
            None => drop(files.insert(fid, Noted { growing: 1, ..Noted::default() })),
        }
        true
    }

    fn end_growth(&self, fid: Fid) {
        let mut files = self.lock();
        let s = files.get_mut(&fid).expect("it is growing");
        s.growing -= 1;
        if s.growing == 0 {
            files.remove(&fid);
        }
    }

    /// A page is filled although the lease is going. False if it is not any more.
    fn note_late(&self, fid: Fid) -> bool {
        match self.lock().get_mut(&fid) {
            Some(s) if s.sweeping.is_some() => {
                s.fills += 1;
                true
            }
            _ => false,
        }
    }

    fn is_sweeping(&self, fid: Fid) -> bool {
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
    async fn sweep(&self, keeper: &dyn Keeper, fid: Fid) {
        loop {
            let before = self.lock().get(&fid).map_or(0, |s| s.fills);
            pages_given_up(keeper, fid, vec![(0, u64::MAX)]).await;
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
    fn idle(&self) -> Vec<Fid> {
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
}

/// Until all of these sweeps are over.
pub(super) async fn swept(sweeps: Vec<oneshot::Receiver<()>>) {
    for over in sweeps {
        let _ = over.await;
    }
}

impl Fs {
    /// Starts to sweep those of these files of which there are pages; the ends of the sweeps.
    pub(super) fn sweep_leases(&self, fids: impl Iterator<Item = Fid>) -> Vec<oneshot::Receiver<()>> {
        let Some(keeper) = self.cx.keeper.get() else { return Vec::new() };
        let mut out = Vec::new();
        for fid in fids {
            if planted::on(Bug::PagesKeptWithoutLock) {
                continue;
            }
            let Some((over, fresh)) = self.meta.mapped.begin(fid) else { continue };
            out.push(over);
            if fresh {
                let (mapped, keeper) = (self.meta.mapped.clone(), keeper.clone());
                self.cx.world.spawn("client-sweep", async move { mapped.sweep(&*keeper, fid).await });
            }
        }
        out
    }

    /// No pages are left that were filled under a lease, unless they are filled anew.
    pub(crate) async fn sweep_small(&self, fid: Fid) {
        swept(self.sweep_leases([fid].into_iter())).await;
    }

    /// Pages under leases that may be lost by now are given up.
    pub(crate) fn sweep_unsure_leases(&self) {
        let unsure = self.meta.mapped.idle().into_iter().filter(|f| !self.leases_good(*f));
        drop(self.sweep_leases(unsure));
    }

    /// As `read_small`, for a page that the kernel keeps.
    pub(crate) async fn fill_small(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        off: u64,
        len: usize,
    ) -> R<Small<Bytes>> {
        let (mut tries, mut asked) = (0, 0);
        let mut since: Option<Instant> = None;
        loop {
            let mut changed = Box::pin(self.meta.mapped.changed.notified());
            changed.as_mut().enable();
            let state = self.file_state(fid).await?;
            let Some(layout) = state.layout.clone() else { return Ok(Small::Done(Bytes::new())) };
            if layout.mdt_component().is_none() {
                return Ok(Small::Objects(state, layout));
            }
            if self.meta.mapped.is_sweeping(fid) {
                let now = self.cx.world.now();
                let waited = now.since(*since.get_or_insert(now));
                if waited < GRACE {
                    select(changed, self.cx.world.sleep(GRACE - waited)).await;
                } else if self.meta.mapped.note_late(fid) {
                    match self.read_one(call, fid, &layout, off, len).await {
                        Ok(data) => return Ok(Small::Done(data)),
                        Err(e) => self.relayout(fid, e, &mut tries).await?,
                    }
                }
                continue;
            }
            since = None;
            if self.opens.is_read_write(fid) {
                self.grow_filled(fid).await?;
                continue;
            }
            // A sweep that begins meanwhile may wait for this page, and the metadata server for the sweep.
            let leased = Box::pin(self.leased_part(call, fid, &layout, off, len, &mut tries));
            match select(leased, self.sweep_begun(fid)).await {
                Either::Left(r) => {
                    if let Some(data) = r? {
                        return Ok(Small::Done(data));
                    }
                }
                Either::Right(()) => continue,
            }
            asked += 1;
            if asked > TRIES {
                self.grow_filled(fid).await?;
            } else if asked > 1 {
                self.cx.world.sleep(TRY_AGAIN).await;
            }
        }
    }

    /// Objects for a fill. A fill waits for no sweep, which may be waiting for it: where there are pages a sweep begins, and the
    /// caller looks again.
    async fn grow_filled(self: &Arc<Self>, fid: Fid) -> R<()> {
        if !self.meta.mapped.begin_growth(fid) {
            // None begins in a mount without a kernel.
            if self.sweep_leases([fid].into_iter()).is_empty() {
                self.grow_swept(fid).await?;
            }
            return Ok(());
        }
        let growing = Leave::new({
            let mapped = self.meta.mapped.clone();
            move || mapped.end_growth(fid)
        });
        let r = self.grow_swept(fid).await;
        drop(growing);
        r
    }

    /// Waits until a sweep of the file begins.
    async fn sweep_begun(&self, fid: Fid) {
        loop {
            let mut changed = Box::pin(self.meta.mapped.changed.notified());
            changed.as_mut().enable();
            if self.meta.mapped.is_sweeping(fid) {
                return;
            }
            changed.await;
        }
    }

    /// A part of a small file for a page that is noted under the lease. `None`: there is no lease just now.
    async fn leased_part(
        self: &Arc<Self>,
        call: &Call,
        fid: Fid,
        layout: &Layout,
        off: u64,
        len: usize,
        tries: &mut u32,
    ) -> R<Option<Bytes>> {
        for first in [true, false] {
            if self.leases_good(fid) {
                let mut c = self.meta.lock();
                if let Some((all, _)) = c.content(fid, self.cx.world.now()) {
                    return Ok(self.note_page(c, fid).then(|| part(&all, off, len)));
                }
            }
            if first {
                self.fetch_content(call, fid).await?;
            }
        }
        // It is too much to keep, or nothing is kept.
        let e = self.getattr_entry(self.cx.own(), fid).await?;
        self.opens.learn(&e);
        let t = self.meta.token();
        match self.read_one(call, fid, layout, off, len).await {
            Ok(data) => {
                let good = self.leases_good(fid);
                let mut c = self.meta.lock();
                let same = good && c.version_since(t, fid).is_some();
                Ok((same && self.note_page(c, fid)).then_some(data))
            }
            Err(e) => self.relayout(fid, e, tries).await.map(|()| None),
        }
    }

    /// False: somebody may store into it by now.
    fn note_page(&self, cache: MutexGuard<'_, Cache>, fid: Fid) -> bool {
        let noted = self.meta.mapped.note(fid);
        drop(cache);
        // Whoever opens the file for writing from here on sweeps what was noted.
        noted && !self.opens.is_read_write(fid)
    }
}
