//! Dirty bytes on their way to the OST: in messages of one run or several, a bounded number at a time, each
//! under the lock that covers it. A range is never in two messages at a time, so that what came later stays
//! later.

use super::object::{Busy, Lock, Object, ObjectState, WriteMeta};
use crate::R;
use crate::base::Detached;
use crate::base::shares::limits_for;
use model::debug::CACHE;
use model::{Errno, ObjectAttr};
use std::sync::Arc;
use wire::checksum::ChecksumType;
use wire::msg::write::Write;
use wire::{Bulk, RequestContext};
use world::sync::OwnedSemaphorePermit;

/// What one message may hold.
#[derive(Clone, Copy)]
struct MessageLimits {
    bytes: u64,
    ranges: usize,
}

/// What one message will hold: runs of dirty bytes of an object, in order, under one lock. Ends are
/// exclusive.
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
    /// There is grant for it.
    pub granted: bool,
    /// To be answered when it is durable.
    pub durable: bool,
}

/// What came of an object's bytes.
pub(crate) enum Flushed {
    /// There were none.
    Nothing,
    Durably,
    Plainly,
}

impl ObjectState {
    /// Takes all that is not written, if it is one message under one lock and nothing is on its way.
    fn take_only_chunk(&mut self, limits: MessageLimits, number: u64) -> Option<Chunk> {
        let all = self.segs.unwritten_bytes();
        if all == 0 || all != self.segs.dirty_bytes() || !self.busy.is_empty() {
            return None;
        }
        let plan = self.plan((0, u64::MAX), limits, self.segs.newest())?;
        (plan.bytes() == all).then(|| self.take(&plan, number))
    }

    /// Takes what is next within a range for one message.
    fn take_chunk(
        &mut self,
        range: (u64, u64),
        limits: MessageLimits,
        upto: u64,
        number: u64,
    ) -> Option<Chunk> {
        let plan = self.plan(range, limits, upto)?;
        Some(self.take(&plan, number))
    }

    /// Takes the next run that fills a message.
    fn take_full_chunk(&mut self, limits: MessageLimits, number: u64) -> Option<Chunk> {
        let run = self.segs.next_full(limits.bytes, &self.busy_ranges())?;
        let (lock, end) = self.lock_for_run(run);
        Some(self.take(&Plan { lock, runs: vec![(run.0, end)] }, number))
    }

    /// The next run within a range, and those behind it that fit into the same message: records of a process
    /// that has a gap between each two would be a message each otherwise.
    fn plan(&self, range: (u64, u64), limits: MessageLimits, upto: u64) -> Option<Plan> {
        let (max, busy) = (limits.bytes, self.busy_ranges());
        let run = self.segs.next_dirty(range, max, &busy, upto)?;
        let (lock, end) = self.lock_for_run(run);
        let mut plan = Plan { lock, runs: vec![(run.0, end)] };
        let Some(l) = self.locks.iter().find(|l| l.id == lock && end == run.1) else { return Some(plan) };
        // Whatever lies between the runs is this message's until it is answered: what another has there is
        // left alone.
        let next_busy = busy.iter().map(|b| b.0).filter(|b| *b >= end).min().unwrap_or(u64::MAX);
        let limit = range.1.min(l.end.saturating_add(1)).min(next_busy);
        let (mut at, mut left) = (end, max - (end - run.0));
        while plan.runs.len() < limits.ranges
            && let Some((a, b)) = self.segs.next_dirty((at, limit), max, &busy, upto)
            && b - a <= left
        {
            plan.runs.push((a, b));
            (at, left) = (b, left - (b - a));
        }
        assert!(plan.bytes() <= max && plan.runs.len() <= limits.ranges, "a message takes so much");
        Some(plan)
    }

    fn busy_ranges(&self) -> Vec<(u64, u64)> {
        self.busy.iter().map(|b| (b.start, b.end)).collect()
    }

    /// The lock that a run is written under, and where the run ends under it.
    fn lock_for_run(&self, (start, end): (u64, u64)) -> (u64, u64) {
        let covers = |l: &&Lock| l.writes() && l.start <= start && start <= l.end;
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
        assert!(plan.runs.is_sorted_by(|a, b| a.1 <= b.0), "the runs of a message are in order and apart");
        let mut runs = Vec::with_capacity(plan.runs.len());
        for (start, end) in &plan.runs {
            runs.push((*start, self.segs.take(*start, *end, number)));
        }
        let (first, last) = (plan.runs[0], plan.runs[plan.runs.len() - 1]);
        self.busy.push(Busy { token: number, start: first.0, end: last.1, lock: plan.lock });
        assert!(self.busy_is_disjoint(), "a range is in one message at a time");
        Chunk { number, lock: plan.lock, meta: self.meta.clone(), runs }
    }
}

