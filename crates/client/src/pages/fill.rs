//! Pages of a kernel: filled under locks, written back under locks, given up before the locks are (decision
//! 0016).
//!
//! The kernel says nothing of who looks at a page or stores into it. So a page is filled under a lock for
//! writing as soon as somebody on this mount could store into it, and what is filled is noted with the lock.
//! A lock that goes is *swept* first: the cache holder makes the kernel give up what is noted, which makes
//! the kernel write what was stored. It may be unable to do so before somebody else is done: the page that it
//! must give up may be one that is being filled again. What the kernel may wait for relies on the lock all
//! the same (it is still held), and is swept once more.
//!
//! A kernel that fills a page waits for nothing but that; who waits for a new lock waits for another mount's
//! sweep; so the rule that keeps two sweeps from waiting for each other is: a fill that a sweep may wait for
//! does not wait for locks.

use super::Pages;
use crate::base::cache_holder::CancelOnDrop;
use crate::llite::Small;
use crate::llite::beside::Beside;
use crate::llite::opens::following_layout;
use crate::llite::run_now;
use crate::llite::write_meta;
use crate::lov::pin::{LEASE_AGAIN, ObjectRequest, Pins};
use crate::lov::{File, map, read_len, wants};
use crate::osc::{Lock, LockEnqueue, LockRequest, Outcome, WriteMeta};
use crate::stats::Verb;
use crate::{Call, OpenHandle, R};
use bytes::Bytes;
use model::limits::RPC_BULK_MAX_BYTES;
use model::planted::{self, Bug};
use model::{Errno, Fid, Layout};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use world::BoxFuture;
use world::{Instant, select};

/// What a kernel fills and gives up at least.
const PAGE_BYTES: u64 = 4096;
/// A sweep that takes longer may be waiting for the fill that waits for its end.
pub(crate) const GRACE: Duration = Duration::from_millis(2);
/// How often it is looked whether the locks of pages are still good.
const PAGES_AGAIN: Duration = Duration::from_secs(1);

/// What a look at the locks for a fill gave.
enum Look {
    Held(Pins),
    /// A lock that would do is being swept, or a write is under way; `bool`: who may wait for this fill.
    After(bool),
    /// Asked for; `bool`: and a sweep may wait for this fill.
    Asked(Arc<LockEnqueue>, bool),
    Inactive,
    /// The server was not heard from for too long.
    NoLease,
}

