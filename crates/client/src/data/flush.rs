//! Dirty bytes on their way to the OSTs: in messages of one run or several, a bounded number at a time, each under the
//! lock that covers it. A range is never in two messages at a time, so that what came later stays later.

use super::file::{Busy, File, Obj, WriteMeta};
use crate::detach::Detached;
use crate::ops::BoxFutureOf;
use crate::targets::Target;
use crate::{Fs, R};
use model::{Errno, ObjectAttr, ObjectId, Set};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::checksum::ChecksumType;
use wire::msg::write::Write;
use wire::{Bulk, RequestContext};
use world::future::join_all;
use world::sync::OwnedSemaphorePermit;

/// Dirty bytes older than this are written.
const AGE_MAX: Duration = Duration::from_secs(1);
/// How often ages are looked at.
const TICK: Duration = Duration::from_millis(250);

/// What one message will hold: runs of dirty bytes of an object, in order, under one lock. Ends are exclusive.
struct Plan {
    lock: u64,
    runs: Vec<(u64, u64)>,
}

impl Plan {
    fn bytes(&self) -> u64 {
        self.runs.iter().map(|(a, b)| b - a).sum()
    }
}

/// One message.
struct Chunk {
    number: u64,
    object: ObjectId,
    target: Arc<Target>,
    lock: u64,
    meta: WriteMeta,
    /// Object offsets, and the bytes there.
    runs: Vec<(u64, Bulk)>,
}

/// What a write says of itself.
#[derive(Clone, Copy)]
pub(super) struct WriteHow {
    /// The lock that covers it.
    pub lock: u64,
    /// The room was promised.
    pub granted: bool,
    /// To be answered when it is durable.
    pub durable: bool,
}

/// What came of an object's bytes.
enum Flushed {
    /// There were none.
    Nothing,
    Durably,
    Plainly,
}

impl Obj {
    /// Takes all that is not written, if it is one message under one lock and nothing is on its way.
    fn take_only_chunk(&mut self, number: u64) -> Option<Chunk> {
        let all = self.segs.unwritten_bytes();
        if all == 0 || all != self.segs.dirty_bytes() || !self.busy.is_empty() {
            return None;
        }
        let plan = self.plan((0, u64::MAX), self.segs.newest())?;
        (plan.bytes() == all).then(|| self.take(&plan, number))
    }

    /// Takes what is next within a range for one message.
    fn take_chunk(&mut self, range: (u64, u64), upto: u64, number: u64) -> Option<Chunk> {
        let plan = self.plan(range, upto)?;
        Some(self.take(&plan, number))
    }

    /// Takes the next run that fills a message.
    fn take_full_chunk(&mut self, number: u64) -> Option<Chunk> {
        let max = self.target.bulk_bytes() as u64;
        let run = self.segs.next_full(max, &self.busy_ranges())?;
        let (lock, end) = self.lock_for_run(run);
        Some(self.take(&Plan { lock, runs: vec![(run.0, end)] }, number))
    }

    /// The next run within a range, and those behind it that fit into the same message: records of a process that has a
    /// gap between each two would be a message each otherwise.
    fn plan(&self, range: (u64, u64), upto: u64) -> Option<Plan> {
        let (max, busy) = (self.target.bulk_bytes() as u64, self.busy_ranges());
        let run = self.segs.next_dirty(range, max, &busy, upto)?;
        let (lock, end) = self.lock_for_run(run);
        let mut plan = Plan { lock, runs: vec![(run.0, end)] };
        let Some(l) = self.locks.iter().find(|l| l.id == lock && end == run.1) else { return Some(plan) };
        // Whatever lies between the runs is this message's until it is answered: what another has there is left alone.
        let next_busy = busy.iter().map(|b| b.0).filter(|b| *b >= end).min().unwrap_or(u64::MAX);
        let limit = range.1.min(l.end.saturating_add(1)).min(next_busy);
        let (mut at, mut left) = (end, max - (end - run.0));
        while plan.runs.len() < self.target.write_ranges()
            && let Some((a, b)) = self.segs.next_dirty((at, limit), max, &busy, upto)
            && b - a <= left
        {
            plan.runs.push((a, b));
            (at, left) = (b, left - (b - a));
        }
        Some(plan)
    }

    fn busy_ranges(&self) -> Vec<(u64, u64)> {
        self.busy.iter().map(|b| (b.start, b.end)).collect()
    }

    /// The lock that a run is written under, and where the run ends under it.
    fn lock_for_run(&self, (start, end): (u64, u64)) -> (u64, u64) {
        let covers = |l: &&super::file::Lock| l.writes() && l.start <= start && start <= l.end;
        match self.locks.iter().filter(covers).max_by_key(|l| (l.going, l.end)) {
            Some(l) => (l.id, end.min(l.end.saturating_add(1))),
            None => {
                // The server will keep others off.
                let planted = model::planted::on(model::planted::Bug::CancelBeforeFlush);
                assert!(planted, "dirty bytes lie under a lock");
                (0, end)
            }
        }
    }

