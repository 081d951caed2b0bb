//! Pages of small files: filled under the lease on the inode.

use super::{GRACE, Pages};
use crate::base::cache_holder::CancelOnDrop;
use crate::llite::{Small, part};
use crate::mdc::{Cache, Mdc};
use crate::{Call, R};
use bytes::Bytes;
use model::mutex::MutexGuard;
use model::{Fid, Layout};
use std::sync::Arc;
use std::time::Duration;
use world::{Either, Instant, select};

/// How often a file is asked for a lease that others keep taking back, before it gets objects: their locks
/// are given in turn.
const TRIES: u32 = 16;
const TRY_AGAIN: Duration = Duration::from_millis(1);

impl Pages<'_> {
    /// As `read_small`, for a page that the kernel keeps.
    pub(crate) async fn fill_small(&self, call: &Call, fid: Fid, off: u64, len: usize) -> R<Small<Bytes>> {
        let mdc = self.0.lmv.mdc_of(fid).await?;
        let (mut tries, mut asked) = (0, 0);
        let mut since: Option<Instant> = None;
        loop {
            let mut changed = Box::pin(mdc.meta.mapped.changed.notified());
            changed.as_mut().enable();
            let state = self.0.data.file_state(fid).await?;
            let Some(layout) = state.layout.clone() else { return Ok(Small::Done(Bytes::new())) };
            if layout.mdt_component().is_none() {
                return Ok(Small::Objects(state, layout));
            }
            if mdc.meta.mapped.is_sweeping(fid) {
                let now = self.0.cx.world.now();
                let waited = now.since(*since.get_or_insert(now));
                if waited < GRACE {
                    select(changed, self.0.cx.world.sleep(GRACE - waited)).await;
                } else if mdc.meta.mapped.note_late(fid) {
                    match self.0.data.read_one(call, fid, &layout, off, len).await {
                        Ok(data) => return Ok(Small::Done(data)),
                        Err(e) => self.0.data.relayout(fid, e, &mut tries).await?,
                    }
                }
                continue;
            }
            since = None;
            if self.0.meta.opens.is_read_write(fid) {
                self.grow_filled(&mdc, fid).await?;
                continue;
            }
            // A sweep that begins meanwhile may wait for this page, and the metadata server for the sweep.
            let leased = Box::pin(self.leased_part(&mdc, call, fid, &layout, (off, len), &mut tries));
            match select(leased, sweep_begun(&mdc, fid)).await {
                Either::Left(r) => {
                    if let Some(data) = r? {
                        return Ok(Small::Done(data));
                    }
                }
                Either::Right(()) => continue,
            }
            asked += 1;
            if asked > TRIES {
                self.grow_filled(&mdc, fid).await?;
            } else if asked > 1 {
                self.0.cx.world.sleep(TRY_AGAIN).await;
            }
        }
    }

    /// Objects for a fill. A fill waits for no sweep, which may be waiting for it: where there are pages a
    /// sweep begins, and the caller looks again.
    async fn grow_filled(&self, mdc: &Arc<Mdc>, fid: Fid) -> R<()> {
        if !mdc.meta.mapped.begin_growth(fid) {
            // None begins in a mount without a kernel.
            if mdc.meta.mapped.begin_sweeps([fid].into_iter()).is_empty() {
                self.0.data.grow_swept(fid).await?;
            }
            return Ok(());
        }
        let growing = CancelOnDrop::new({
            let mapped = mdc.meta.mapped.clone();
            move || mapped.end_growth(fid)
        });
        let r = self.0.data.grow_swept(fid).await;
        drop(growing);
        r
    }

    /// A part of a small file for a page that is noted under the lease. `None`: there is no lease just now.
    async fn leased_part(
        &self,
        mdc: &Arc<Mdc>,
        call: &Call,
        fid: Fid,
        layout: &Layout,
        (off, len): (u64, usize),
        tries: &mut u32,
    ) -> R<Option<Bytes>> {
        for first in [true, false] {
            if mdc.meta.leases_good() {
                let mut c = mdc.meta.lock();
                if let Some((all, _)) = c.content(fid, self.0.cx.world.now()) {
                    return Ok(note_page(mdc, c, fid).then(|| part(&all, off, len)));
                }
            }
            if first {
                mdc.small.fetch(call, fid).await?;
            }
        }
        // It is too much to keep, or nothing is kept.
        let e = mdc.getattr_entry(self.0.cx.own(), fid).await?;
        self.0.meta.opens.learn(&e);
        let t = mdc.meta.token();
        match self.0.data.read_one(call, fid, layout, off, len).await {
            Ok(data) => {
                let good = mdc.meta.leases_good();
                let mut c = mdc.meta.lock();
                let same = good && c.version_since(t, fid).is_some();
                Ok((same && note_page(mdc, c, fid)).then_some(data))
            }
            Err(e) => self.0.data.relayout(fid, e, tries).await.map(|()| None),
        }
    }
}

/// Waits until a sweep of the file begins.
async fn sweep_begun(mdc: &Mdc, fid: Fid) {
    loop {
        let mut changed = Box::pin(mdc.meta.mapped.changed.notified());
        changed.as_mut().enable();
        if mdc.meta.mapped.is_sweeping(fid) {
            return;
        }
        changed.await;
    }
}

/// False: somebody may store into it by now.
fn note_page(mdc: &Mdc, cache: MutexGuard<'_, Cache>, fid: Fid) -> bool {
    let noted = mdc.meta.mapped.note(fid);
    drop(cache);
    // Whoever opens the file for writing from here on sweeps what was noted.
    noted && !mdc.shared.opens.is_read_write(fid)
}