impl Object {
    fn limits(&self) -> MessageLimits {
        let t = &self.osc.target;
        MessageLimits { bytes: t.bulk_bytes() as u64, ranges: t.write_ranges() }
    }

    /// Writes everything in a range that is there now, and waits for it. Ends are exclusive. Never waits for
    /// locks. An error of a write is told by [`crate::base::errseq`].
    pub(crate) async fn flush_range(self: &Arc<Self>, start: u64, end: u64) -> R<()> {
        assert!(start <= end, "a range ends behind its beginning");
        let upto = self.lock().segs.newest();
        loop {
            let mut changed = Box::pin(self.changed.notified());
            changed.as_mut().enable();
            let ready = {
                let s = self.lock();
                if s.segs.is_written(start, end, upto) {
                    return Ok(());
                }
                s.segs.next_dirty((start, end), 1, &s.busy_ranges(), upto).is_some()
            };
            if !ready {
                changed.await;
                continue;
            }
            let turn = self.locked_rpc().await?;
            let limits = self.limits();
            self.send_taken(turn, |s, number| s.take_chunk((start, end), limits, upto, number));
        }
    }

    /// Waits until a request under a lock may be sent.
    pub(super) async fn locked_rpc(&self) -> R<OwnedSemaphorePermit> {
        self.osc.locked_rpcs.clone().acquire_owned().await.map_err(|_| Errno::ESHUTDOWN)
    }

    /// Sends what is taken with this number, if anything is. False if not.
    fn send_taken(
        self: &Arc<Self>,
        turn: OwnedSemaphorePermit,
        take: impl FnOnce(&mut ObjectState, u64) -> Option<Chunk>,
    ) -> bool {
        let number = self.osc.cx.number();
        let chunk = {
            let mut s = self.lock();
            let chunk = take(&mut s, number);
            self.account(&mut s);
            chunk
        };
        let Some(chunk) = chunk else { return false };
        let me = self.clone();
        self.osc.cx.world.spawn("client-flush", async move {
            me.send_chunk(chunk, turn, false).await;
        });
        true
    }

    /// True if it is written, and durable.
    async fn send_chunk(self: Arc<Self>, c: Chunk, turn: OwnedSemaphorePermit, durable: bool) -> bool {
        let how = WriteHow { lock: c.lock, granted: true, durable };
        let runs: Vec<(u64, u64)> = c.runs.iter().map(|(at, data)| (*at, *at + data.len() as u64)).collect();
        let sent = self.write_locked(c.runs, how, &c.meta).await;
        drop(turn);
        let said = |r: &R<(ObjectAttr, bool)>| {
            r.as_ref().map_or_else(|e| e.text(), |(_, d)| if *d { "durable" } else { "written" })
        };
        tracing::debug!(target: CACHE, "object {}: {} pieces from {}: {}", self.id, runs.len(), runs.first().map_or(0, |r| r.0), said(&sent));
        let (r, durable) = match sent {
            Ok((attr, durable)) => (Ok(attr), durable),
            Err(e) => (Err(e), false),
        };
        self.chunk_answered(c.number, &runs, &r);
        self.changed.notify_waiters();
        match r {
            Ok(_) => {
                self.osc.cache.count_uncommitted();
                self.osc.cache.evict_clean();
            }
            Err(Errno::ENOLCK) => self.lock_lost(c.lock),
            Err(_) => {}
        }
        durable
    }

    fn chunk_answered(&self, number: u64, runs: &[(u64, u64)], r: &R<ObjectAttr>) {
        let mut s = self.lock();
        assert!(s.answered(number), "a message is answered once");
        for &(start, end) in runs {
            let left = s.segs.flushed(start, end, number, r.is_ok());
            let Some(e) = r.as_ref().err().copied().filter(|_| left > 0) else { continue };
            s.size_unsure();
            s.taint(start, end);
            match e {
                // The file was removed: nobody misses its bytes.
                Errno::ESTALE => {}
                Errno::ENOLCK => self.write_lost((start, end), Errno::EIO),
                e => self.write_lost((start, end), e),
            }
        }
        // Behind that: with nothing left here the server knows the times.
        if let Ok(attr) = r {
            s.learn(attr);
        }
        self.account(&mut s);
    }