    fn take(&mut self, plan: &Plan, number: u64) -> Chunk {
        let mut runs = Vec::with_capacity(plan.runs.len());
        for (start, end) in &plan.runs {
            runs.push((*start, self.segs.take(*start, *end, number)));
        }
        let (first, last) = (plan.runs[0], plan.runs[plan.runs.len() - 1]);
        self.busy.push(Busy { token: number, start: first.0, end: last.1, lock: plan.lock });
        let (object, target, meta) = (self.id, self.target.clone(), self.meta);
        Chunk { number, object, target, lock: plan.lock, meta, runs }
    }
}

impl Fs {
    /// Writes everything in a range of an object that is there now, and waits for it. Ends are exclusive. Never waits
    /// for locks. An error of a write is told by [`crate::errseq`].
    pub(super) async fn flush_range(
        self: &Arc<Self>,
        file: &Arc<File>,
        stripe: usize,
        start: u64,
        end: u64,
    ) -> R<()> {
        let (upto, turns) = {
            let objs = file.lock();
            (objs[stripe].segs.newest(), objs[stripe].target.data.turns.clone())
        };
        loop {
            let mut changed = Box::pin(file.changed.notified());
            changed.as_mut().enable();
            let ready = {
                let objs = file.lock();
                let o = &objs[stripe];
                if o.segs.is_written(start, end, upto) {
                    return Ok(());
                }
                o.segs.next_dirty((start, end), 1, &o.busy_ranges(), upto).is_some()
            };
            if !ready {
                changed.await;
                continue;
            }
            let turn = turns.clone().acquire_owned().await.map_err(|_| Errno::ESHUTDOWN)?;
            self.send_next(file, stripe, (start, end), upto, turn);
        }
    }

    /// Sends one message, if there is one to send. False if not.
    fn send_next(
        self: &Arc<Self>,
        file: &Arc<File>,
        stripe: usize,
        range: (u64, u64),
        upto: u64,
        turn: OwnedSemaphorePermit,
    ) -> bool {
        self.send_taken(file, stripe, turn, |o, number| o.take_chunk(range, upto, number))
    }

    /// Sends what is taken with this number.
    fn send_taken(
        self: &Arc<Self>,
        file: &Arc<File>,
        stripe: usize,
        turn: OwnedSemaphorePermit,
        take: impl FnOnce(&mut Obj, u64) -> Option<Chunk>,
    ) -> bool {
        let number = self.data.number();
        let chunk = {
            let mut objs = file.lock();
            let o = &mut objs[stripe];
            let chunk = take(o, number);
            self.data.account(o, self.world.now());
            chunk
        };
        let Some(chunk) = chunk else { return false };
        let (fs, file) = (self.clone(), file.clone());
        self.world.spawn("client-flush", async move {
            fs.send_chunk(file, stripe, chunk, turn, false).await;
        });
        true
    }

    /// True if it is written, and durable.
    async fn send_chunk(
        self: Arc<Self>,
        file: Arc<File>,
        stripe: usize,
        c: Chunk,
        turn: OwnedSemaphorePermit,
        durable: bool,
    ) -> bool {
        let how = WriteHow { lock: c.lock, granted: true, durable };
        let runs: Vec<(u64, u64)> = c.runs.iter().map(|(at, data)| (*at, *at + data.len() as u64)).collect();
        let sent = self.write_locked(&file, &c.target, c.object, c.runs, how, &c.meta).await;
        drop(turn);
        let (r, durable) = match sent {
            Ok((attr, durable)) => (Ok(attr), durable),
            Err(e) => (Err(e), false),
        };
        {
            let mut objs = file.lock();
            let o = &mut objs[stripe];
            o.busy.retain(|b| b.token != c.number);
            if let Ok(attr) = &r {
                o.learn(attr);
            }
            for (start, end) in runs {
                let left = o.segs.flushed(start, end, c.number, r.is_ok());
                let Some(e) = r.as_ref().err().copied().filter(|_| left > 0) else { continue };
                o.sure = false;
                o.taint(start, end);
                match e {
                    // The file was removed: nobody misses its bytes.
                    Errno::ESTALE => {}
                    Errno::ENOLCK => self.write_lost(&file, c.object, (start, end), Errno::EIO),
                    e => self.write_lost(&file, c.object, (start, end), e),
                }
            }
            self.data.account(o, self.world.now());
        }
        file.changed.notify_waiters();
        match r {
            Ok(_) => {
                self.count_uncommitted();
                self.evict_clean();
            }
            Err(Errno::ENOLCK) => self.lock_lost(&file, stripe, c.lock),
            Err(_) => {}
        }
        durable
    }

