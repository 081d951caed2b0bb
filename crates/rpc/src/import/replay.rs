//! After a reconnect: what an eviction cost, what must be reclaimed, what is done again, what is sent again.
//!
//! A request keeps slot and xid over any number of resends; the server executes it once (`server/slots.rs`).
//! Only an eviction breaks that promise, because it deletes the slots: what may have been executed fails
//! then.
//!
//! A server that restarted may have lost what it answered and had not committed. The client has kept those
//! requests (`kept.rs`) and has them done again, in the order of their transaction numbers, one after
//! the other, between what it reclaims and the word that this was all. Those that survived are recognised by
//! their slots. Only then comes what has no answer yet.

use super::call::{LATER, Outbox, RawReply};
use super::{Core, ImportState};
use bytes::Bytes;
use model::{Errno, limits};
use std::sync::Arc;
use wire::frame::{FLAG_REPLAY, FLAG_WAITED_FOR};
use wire::msg::connect::ConnectReply;
use wire::msg::reclaim::{Reclaim, ReclaimReply};
use wire::replay::Tail;
use wire::{Frame, FrameKind, Header, Op};
use world::sync::oneshot;

impl Core {
    /// The server answered a connect: forgets what the eviction made unknowable, notes what is owed.
    /// `committed` is what the server said to be durable. True if this client was evicted.
    pub fn adopt_session(&self, reply: &ConnectReply, committed: u64) -> bool {
        let evicted = self.is_evicted_by(reply);
        let mut failed = Vec::new();
        {
            let mut g = self.lock();
            // An unfinished reclaim or good-bye of the old connection starts anew, with a new xid.
            g.slots[0] = None;
            if evicted {
                g.life += 1;
                // What was done under leases that are gone now is not told any more: others have changed
                // things since.
                let life = g.life;
                failed
                    .extend(g.queue.extract_if(.., |_, r| r.life.is_some_and(|l| l != life)).map(|(_, r)| r));
                for s in &mut g.slots {
                    if s.as_ref().is_some_and(|f| f.req.modifies) {
                        failed.extend(s.take().map(|f| f.req));
                    }
                }
                g.kept.forget();
            } else if g.last_epoch != reply.epoch {
                g.kept.new_epoch();
            }
            g.last_committed = committed;
            g.reclaim_owed |= reply.recovering || evicted;
            g.recovering = reply.recovering;
        }
        for mut req in failed {
            req.finish(Err(Errno::EIO));
        }
        evicted
    }

    /// Whether the server has given this client up. What that cost of requests that were answered is told
    /// before they are forgotten: who finds nothing left to commit finds the error.
    fn is_evicted_by(&self, reply: &ConnectReply) -> bool {
        let lost: Vec<(Op, Bytes, Bytes)> = {
            let g = self.lock();
            if !reply.new_client || g.last_epoch == 0 {
                return false;
            }
            // Of the same epoch they are all there: who is evicted leaves durably.
            let lost = g.replaced || g.last_epoch != reply.epoch;
            let kept = g.kept.all().filter(|_| lost);
            kept.map(|k| (k.req.op, k.req.body.clone(), k.reply.clone())).collect()
        };
        if !lost.is_empty() {
            tracing::error!(
                "{} operations on {} were not durable when its server restarted and are lost, because this client was evicted",
                lost.len(),
                self.label()
            );
        }
        for (op, body, reply) in lost {
            self.cfg.hooks.request_lost(op, &body, &reply);
        }
        true
    }

    /// Reclaims and replays if need be, then opens the session for calls: everything unanswered again, with
    /// the flag that says so, in the order of its xids, then what waited.
    pub async fn recover(self: &Arc<Core>) {
        let (owed, recovering) = {
            let g = self.lock();
            (g.reclaim_owed || g.kept.next_lost().is_some(), g.recovering)
        };
        if owed {
            self.set_state(ImportState::Recover);
            if !self.reclaim(recovering).await {
                return;
            }
            self.lock().reclaim_owed = false;
        }
        let target = self.target_number();
        let mut out = Outbox::default();
        {
            let mut g = self.lock();
            out.link = g.link.clone();
            let mut again: Vec<(u64, u16)> = Vec::new();
            for (i, s) in g.slots.iter().enumerate().skip(1) {
                again.extend(s.as_ref().map(|f| (f.xid, i as u16)));
            }
            again.sort_unstable();
            let now = self.world.now();
            for s in g.slots.iter_mut().flatten() {
                s.sent_again(now);
            }
            out.frames.extend(again.into_iter().map(|(_, slot)| g.frame(target, slot, true)));
            g.ever_full = true;
            g.refused = None;
        }
        self.set_state(ImportState::Full);
        {
            let mut g = self.lock();
            g.pump(target, self.world.now(), &mut out);
            g.ask_commit(target, &mut out);
        }
        self.send_out(out);
    }