impl Pages<'_> {
    /// As [`Fs::read`], for pages that the kernel keeps until it is asked for them: whole ones.
    pub fn fill(&self, call: Call, file: Arc<OpenHandle>, off: u64, len: u32) -> BoxFuture<R<Bytes>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let pages = Pages(&fs);
            pages.watch_pages();
            let r = run_now(&fs, Verb::Read, pages.fill_data(&call, file.fid, off, len as usize)).await?;
            fs.was_read(&file, &r);
            Ok(r)
        })
    }

    async fn fill_data(&self, call: &Call, fid: Fid, off: u64, len: usize) -> R<Bytes> {
        let len = read_len(off, len);
        if len == 0 {
            return Ok(Bytes::new());
        }
        following_layout!(self.0.data, fid, self.fill_by_known_layout(call, fid, off, len))
    }

    async fn fill_by_known_layout(&self, call: &Call, fid: Fid, off: u64, len: usize) -> R<Bytes> {
        loop {
            let layout = match self.fill_small(call, fid, off, len).await? {
                Small::Done(data) => return Ok(data),
                Small::Objects(state, layout) => {
                    // Pages are noted with locks on objects: a part without could not be asked for.
                    let end = layout.end().min(off + len as u64);
                    if off >= end {
                        return Ok(Bytes::new());
                    }
                    self.0.data.layouts.with_objects(fid, (state, layout), (off, end)).await?.1
                }
            };
            let len = len.min((layout.end() - off) as usize);
            match self.fill_objects(call, fid, &layout, off, len).await {
                Ok(Some(data)) => return Ok(data),
                Ok(None) => {}
                // The file is being moved, and its fences may wait for pages that wait for this fill: the
                // kernel tries again page by page.
                Err(Errno::ERELAYOUT) if len as u64 > PAGE_BYTES => return Err(Errno::EIO),
                Err(e) => return Err(e),
            }
        }
    }

    /// `None`: locks were lost meanwhile.
    async fn fill_objects(
        &self,
        call: &Call,
        fid: Fid,
        layout: &Arc<Layout>,
        off: u64,
        len: usize,
    ) -> R<Option<Bytes>> {
        let file = self.0.data.data_file(fid, layout).await?.ok_or(Errno::EIO)?;
        let range = (off, off + len as u64);
        if let Some(job) = self.0.cx.job_of(call) {
            *file.page_state.job.lock() = Some(job);
        }
        let pins = self.pin_fill(&file, range, &wants(&file.layout, off, len as u64, false)?).await?;
        file.read_pinned(call, &pins, off, len).await
    }

    /// Locks for a fill, and the pages noted with them.
    async fn pin_fill(&self, file: &Arc<File>, range: (u64, u64), wants: &[ObjectRequest]) -> R<Pins> {
        // One page is always one lock's.
        let single = matches!(wants, [w] if w.lock.end - w.lock.start < PAGE_BYTES);
        let mut since: Option<Instant> = None;
        let mut asked: Option<Arc<LockEnqueue>> = None;
        loop {
            let mut changed = Box::pin(file.changed.notified());
            changed.as_mut().enable();
            if let Some(Outcome::Failed(e)) = asked.as_ref().and_then(|p| p.outcome()) {
                return Err(e);
            }
            let now = self.0.cx.world.now();
            let late = since.is_some_and(|t| now.since(t) >= GRACE);
            let in_way = match self.look_fill(file, range, wants, late) {
                Look::Held(pins) => return Ok(pins),
                Look::Inactive => return Err(Errno::EIO),
                Look::NoLease => {
                    let target = &file.objects[wants[0].number].osc.target;
                    if target.import.connected().await == Err(Errno::ESHUTDOWN) {
                        return Err(Errno::ESHUTDOWN);
                    }
                    self.0.cx.world.sleep(LEASE_AGAIN).await;
                    continue;
                }
                Look::After(in_way) => in_way,
                Look::Asked(p, in_way) => {
                    if in_way && late && !single {
                        // The kernel tries again page by page.
                        return Err(Errno::EIO);
                    }
                    asked = Some(p);
                    in_way
                }
            };
            since = if in_way { since.or(Some(now)) } else { None };
            match since {
                Some(t) if !late => {
                    let left = GRACE.saturating_sub(now.since(t));
                    select(changed, self.0.cx.world.sleep(left)).await;
                }
                _ => changed.await,
            }
        }
    }

    fn look_fill(&self, file: &Arc<File>, range: (u64, u64), wants: &[ObjectRequest], late: bool) -> Look {
        let mut objs = file.lock();
        // Looked at with the file locked: see [`Fs::no_pages_to_store_into`].
        let write = self.0.meta.opens.is_read_write(file.fid) && !planted::on(Bug::PagesFilledToRead);
        let (mut found, mut missing) = (Vec::with_capacity(wants.len()), None);
        let beside = self.0.data.writing.look(file.fid, range);
        let (mut swept, mut in_way) = (beside != Beside::Nothing, beside == Beside::Clearing);
        for w in wants {
            let (o, ObjectRequest { number, lock: w }) = (&objs[w.number], *w);
            if !file.objects[number].osc.target.is_active() {
                return Look::Inactive;
            }
            let fresh = |l: &&Lock| !l.going && l.covers(write, w.start, w.end);
            let leaving = |l: &&Lock| {
                (l.sweeping && l.covers(false, w.start, w.end))
                    || (l.clearing > 0 && l.covers(write, w.start, w.end))
            };
            in_way |= o.locks.iter().any(|l| l.sweeping && l.start <= w.end && w.start <= l.end);
            if let Some(l) = o.locks.iter().find(fresh) {
                found.push((number, l.id));
            } else if let Some(l) = o.locks.iter().find(leaving) {
                swept = true;
                found.push((number, l.id));
            } else if missing.is_none() {
                missing = Some((number, w));
            }
        }
        if let Some((number, w)) = missing {
            let request = LockRequest { write, ..w };
            let p = file.objects[number].enqueue(&mut objs[number], &request, true);
            return Look::Asked(p, in_way);
        }
        if swept && !(late && in_way) {
            return Look::After(in_way);
        }
        if !wants.iter().all(|w| file.objects[w.number].osc.target.is_leased()) {
            return Look::NoLease;
        }
        assert_eq!(found.len(), wants.len(), "a fill has a lock for each of its parts");
        for (w, (number, id)) in wants.iter().zip(&found) {
            let l = objs[*number].lock_mut(*id).expect("found a moment ago");
            l.pin();
            l.pages.add(w.lock.start, w.lock.end.saturating_add(1));
        }
        if beside != Beside::Nothing {
            self.0.data.writing.note_late(file.fid, range);
        }
        Look::Held(Pins::counted(file, found))
    }

    /// Nothing that was read before is used under a lock whose lease is over ([`rpc::lease_life`]): nor are
    /// pages.
    fn watch_pages(&self) {
        if self.0.watching_pages.swap(true, Ordering::SeqCst) {
            return;
        }
        let (weak, world) = (Arc::downgrade(self.0), self.0.cx.world.clone());
        self.0.cx.world.spawn("client-pages", async move {
            loop {
                world.sleep(PAGES_AGAIN).await;
                let Some(fs) = weak.upgrade().filter(|fs| !fs.cx.is_closed()) else { return };
                fs.lmv.mdcs().iter().for_each(|m| m.meta.sweep_unsure());
                if !fs.lmv.oscs().iter().all(|osc| osc.target.is_leased()) {
                    fs.lov.all_files().iter().for_each(|f| Pages(&fs).give_up_unsure(f));
                }
            }
        });
    }

    /// The notes stay: the lock may go before the kernel has given up what it can.
    fn give_up_unsure(&self, file: &Arc<File>) {
        let mut ranges = Vec::new();
        {
            let objs = file.lock();
            for (i, o) in objs.iter().enumerate() {
                if !file.objects[i].osc.target.is_leased() {
                    let noted = o.locks.iter().flat_map(|l| l.pages.all());
                    ranges.extend(file.ranges_of(i, &noted.collect::<Vec<_>>()));
                }
            }
        }
        if !ranges.is_empty() && !file.page_state.revalidating.swap(true, Ordering::SeqCst) {
            let f = file.clone();
            let over = CancelOnDrop::new(move || f.page_state.revalidating.store(false, Ordering::SeqCst));
            self.0.cx.cache_holder.forget_pages(file.fid, ranges, over);
        }
    }

    /// What was stored into pages comes out. Never waits for locks: those under which the pages were filled
    /// are there until the pages are given up. `EIO` if they were lost, which the next fsync of the file
    /// says, too: who stored is not there.
    pub fn write_pages(&self, fid: Fid, off: u64, data: Bytes) -> BoxFuture<R<()>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let len = data.len() as u64;
            let work = async {
                fs.data.drop_privileges_stored(fid).await?;
                Pages(&fs).write_paged(fid, off, data).await
            };
            let r = run_now(&fs, Verb::Write, work).await;
            match r {
                Ok(()) => fs.stats.add(Verb::WriteBytes, len),
                Err(e) => fs.cx.told.add(fid, e),
            }
            r
        })
    }

    /// What was stored into pages is lost before it came here.
    pub fn pages_lost(&self, fid: Fid, off: u64, len: u64, why: Errno) {
        self.0.cx.errors.add(self.0.cx.world.wall(), fid, format!("page of {fid}"), (off, off + len), why);
        self.0.cx.told.add(fid, why);
    }

    async fn write_paged(&self, fid: Fid, mut off: u64, mut data: Bytes) -> R<()> {
        self.0.cx.pages_writable()?;
        let file = self.0.lov.known(fid);
        let mut r = Ok(());
        while !data.is_empty() {
            let n = match &file {
                Some(f) if f.page_state.invalidations.load(Ordering::SeqCst) == 0 => {
                    self.write_some(f, off, &data).await?
                }
                _ => 0,
            };
            let n = if n > 0 {
                n
            } else {
                let page = (PAGE_BYTES - off % PAGE_BYTES).min(data.len() as u64);
                let what = format!("page of {fid}");
                self.0.cx.errors.add(self.0.cx.world.wall(), fid, what, (off, off + page), Errno::EIO);
                r = Err(Errno::EIO);
                page as usize
            };
            assert!(n > 0 && n <= data.len(), "each step writes, or gives up, some of what is left");
            off += n as u64;
            drop(data.split_to(n));
        }
        r
    }

    /// Writes as many bytes from the start as one lock of each object covers, and returns how many that are.
    async fn write_some(&self, file: &Arc<File>, off: u64, data: &Bytes) -> R<usize> {
        let state = self.0.data.file_state(file.fid).await?;
        loop {
            let Some((pins, n)) = pin_held(file, off, data.len() as u64)? else { return Ok(0) };
            let part = data.slice(..n);
            let stripes: Vec<usize> = pins.stripes().collect();
            file.room(&stripes, n as u64).await;
            let job = file.page_state.job.lock().clone();
            let meta = WriteMeta { time: self.0.cx.world.wall(), job, ..write_meta(&state) };
            let pieces = map::pieces(&file.layout, file.fid, off, n, RPC_BULK_MAX_BYTES);
            if !file.take_grants(&pieces, &meta).await {
                file.write_through(&pins, off, part, meta).await?;
                return Ok(n);
            }
            if file.commit(&pins, &pieces, &part, &meta) {
                return Ok(n);
            }
        }
    }
}

/// Locks for writing that are held, for as many bytes from `off` on as they cover; `None` if for none.
fn pin_held(file: &Arc<File>, off: u64, len: u64) -> R<Option<(Pins, usize)>> {
    let mut objs = file.lock();
    let mut n = len;
    let mut held = Vec::new();
    // The first bytes decide the locks; these decide how many bytes.
    while n > 0 {
        held.clear();
        let mut less = n;
        for w in wants(&file.layout, off, n, true)? {
            let (number, w) = (w.number, w.lock);
            let covers = |l: &&Lock| l.writes() && l.start <= w.start && w.start <= l.end;
            match objs[number].locks.iter().filter(covers).max_by_key(|l| l.end) {
                Some(l) if l.end >= w.end => held.push((number, l.id)),
                // A page at a time, then.
                _ if n > PAGE_BYTES => less = PAGE_BYTES - off % PAGE_BYTES,
                _ => return Ok(None),
            }
        }
        if less == n {
            break;
        }
        n = less;
    }
    for (number, id) in &held {
        objs[*number].lock_mut(*id).expect("found a moment ago").pin();
    }
    drop(objs);
    Ok(Some((Pins::counted(file, held), n as usize)))
}