    /// One message with writes to an object (offsets, in order, and bytes), under a lock that this mount holds. Says
    /// whether they are durable by now.
    #[allow(clippy::too_many_arguments)]
    pub(super) async fn write_locked(
        self: &Arc<Self>,
        file: &File,
        target: &Arc<Target>,
        object: ObjectId,
        runs: Vec<(u64, Bulk)>,
        how: WriteHow,
        meta: &WriteMeta,
    ) -> R<(ObjectAttr, bool)> {
        let WriteHow { lock, granted, durable } = how;
        let msg = Write {
            object,
            offset: runs[0].0,
            append: false,
            file: file.fid,
            uid: meta.uid,
            gid: meta.gid,
            projid: meta.projid,
            inode_ctime: meta.inode_ctime,
            block_crcs: Vec::new(),
            checksum: ChecksumType::None,
            lock,
            granted,
        };
        let ctx = RequestContext { client_time: meta.time, ..self.locked_ctx(file) };
        let r = self.send_summed(target, ctx, msg, runs, durable).await?;
        Ok((r.reply.attr, r.durable))
    }

    /// What a request under a lock says of its sender.
    pub(super) fn locked_ctx(&self, file: &File) -> RequestContext {
        RequestContext { layout_generation: file.layout.generation, deadline_ms: 0, ..self.own_ctx() }
    }

    /// Writes what is there now, in the background.
    pub(super) fn kick(self: &Arc<Self>, file: &Arc<File>, stripe: usize) {
        self.ask_flusher(file, stripe, |o| {
            let some = o.segs.dirty_bytes() > 0;
            if some {
                o.flush_upto = o.segs.newest();
            }
            some
        });
    }

    /// Writes what fills messages, in the background. The rest may still grow: a log that is written in small records
    /// by several processes would go out in as small requests otherwise, each time that one was full.
    pub(super) fn kick_full(self: &Arc<Self>, file: &Arc<File>, stripe: usize) {
        self.ask_flusher(file, stripe, |o| {
            o.full_runs += 1;
            true
        });
    }

    /// Notes what is asked for (`ask` says whether anything is), and starts the task that does it unless it runs.
    fn ask_flusher(self: &Arc<Self>, file: &Arc<File>, stripe: usize, ask: impl FnOnce(&mut Obj) -> bool) {
        {
            let mut objs = file.lock();
            let o = &mut objs[stripe];
            if !ask(o) || std::mem::replace(&mut o.flushing, true) {
                return;
            }
        }
        let (fs, file) = (self.clone(), file.clone());
        self.world.spawn("client-flusher", async move { fs.flush_behind(file, stripe).await });
    }

    async fn flush_behind(self: Arc<Self>, file: Arc<File>, stripe: usize) {
        let turns = file.lock()[stripe].target.data.turns.clone();
        loop {
            let Ok(turn) = turns.clone().acquire_owned().await else { return };
            let (upto, full) = {
                let objs = file.lock();
                (objs[stripe].flush_upto, objs[stripe].full_runs)
            };
            let take = |o: &mut Obj, number| {
                o.take_full_chunk(number).or_else(|| o.take_chunk((0, u64::MAX), upto, number))
            };
            if self.send_taken(&file, stripe, turn, take) {
                continue;
            }
            let mut objs = file.lock();
            let o = &mut objs[stripe];
            if o.flush_upto == upto && o.full_runs == full {
                o.flushing = false;
                return;
            }
        }
    }

    /// Starts writing all that is dirty.
    pub(crate) fn flush_everything(self: &Arc<Self>) {
        let files: Vec<Arc<File>> =
            self.data.dirty.lock().expect("no panic while locked").values().cloned().collect();
        for f in files {
            for i in 0..f.layout.stripe_count() {
                self.kick(&f, i);
            }
        }
    }

    /// Notes that a file has bytes to write, and sees to it that they are not forgotten.
    pub(super) fn note_dirty(self: &Arc<Self>, file: &Arc<File>) {
        let fresh = {
            let mut dirty = self.data.dirty.lock().expect("no panic while locked");
            dirty.insert(file.fid, file.clone()).is_none()
        };
        if fresh && !self.data.ticking.swap(true, Ordering::SeqCst) {
            let weak = Arc::downgrade(self);
            let world = self.world.clone();
            self.world.spawn("client-write-back", async move {
                loop {
                    world.sleep(TICK).await;
                    let Some(fs) = weak.upgrade() else { return };
                    if !fs.write_back_old() {
                        return;
                    }
                }
            });
        }
    }