    /// Says what this client has, has done again what may be lost, and says that this was all. False if the
    /// connection went away meanwhile.
    async fn reclaim(self: &Arc<Core>, recovering: bool) -> bool {
        let mut pieces = self.cfg.hooks.reclaim();
        let replay = self.lock().kept.next_lost().is_some();
        if pieces.is_empty() && !recovering && !replay {
            return true;
        }
        for p in &mut pieces {
            p.last = false;
        }
        let mut lost = ReclaimReply { lost_opens: Vec::new(), lost_locks: Vec::new() };
        for p in pieces {
            if !self.reclaim_piece(p, &mut lost).await {
                return false;
            }
        }
        if replay && !self.replay().await {
            return false;
        }
        let last = Reclaim { last: true, ..Reclaim::default() };
        if !self.reclaim_piece(last, &mut lost).await {
            return false;
        }
        self.cfg.hooks.reclaimed(lost);
        true
    }

    async fn reclaim_piece(self: &Arc<Core>, p: Reclaim, lost: &mut ReclaimReply) -> bool {
        match self.control(p).await {
            Ok(r) => {
                lost.lost_opens.extend(r.lost_opens);
                lost.lost_locks.extend(r.lost_locks);
            }
            Err(Errno::ENOTCONN) => return false,
            Err(e) => tracing::warn!(target = %self.label(), "reclaim failed: {e}"),
        }
        true
    }

    /// Has everything that may be lost done again. False if the connection went away meanwhile: the rest is
    /// for the next one.
    async fn replay(self: &Arc<Core>) -> bool {
        let (mut done, mut survived, mut failed) = (0u64, 0u64, 0u64);
        let (mut damaged, mut later) = (0, 0);
        loop {
            let (tx, rx) = oneshot::channel();
            let mut out = Outbox::default();
            let was = {
                let mut g = self.lock();
                let Some(link) = g.link.clone() else { return false };
                let Some(k) = g.kept.next_lost() else { break };
                let mut h = Header::new(FrameKind::Request);
                (h.target, h.opcode) = (self.target_number(), k.req.op as u16);
                (h.slot, h.xid, h.transno) = (k.slot, k.xid, k.transno);
                (h.session, h.epoch) = (g.session, g.epoch);
                h.flags |= FLAG_REPLAY | FLAG_WAITED_FOR;
                let frame = Frame {
                    header: h,
                    body: replay_body(&k.req.body, &k.reply, k.wall),
                    bulk: k.req.bulk.clone(),
                };
                g.replaying = Some((h.slot, h.xid, tx));
                out.link = Some(link);
                out.frames.push(frame);
                h.transno
            };
            self.send_out(out);
            match rx.await {
                Err(_) => return false,
                // It stops again: the next server is asked.
                Ok(Err(Errno::ESHUTDOWN)) => std::future::pending().await,
                // The server has no memory for it now.
                Ok(Err(LATER)) => {
                    later += 1;
                    self.world.sleep(self.later_wait(later)).await;
                }
                // Its data changed on the way. What is here is whole, and goes again.
                Ok(Err(Errno::EBADMSG)) if damaged < limits::DAMAGED_RESENDS_MAX => damaged += 1,
                Ok(r) => {
                    (damaged, later) = (0, 0);
                    match &r {
                        Err(_) => failed += 1,
                        Ok(r) if was_done_again(r.transno, was) => done += 1,
                        Ok(_) => survived += 1,
                    }
                    self.replayed(r);
                }
            }
        }
        model::event!(
            INFO,
            Reclaimed,
            self.label(),
            "{}: {done} operations done again, {survived} had survived its restart{}",
            self.label(),
            if failed > 0 { format!(", {failed} could not be done again") } else { String::new() }
        );
        true
    }