    /// One message with writes to the object (offsets, in order, and bytes), under a lock that this mount
    /// holds. Says whether they are durable by now.
    pub(super) async fn write_locked(
        &self,
        runs: Vec<(u64, Bulk)>,
        how: WriteHow,
        meta: &WriteMeta,
    ) -> R<(ObjectAttr, bool)> {
        assert!(!runs.is_empty(), "a write brings bytes");
        let WriteHow { lock, granted, durable } = how;
        let msg = Write {
            object: self.id,
            offset: runs[0].0,
            append: false,
            file: self.file,
            uid: meta.owner.uid,
            gid: meta.owner.gid,
            projid: meta.owner.projid,
            inode_ctime: meta.inode_ctime,
            block_crcs: Vec::new(),
            checksum: ChecksumType::None,
            lock,
            granted,
        };
        let ctx = RequestContext { client_time: meta.time, ..self.request_to_change(&meta.job) };
        let mut ctx = ctx.in_directory(meta.owner.directory);
        if !granted {
            ctx = ctx.with_limits(limits_for(meta.exempt));
        }
        let r = self.osc.target.send_summed(ctx, msg, runs, durable).await?;
        self.osc.keep_heard(meta.owner, r.reply.may_keep.0);
        Ok((r.reply.attr, r.durable))
    }

    /// Writes what is there now, in the background.
    pub(crate) fn kick(self: &Arc<Self>) {
        self.ask_flusher(|s| {
            let some = s.segs.dirty_bytes() > 0;
            if some {
                s.flush_upto = s.segs.newest();
            }
            some
        });
    }

    /// Writes what fills messages, in the background. The rest may still grow: a log that is written in small
    /// records by several processes would go out in as small requests otherwise, each time that one was full.
    pub(crate) fn kick_full(self: &Arc<Self>) {
        self.ask_flusher(|s| {
            s.full_runs += 1;
            true
        });
    }

    /// Notes what is asked for (`ask` says whether anything is), and starts the task that does it unless it
    /// runs.
    fn ask_flusher(self: &Arc<Self>, ask: impl FnOnce(&mut ObjectState) -> bool) {
        {
            let mut s = self.lock();
            if !ask(&mut s) || std::mem::replace(&mut s.flushing, true) {
                return;
            }
        }
        let me = self.clone();
        self.osc.cx.world.spawn("client-flusher", async move { me.flush_behind().await });
    }

    async fn flush_behind(self: Arc<Self>) {
        loop {
            let Ok(turn) = self.locked_rpc().await else { return };
            let (upto, full) = {
                let s = self.lock();
                (s.flush_upto, s.full_runs)
            };
            let limits = self.limits();
            let take = |s: &mut ObjectState, number| {
                let full = s.take_full_chunk(limits, number);
                full.or_else(|| s.take_chunk((0, u64::MAX), limits, upto, number))
            };
            if self.send_taken(turn, take) {
                continue;
            }
            let mut s = self.lock();
            if s.flush_upto == upto && s.full_runs == full {
                s.flushing = false;
                return;
            }
        }
    }

    /// Writes all that is there now and waits for it; as one durable write, if it is one message.
    pub(crate) async fn flush_durably(self: &Arc<Self>) -> R<Flushed> {
        if self.lock().segs.unwritten_bytes() == 0 {
            return Ok(Flushed::Nothing);
        }
        let turn = self.locked_rpc().await?;
        let (number, limits) = (self.osc.cx.number(), self.limits());
        let only = {
            let mut s = self.lock();
            let only = s.take_only_chunk(limits, number);
            self.account(&mut s);
            only
        };
        let durable = match only {
            // On the thread of the caller, which also reads the answer.
            Some(c) => {
                let me = self.clone();
                let work = async move { me.send_chunk(c, turn, true).await };
                Detached::plain(&self.osc.cx.world, "client-flush", work).await
            }
            None => {
                drop(turn);
                self.kick();
                false
            }
        };
        self.flush_range(0, u64::MAX).await?;
        Ok(if durable { Flushed::Durably } else { Flushed::Plainly })
    }
}