    /// False: nothing is dirty, and the task that calls this ends.
    fn write_back_old(self: &Arc<Self>) -> bool {
        let now = self.world.now();
        let files: Vec<Arc<File>> =
            self.data.dirty.lock().expect("no panic while locked").values().cloned().collect();
        for f in files {
            let mut old = Vec::new();
            {
                let mut objs = f.lock();
                for (i, o) in objs.iter_mut().enumerate() {
                    if o.oldest.is_some_and(|t| now.since(t) >= AGE_MAX) {
                        o.oldest = Some(now);
                        old.push(i);
                    }
                }
            }
            for i in old {
                self.kick(&f, i);
            }
            // Looked at with the list locked: who makes it dirty again puts it back afterwards.
            let mut dirty = self.data.dirty.lock().expect("no panic while locked");
            if f.lock().iter().all(|o| o.segs.unwritten_bytes() == 0) {
                dirty.remove(&f.fid);
            }
        }
        let dirty = self.data.dirty.lock().expect("no panic while locked");
        if dirty.is_empty() {
            // With the list locked, as in `note_dirty`.
            self.data.ticking.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// Writes all of a file that is there now and waits for it.
    pub(crate) async fn flush_file(self: &Arc<Self>, file: &Arc<File>) -> R<()> {
        for stripe in 0..file.layout.stripe_count() {
            self.kick(file, stripe);
        }
        for stripe in 0..file.layout.stripe_count() {
            self.flush_range(file, stripe, 0, u64::MAX).await?;
        }
        Ok(())
    }

    /// Writes all of a file that is there now, waits for it, and tells which OSTs have all of it on disk by now, with
    /// everything that they had executed before: those that were sent what the file had for them as one durable write.
    pub(super) async fn flush_file_durably(self: &Arc<Self>, file: &Arc<File>) -> R<Set<u16>> {
        let stripes = (0..file.layout.stripe_count())
            .map(|s| -> BoxFutureOf<'_, R<Flushed>> { Box::pin(self.flush_stripe_durably(file, s)) });
        let done = join_all(stripes.collect()).await.into_iter().collect::<R<Vec<Flushed>>>()?;
        let (mut safe, mut unsafe_) = (Set::default(), Set::default());
        for (object, flushed) in file.layout.objects().zip(done) {
            match flushed {
                Flushed::Nothing => {}
                Flushed::Durably => drop(safe.insert(object.ost)),
                Flushed::Plainly => drop(unsafe_.insert(object.ost)),
            }
        }
        Ok(safe.difference(&unsafe_).copied().collect())
    }

    async fn flush_stripe_durably(self: &Arc<Self>, file: &Arc<File>, stripe: usize) -> R<Flushed> {
        let turns = {
            let objs = file.lock();
            let o = &objs[stripe];
            if o.segs.unwritten_bytes() == 0 {
                return Ok(Flushed::Nothing);
            }
            o.target.data.turns.clone()
        };
        let turn = turns.acquire_owned().await.map_err(|_| Errno::ESHUTDOWN)?;
        let number = self.data.number();
        let only = {
            let mut objs = file.lock();
            let o = &mut objs[stripe];
            let only = o.take_only_chunk(number);
            self.data.account(o, self.world.now());
            only
        };
        let durable = match only {
            // On the thread of the caller, which also reads the answer.
            Some(c) => {
                let (fs, file) = (self.clone(), file.clone());
                let work = async move { fs.send_chunk(file, stripe, c, turn, true).await };
                Detached::plain(self, "client-flush", work).await
            }
            None => {
                drop(turn);
                self.kick(file, stripe);
                false
            }
        };
        self.flush_range(file, stripe, 0, u64::MAX).await?;
        Ok(if durable { Flushed::Durably } else { Flushed::Plainly })
    }

    /// Writes everything of this mount and waits for it, as long as it gets on.
    pub(crate) async fn flush_all(self: &Arc<Self>) {
        let mut still = 0;
        let mut left = u64::MAX;
        loop {
            self.flush_everything();
            let now = self.data.unwritten.load(Ordering::Relaxed);
            if now == 0 {
                return;
            }
            still = if now < left { 0 } else { still + 1 };
            left = now;
            let cut_off = self.data.all_files().iter().any(|f| {
                let objs = f.lock();
                let away = |o: &Obj| {
                    o.segs.unwritten_bytes() > 0 && o.target.import.state() != rpc::ImportState::Full
                };
                objs.iter().any(away)
            });
            if still >= if cut_off { GIVE_UP_TICKS_AWAY } else { GIVE_UP_TICKS } {
                tracing::error!("{now} bytes that were not written yet are lost: no server takes them");
                return;
            }
            self.world.sleep(FLUSH_TICK).await;
        }
    }
}

/// An unmount looks so often, and gives up after so many looks without progress; sooner if a server is away.
const FLUSH_TICK: Duration = Duration::from_millis(5);
const GIVE_UP_TICKS: u32 = 12_000;
const GIVE_UP_TICKS_AWAY: u32 = 1_000;