    /// One kept request was answered again.
    fn replayed(&self, r: Result<RawReply, Errno>) {
        let (op, slot, xid, was, body, reply) = {
            let g = self.lock();
            let Some(k) = g.kept.next_lost() else { return };
            (k.req.op, k.slot, k.xid, k.transno, k.req.body.clone(), k.reply.clone())
        };
        // A list without an answer is sent again after those that had one.
        let list_follows = || {
            let g = self.lock();
            g.kept.list_follows() || g.slots.iter().flatten().any(|f| f.req.op == Op::Writelist)
        };
        let why = match &r {
            Err(e) => Some(e.to_string()),
            Ok(r) if r.transno != 0 && !wire::replay::told_the_same(op, &reply, &r.body, list_follows) => {
                let start = |b: &Bytes| b.slice(..b.len().min(64));
                Some(format!("its answer {:?} differs from the first, {:?}", start(&r.body), start(&reply)))
            }
            Ok(_) => None,
        };
        if r.is_err() {
            // Before it is forgotten, as above.
            self.cfg.hooks.request_lost(op, &body, &reply);
        }
        {
            let mut g = self.lock();
            match &r {
                Ok(r) if r.transno > g.last_committed => drop(g.kept.replayed(r.transno, r.wall)),
                _ => drop(g.kept.replayed(0, model::Timestamp::ZERO)),
            }
            g.replay_failures += u64::from(why.is_some());
            g.last_replay = r.as_ref().map_or(g.last_replay, |r| g.last_replay.max(r.transno));
        }
        if let Some(why) = why {
            tracing::error!(
                "{}: {op:?} (slot {slot}, xid {xid}, transaction {was:#x}) was lost with its server's memory and cannot be done again as it was: {why}",
                self.label()
            );
        }
    }
}

/// Whether a replayed request was executed once more. One that survived is answered from its slot, with the
/// transaction number that it had, or without one if the slot has a later answer by now.
fn was_done_again(transno: u64, was: u64) -> bool {
    transno != 0 && transno != was
}

/// What a request that may be replayed leaves free of a frame's body: for its answer's time and length.
pub(crate) const REPLAY_ROOM_BYTES: usize = 64;

/// The request with what it came to the first time.
fn replay_body(body: &Bytes, reply: &Bytes, wall: model::Timestamp) -> Bytes {
    let room = model::limits::RPC_BODY_MAX_BYTES.saturating_sub(body.len() + REPLAY_ROOM_BYTES);
    let reply = if reply.len() <= room { reply.to_vec() } else { Vec::new() };
    let whole = wire::replay::append(body, &Tail { wall, reply });
    assert!(whole.len() <= model::limits::RPC_BODY_MAX_BYTES, "a replay fits into a frame");
    whole.into()
}

#[cfg(test)]
mod tests {
    use super::{REPLAY_ROOM_BYTES, replay_body, was_done_again};
    use bytes::Bytes;
    use model::limits::RPC_BODY_MAX_BYTES;

    #[test]
    fn the_longest_request_has_room_for_what_a_replay_adds() {
        let wall = model::Timestamp { sec: i64::MIN, nsec: 999_999_999 };
        for room in [0, 1, 100, 70_000] {
            let body = Bytes::from(vec![7; RPC_BODY_MAX_BYTES - REPLAY_ROOM_BYTES - room]);
            for reply in [0, room, room + 1] {
                let whole = replay_body(&body, &Bytes::from(vec![8; reply]), wall);
                assert!(whole.len() <= RPC_BODY_MAX_BYTES && whole.starts_with(&body));
            }
        }
    }

    /// What is answered from a slot was not executed: after an incident somebody counts on that number.
    #[test]
    fn what_is_answered_from_a_slot_was_not_done_again() {
        let was = (7 << 40) + 12;
        assert!(!was_done_again(was, was), "the slot has the answer");
        assert!(!was_done_again(0, was), "the slot has a later one");
        assert!(was_done_again((8 << 40) + 12, was), "executed by the next epoch");
    }
}
