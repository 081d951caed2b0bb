//! Pages of a kernel: filled under locks, written back under locks, given up before the locks are (decision 0016).
//!
//! The kernel says nothing of who looks at a page or stores into it. So a page is filled under a lock for writing as
//! soon as somebody on this mount could store into it, and what is filled is noted with the lock. A lock that goes is
//! *swept* first: the keeper makes the kernel give up what is noted, which makes the kernel write what was stored. It
//! may be unable to do so before somebody else is done: the page that it must give up may be one that is being filled
//! again. What the kernel may wait for relies on the lock all the same (it is still held), and is swept once more.
//!
//! A kernel that fills a page waits for nothing but that; who waits for a new lock waits for another mount's sweep; so
//! the rule that keeps two sweeps from waiting for each other is: a fill that a sweep may wait for does not wait for locks.

use super::beside::Beside;
use super::file::{File, Lock, Outcome, Pending};
use super::pin::{Pins, Want};
use super::read::read_len;
use super::write::{wants, write_meta};
use crate::meta::Leave;
use crate::ops::Small;
use crate::stats::Verb;
use crate::stripe;
use crate::targets::Target;
use crate::{Call, Fs, OpenFile, R};
use bytes::Bytes;
use model::limits::RPC_BULK_MAX_BYTES;
use model::planted::{self, Bug};
use model::{Errno, Fid, TargetKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::msg::extent::ExtentMode;
use world::BoxFuture;
use world::{Instant, select};

/// What a kernel fills and gives up at least.
const PAGE_BYTES: u64 = 4096;
/// A sweep that takes longer may be waiting for the fill that waits for its end.
pub(crate) const GRACE: Duration = Duration::from_millis(2);
/// How often it is looked whether the locks of pages are still good.
const PAGES_AGAIN: Duration = Duration::from_secs(1);
/// How often a lease of a lock is looked at while it is over.
const LEASE_AGAIN: Duration = Duration::from_millis(100);
/// Ranges of the file that one sweep names; one around all of them beyond.
const SWEEP_RANGES_MAX: usize = 256;
/// A cut that waits so long for a lock while the kernel cannot give up pages is given up: the kernel writes no page of
/// a file that is being cut.
const CUT_MAX: Duration = Duration::from_secs(2);

/// What a look at the locks for a fill gave.
enum Look {
    Held(Pins),
    /// A lock that would do is being swept, or a write is under way; `bool`: who may wait for this fill.
    After(bool),
    /// Asked for; `bool`: and a sweep may wait for this fill.
    Asked(Arc<Pending>, bool),
    Inactive,
    /// The server was not heard from for too long.
    NoLease,
}

/// A number that is one less again when this goes.
struct Void(Arc<File>);

impl Drop for Void {
    fn drop(&mut self) {
        self.0.void.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Fs {
    /// As [`Fs::read`], for pages that the kernel keeps until it is asked for them: whole ones.
    pub fn fill(self: Arc<Self>, call: Call, file: Arc<OpenFile>, off: u64, len: u32) -> BoxFuture<R<Bytes>> {
        Box::pin(async move {
            self.watch_pages();
            let r = self.run(Verb::Read, self.fill_data(&call, file.fid, off, len as usize)).await?;
            self.was_read(&file, &r);
            Ok(r)
        })
    }

    async fn fill_data(self: &Arc<Self>, call: &Call, fid: Fid, off: u64, len: usize) -> R<Bytes> {
        let len = read_len(off, len);
        if len == 0 {
            return Ok(Bytes::new());
        }
        loop {
            let layout = match self.fill_small(call, fid, off, len).await? {
                Small::Done(data) => return Ok(data),
                Small::Objects(_, layout) => layout,
            };
            let file = self.data_file(fid, &layout).await?.ok_or(Errno::EIO)?;
            let range = (off, off + len as u64);
            let pins = self.pin_fill(&file, range, &wants(&layout, off, len as u64, false)?).await?;
            if let Some(data) = self.read_pinned(&file, &pins, off, len).await? {
                return Ok(data);
            }
        }
    }

    /// Locks for a fill, and the pages noted with them.
    async fn pin_fill(self: &Arc<Self>, file: &Arc<File>, range: (u64, u64), wants: &[Want]) -> R<Pins> {
        // One page is always one lock's.
        let single = matches!(wants, [w] if w.end - w.start < PAGE_BYTES);
        let mut since: Option<Instant> = None;
        let mut asked: Option<Arc<Pending>> = None;
        loop {
            let mut changed = Box::pin(file.changed.notified());
            changed.as_mut().enable();
            if let Some(p) = &asked
                && let Some(Outcome::Failed(e)) = *p.outcome.lock().expect("no panic while locked")
            {
                return Err(e);
            }
            let now = self.world.now();
            let late = since.is_some_and(|t| now.since(t) >= GRACE);
            let in_way = match self.look_fill(file, range, wants, late) {
                Look::Held(pins) => return Ok(pins),
                Look::Inactive => return Err(Errno::EIO),
                Look::NoLease => {
                    let target = file.lock()[wants[0].stripe].target.clone();
                    if target.import.connected().await == Err(Errno::ESHUTDOWN) {
                        return Err(Errno::ESHUTDOWN);
                    }
                    self.world.sleep(LEASE_AGAIN).await;
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
                    select(changed, self.world.sleep(left)).await;
                }
                _ => changed.await,
            }
        }
    }

    fn look_fill(self: &Arc<Self>, file: &Arc<File>, range: (u64, u64), wants: &[Want], late: bool) -> Look {
        let mut objs = file.lock();
        // Looked at with the file locked: see [`Fs::no_pages_to_store_into`].
        let write = self.opens.is_read_write(file.fid) && !planted::on(Bug::PagesFilledToRead);
        let (mut found, mut missing) = (Vec::with_capacity(wants.len()), None);
        let beside = self.data.writing.look(file.fid, range);
        let (mut swept, mut in_way) = (beside != Beside::Nothing, beside == Beside::Clearing);
        for w in wants {
            let o = &objs[w.stripe];
            if !o.target.is_active() {
                return Look::Inactive;
            }
            let fresh = |l: &&Lock| !l.going && l.covers(write, w.start, w.end);
            let leaving = |l: &&Lock| {
                (l.sweeping && l.covers(false, w.start, w.end))
                    || (l.clearing > 0 && l.covers(write, w.start, w.end))
            };
            in_way |= o.locks.iter().any(|l| l.sweeping && l.start <= w.end && w.start <= l.end);
            if let Some(l) = o.locks.iter().find(fresh) {
                found.push((w.stripe, l.id));
            } else if let Some(l) = o.locks.iter().find(leaving) {
                swept = true;
                found.push((w.stripe, l.id));
            } else if missing.is_none() {
                missing = Some(*w);
            }
        }
        if let Some(w) = missing {
            let p = self.ask(file, &mut objs[w.stripe], &Want { write, ..w }, true);
            return Look::Asked(p, in_way);
        }
        if swept && !(late && in_way) {
            return Look::After(in_way);
        }
        if !wants.iter().all(|w| objs[w.stripe].target.data.is_leased(&self.world, &objs[w.stripe].target)) {
            return Look::NoLease;
        }
        for (w, (stripe, id)) in wants.iter().zip(&found) {
            let l = objs[*stripe].lock_mut(*id).expect("found a moment ago");
            l.pin();
            l.pages.add(w.start, w.end.saturating_add(1));
        }
        if beside != Beside::Nothing {
            self.data.writing.note_late(file.fid, range);
        }
        Look::Held(Pins::counted(file, found))
    }

    /// The pages of a lock that goes are given up. No fill relies on it afterwards.
    pub(super) async fn sweep(&self, file: &Arc<File>, stripe: usize, id: u64) {
        loop {
            let ranges = {
                let mut objs = file.lock();
                let Some(l) = objs[stripe].lock_mut(id) else { return };
                l.going = true;
                if planted::on(Bug::PagesKeptWithoutLock) {
                    l.pages.take();
                }
                if l.pages.is_empty() {
                    if std::mem::replace(&mut l.sweeping, false) {
                        drop(objs);
                        file.changed.notify_waiters();
                    }
                    return;
                }
                l.sweeping = true;
                l.pages.take()
            };
            // A fill that waits for another lock may now be what the kernel waits for.
            file.changed.notify_waiters();
            self.meta.pages_given_up(file.fid, file_ranges(file, stripe, &ranges)).await;
        }
    }

    /// Locks were lost: what was filled under them is given up, and what was stored into it is lost.
    pub(super) fn pages_void(&self, file: &Arc<File>, lost: Vec<(usize, Vec<(u64, u64)>)>) {
        let ranges: Vec<_> = lost.iter().flat_map(|(s, r)| file_ranges(file, *s, r)).collect();
        if !ranges.is_empty() {
            file.void.fetch_add(1, Ordering::SeqCst);
            let void = Void(file.clone());
            self.meta.forget_pages(file.fid, ranges, Leave::new(move || drop(void)));
        }
    }

    /// Nothing that was read before is used under a lock whose lease is over ([`rpc::lease_life`]): nor are pages.
    fn watch_pages(self: &Arc<Self>) {
        if self.data.watching_pages.swap(true, Ordering::SeqCst) {
            return;
        }
        let (weak, world) = (Arc::downgrade(self), self.world.clone());
        self.world.spawn("client-pages", async move {
            loop {
                world.sleep(PAGES_AGAIN).await;
                let Some(fs) = weak.upgrade().filter(|fs| !fs.is_closed()) else { return };
                fs.sweep_unsure_leases();
                let sure = |t: &Arc<Target>| t.id.kind != TargetKind::Ost || t.data.is_leased(&fs.world, t);
                if !fs.targets.all().iter().all(sure) {
                    fs.data.all_files().iter().for_each(|f| fs.give_up_unsure(f));
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
                if !o.target.data.is_leased(&self.world, &o.target) {
                    let noted = o.locks.iter().flat_map(|l| l.pages.all());
                    ranges.extend(file_ranges(file, i, &noted.collect::<Vec<_>>()));
                }
            }
        }
        if !ranges.is_empty() && !file.unsure.swap(true, Ordering::SeqCst) {
            let f = file.clone();
            let over = Leave::new(move || f.unsure.store(false, Ordering::SeqCst));
            self.meta.forget_pages(file.fid, ranges, over);
        }
    }

    /// Before anybody can store into pages of a file: none is left that was filled under a lock for reading, and none
    /// will be, because the file is open for reading and writing by now.
    pub(crate) async fn no_pages_to_store_into(self: &Arc<Self>, fid: Fid) {
        self.sweep_small(fid).await;
        let Some(file) = self.data.known(fid) else { return };
        loop {
            let mut changed = Box::pin(file.changed.notified());
            changed.as_mut().enable();
            let mut go = Vec::new();
            {
                let mut objs = file.lock();
                let mut none = true;
                for (stripe, o) in objs.iter_mut().enumerate() {
                    let paged =
                        |l: &&mut Lock| l.mode == ExtentMode::Read && (l.sweeping || !l.pages.is_empty());
                    for l in o.locks.iter_mut().filter(paged) {
                        none = false;
                        if !std::mem::replace(&mut l.wanted, true) {
                            l.uses = l.uses.max(1);
                            go.push((stripe, l.id));
                        }
                    }
                }
                if none {
                    return;
                }
            }
            for (stripe, id) in go {
                let (fs, file) = (self.clone(), file.clone());
                self.world.spawn("client-revoke", async move { fs.give_lock_back(file, stripe, id).await });
            }
            changed.await;
        }
    }

    /// What was stored into pages comes out. Never waits for locks: those under which the pages were filled are there
    /// until the pages are given up. `EIO` if they were lost, which the next fsync of the file says, too: who stored is not there.
    pub fn write_pages(self: Arc<Self>, fid: Fid, off: u64, data: Bytes) -> BoxFuture<R<()>> {
        Box::pin(async move {
            let len = data.len() as u64;
            let work = async {
                self.drop_privileges_stored(fid).await?;
                self.write_paged(fid, off, data).await
            };
            let r = self.run(Verb::Write, work).await;
            match r {
                Ok(()) => self.stats.add(Verb::WriteBytes, len),
                Err(e) => self.told.add(fid, e),
            }
            r
        })
    }

    /// What was stored into pages is lost before it came here.
    pub fn pages_lost(&self, fid: Fid, off: u64, len: u64, why: Errno) {
        self.data.errors.add(self.world.wall(), fid, format!("page of {fid}"), (off, off + len), why);
        self.told.add(fid, why);
    }

    async fn write_paged(self: &Arc<Self>, fid: Fid, mut off: u64, mut data: Bytes) -> R<()> {
        self.writable()?;
        let file = self.data.known(fid);
        let mut r = Ok(());
        while !data.is_empty() {
            let n = match &file {
                Some(f) if f.void.load(Ordering::SeqCst) == 0 => self.write_some(f, off, &data).await?,
                _ => 0,
            };
            let n = if n > 0 {
                n
            } else {
                let page = (PAGE_BYTES - off % PAGE_BYTES).min(data.len() as u64);
                let what = format!("page of {fid}");
                self.data.errors.add(self.world.wall(), fid, what, (off, off + page), Errno::EIO);
                r = Err(Errno::EIO);
                page as usize
            };
            off += n as u64;
            drop(data.split_to(n));
        }
        r
    }

    /// Writes as many bytes from the start as one lock of each object covers, and returns how many that are.
    async fn write_some(self: &Arc<Self>, file: &Arc<File>, off: u64, data: &Bytes) -> R<usize> {
        let state = self.file_state(file.fid).await?;
        loop {
            let Some((pins, n)) = pin_held(file, off, data.len() as u64)? else { return Ok(0) };
            let part = data.slice(..n);
            let stripes: Vec<usize> = pins.stripes().collect();
            self.room(file, &stripes, n as u64).await;
            let meta = write_meta(&state, self.world.wall());
            let pieces = stripe::pieces(&file.layout, file.fid, off, n, RPC_BULK_MAX_BYTES);
            if !self.take_promises(file, &pieces).await {
                self.write_through(file, &pins, off, part, meta).await?;
                return Ok(n);
            }
            if self.commit(file, &pins, &pieces, &part, meta) {
                return Ok(n);
            }
        }
    }

    /// As `pin_all`, for a cut: in a kernel that cuts a file no page of it is written, so that a sweep of it may wait for
    /// the cut. `EINTR` if they wait for each other by way of another mount.
    pub(super) async fn pin_cut(self: &Arc<Self>, file: &Arc<File>, wants: &[Want]) -> R<Pins> {
        let wants: Vec<Want> = wants.iter().map(|w| Want { late: true, ..*w }).collect();
        let stuck = async {
            let mut since = self.world.now();
            loop {
                self.world.sleep(CUT_MAX / 8).await;
                let sweeping = file.lock().iter().any(|o| o.locks.iter().any(|l| l.sweeping));
                let now = self.world.now();
                if !sweeping {
                    since = now;
                } else if now.since(since) >= CUT_MAX {
                    return;
                }
            }
        };
        match select(Box::pin(self.pin_all(file, &wants)), Box::pin(stuck)).await {
            world::Either::Left(r) => r,
            world::Either::Right(()) => {
                tracing::warn!("{}: a truncate and pages that are mapped wait for each other", file.fid);
                Err(Errno::EINTR)
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
            let covers = |l: &&Lock| l.writes() && l.start <= w.start && w.start <= l.end;
            match objs[w.stripe].locks.iter().filter(covers).max_by_key(|l| l.end) {
                Some(l) if l.end >= w.end => held.push((w.stripe, l.id)),
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
    for (stripe, id) in &held {
        objs[*stripe].lock_mut(*id).expect("found a moment ago").pin();
    }
    drop(objs);
    Ok(Some((Pins::counted(file, held), n as usize)))
}

/// The parts of the file that lie in these ranges of an object, or a little more; ends are exclusive.
fn file_ranges(file: &File, stripe: usize, ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let Ok(c) = stripe::component(&file.layout) else { return vec![(0, u64::MAX)] };
    if c.objects.len() == 1 {
        return ranges.to_vec();
    }
    let unit = u64::from(c.stripe_size);
    let units: u64 = ranges.iter().map(|(s, e)| (e - s) / unit + 2).sum();
    let whole = |s: u64, e: u64| (c.file_offset(stripe, s), c.file_offset(stripe, e - 1) + 1);
    if units > SWEEP_RANGES_MAX as u64 {
        return ranges.iter().map(|(s, e)| whole(*s, *e)).collect();
    }
    let mut out = Vec::new();
    for &(mut s, e) in ranges {
        while s < e {
            let to = e.min((s / unit + 1) * unit);
            out.push(whole(s, to));
            s = to;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Layout;

    #[test]
    fn ranges_of_an_object_are_pieces_of_the_file() {
        let layout =
            |n: u16| Arc::new(Layout::plain(Fid::new(1, 2, 0), 65536, "", &(0..n).collect::<Vec<_>>()));
        let file = |n| File::new(Fid::new(1, 2, 0), layout(n), Vec::new());
        assert_eq!(file_ranges(&file(1), 0, &[(5, 70000)]), [(5, 70000)]);
        assert_eq!(
            file_ranges(&file(2), 1, &[(4096, 65536 + 4096)]),
            [(65536 + 4096, 131_072), (196_608, 196_608 + 4096)]
        );
        let many = file_ranges(&file(2), 0, &[(0, 65536 * 1000)]);
        assert_eq!(many, [(0, 65536 * 1999)]);
    }
}
