//! A call's way out and back: queue, slot, xid, frame, reply.
//!
//! A request without a slot belongs to its caller alone and goes when the caller goes. With its slot it has
//! been sent, may have been executed, and holds the slot until it is answered, whoever still waits.

use super::replay::REPLAY_ROOM_BYTES;
use super::{Core, ImportInner, ImportState, Slow, Terms};
use crate::link::Link;
use bytes::Bytes;
use model::debug::RPCTRACE;
use model::planted::{self, Bug};
use model::{Errno, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use wire::frame::{FLAG_COMMIT, FLAG_DURABLE, FLAG_RESENT, FLAG_WAITED_FOR, STATUS_LATER};
use wire::msg::connect::{SLOT_CONTROL, SLOT_NONE};
use wire::msg::ping::Ping;
use wire::{Bulk, Frame, FrameKind, Header, Message, Op, ReplyContext, RequestContext, encode_body};
use world::Instant;
use world::sync::oneshot;

/// What a caller in this crate is told of [`STATUS_LATER`]; nobody else is.
pub(crate) const LATER: Errno = Errno(STATUS_LATER as i32);
/// A request for which the server has no memory goes again after so long at least, and at most.
const LATER_WAIT_MIN: Duration = Duration::from_millis(10);
const LATER_WAIT_MAX: Duration = Duration::from_secs(1);
/// Tickets of urgent requests are below this, those of others above.
const ORDINARY: u64 = 1 << 63;

/// What came back, not yet decoded.
pub(crate) struct RawReply {
    /// Behind the context.
    pub body: Bytes,
    pub bulk: Bytes,
    pub transno: u64,
    /// The transaction is on the server's disk.
    pub durable: bool,
    /// The server's clock at execution, if the request may have to be sent again.
    pub wall: Timestamp,
}

pub(crate) type Answer = oneshot::Sender<Result<RawReply, Errno>>;

/// One request, encoded.
pub(crate) struct Request {
    pub op: Op,
    pub modifies: bool,
    /// It is to be answered when it is durable.
    pub durable: bool,
    /// The only life of this client in which it may be sent ([`Terms::life`]).
    pub life: Option<u64>,
    /// Others may wait for it ([`Terms::waited_for`]).
    pub waited_for: bool,
    pub body: Bytes,
    pub bulk: Bulk,
    /// `None` when the caller was told already (deactivated target).
    pub answer: Option<Answer>,
    /// When its caller asked.
    pub begun: Instant,
    /// It was said that it waits for long.
    pub is_told: bool,
}

impl Request {
    fn forsaken(&self) -> bool {
        self.answer.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Tells the caller, if it still listens.
    pub fn finish(&mut self, r: Result<RawReply, Errno>) {
        if let Some(a) = self.answer.take() {
            let _ = a.send(r);
        }
    }
}

/// A request that was sent and is not answered.
pub(crate) struct InFlight {
    pub xid: u64,
    pub req: Request,
    /// When it went out last.
    pub sent: Instant,
    pub slow: Slow,
    /// The server has no memory for it, and did not look at it: it is sent again soon.
    pub put_off: bool,
    /// How often that was so in a row.
    pub times_put_off: u32,
}

impl InFlight {
    pub fn new(xid: u64, req: Request, sent: Instant) -> InFlight {
        InFlight { xid, req, sent, slow: Slow::default(), put_off: false, times_put_off: 0 }
    }

    /// It goes out once more.
    pub fn sent_again(&mut self, now: Instant) {
        (self.sent, self.slow, self.put_off) = (now, Slow::default(), false);
    }
}

/// Frames for the connection that was current when they were made. Posted without the lock.
#[derive(Default)]
pub(crate) struct Outbox {
    pub link: Option<Link>,
    pub frames: Vec<Frame>,
}

impl Outbox {
    pub fn post(self) {
        if let Some(link) = self.link {
            for f in self.frames {
                link.post(f);
            }
        }
    }
}

impl ImportInner {
    /// The frame of the request in a slot.
    pub fn frame(&self, target: u32, slot: u16, resent: bool) -> Frame {
        let f = self.slots[usize::from(slot)].as_ref().expect("the slot is in use");
        let mut h = Header::new(FrameKind::Request);
        h.target = target;
        h.opcode = f.req.op as u16;
        (h.session, h.epoch) = (self.session, self.epoch);
        (h.slot, h.xid) = (slot, f.xid);
        if resent {
            h.flags |= FLAG_RESENT;
        }
        if f.req.durable {
            h.flags |= FLAG_DURABLE;
        }
        if f.req.waited_for {
            h.flags |= FLAG_WAITED_FOR;
        }
        Frame { header: h, body: f.req.body.clone(), bulk: f.req.bulk.clone() }
    }

    pub fn new_xid(&mut self) -> u64 {
        self.next_xid += 1;
        self.next_xid
    }

    /// The last one is for urgent requests alone, if there are several.
    fn free_slot(&self, urgent: bool) -> Option<u16> {
        let end = usize::from(self.usable).min(self.slots.len());
        let end = if urgent || !self.keeps_slot { end } else { (end - 1).max(2) };
        (1..end).find(|&i| self.slots[i].is_none()).map(|i| i as u16)
    }

    /// Gives free slots to waiting calls, first come, first served.
    pub fn pump(&mut self, target: u32, now: Instant, out: &mut Outbox) {
        if self.state != ImportState::Full {
            return;
        }
        out.link = self.link.clone();
        while !self.kept.full()
            && let Some((ticket, _)) = self.queue.first_key_value()
            && let Some(slot) = self.free_slot(*ticket < ORDINARY)
        {
            let Some((_, req)) = self.queue.pop_first() else { break };
            if req.forsaken() {
                continue;
            }
            let xid = self.new_xid();
            assert_ne!(slot, SLOT_CONTROL, "the first slot is the session's own");
            let other = self.slots[usize::from(slot)].replace(InFlight::new(xid, req, now));
            assert!(other.is_none(), "a slot has one request at a time");
            out.frames.push(self.frame(target, slot, false));
        }
    }

    /// If calls wait because too much is kept: asks the server to commit now.
    pub fn ask_commit(&mut self, target: u32, out: &mut Outbox) {
        if !self.kept.full() || self.commit_asked || self.state != ImportState::Full {
            return;
        }
        self.commit_asked = true;
        let mut h = Header::new(FrameKind::Request);
        (h.target, h.opcode) = (target, Op::Ping as u16);
        (h.session, h.epoch) = (self.session, self.epoch);
        h.slot = SLOT_NONE;
        h.flags |= FLAG_COMMIT;
        let body = encode_body(&RequestContext::default(), &Ping { nonce: 0 });
        out.link = self.link.clone();
        out.frames.push(Frame::new(h, body, Bytes::new()));
    }

    /// The server said what is durable.
    fn learn_committed(&mut self, transno: u64) {
        self.last_committed = self.last_committed.max(transno);
        self.kept.committed(self.last_committed);
    }

    /// Requests that were sent and are not answered.
    pub fn in_flight(&self) -> usize {
        self.slots.iter().flatten().count()
    }
}

/// Takes a call out of the queue when its future is dropped.
struct Ticket {
    core: Arc<Core>,
    number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.core.lock().queue.remove(&self.number);
    }
}

impl Core {
    /// Queues a request, sends it as soon as it has a slot, and waits for its reply.
    pub async fn call_raw(
        self: &Arc<Core>,
        op: Op,
        modifies: bool,
        Terms { durable, life, waited_for }: Terms,
        body: Vec<u8>,
        bulk: Bulk,
    ) -> Result<RawReply, Errno> {
        // One that may have to be done again after a restart leaves room for what it came to the first time.
        let kept_free = if modifies { REPLAY_ROOM_BYTES } else { 0 };
        let most = model::limits::RPC_BODY_MAX_BYTES - kept_free;
        if body.len() > most || bulk.len() > model::limits::RPC_BULK_MAX_BYTES {
            return Err(Errno::EMSGSIZE);
        }
        let (tx, rx) = oneshot::channel();
        let mut out = Outbox::default();
        let now = self.world.now();
        let _ticket = {
            let mut g = self.lock();
            if g.closed {
                return Err(Errno::ESHUTDOWN);
            }
            if !g.active {
                return Err(Errno::EIO);
            }
            if let Some(e) = g.fatal_refusal() {
                return Err(e);
            }
            if life.is_some_and(|l| l != g.life) {
                return Err(Errno::EIO);
            }
            let urgent = op.verb().urgent;
            let number = if urgent { g.next_ticket } else { g.next_ticket + ORDINARY };
            g.next_ticket += 1;
            assert!(g.next_ticket < ORDINARY, "tickets of urgent requests stay below the others");
            let body = Bytes::from(body);
            let waited_for = waited_for || urgent;
            let answer = Some(tx);
            let (begun, is_told) = (now, false);
            let req = Request { op, modifies, durable, life, waited_for, body, bulk, answer, begun, is_told };
            g.queue.insert(number, req);
            g.pump(self.target_number(), now, &mut out);
            g.ask_commit(self.target_number(), &mut out);
            Ticket { core: self.clone(), number }
        };
        self.start();
        self.send_out(out);
        let answer = rx.await.unwrap_or(Err(Errno::ESHUTDOWN));
        if tracing::enabled!(target: RPCTRACE, tracing::Level::DEBUG) {
            let us = self.world.now().since(now).as_micros();
            let status = answer.as_ref().err().map_or("ok", |e| e.text());
            tracing::debug!(target: RPCTRACE, "{op:?} to {}: {status} after {us} us", self.label());
        }
        answer
    }

    pub fn send_out(&self, out: Outbox) {
        if !out.frames.is_empty() {
            self.touch_sent();
            out.post();
        }
    }

    /// A request of the session itself, past the queue, on the connection that is up.
    pub async fn control<M: Message>(self: &Arc<Core>, msg: M) -> Result<M::Reply, Errno> {
        let (tx, rx) = oneshot::channel();
        let mut out = Outbox::default();
        let sent = self.world.now();
        {
            let mut g = self.lock();
            let Some(link) = g.link.clone() else { return Err(Errno::ENOTCONN) };
            let body = Bytes::from(encode_body(&RequestContext::default(), &msg));
            let (op, modifies, bulk) = (M::OP, M::OP.verb().modifies, Bulk::default());
            let answer = Some(tx);
            // All wait for a recovery to end.
            let req = Request {
                op,
                modifies,
                durable: false,
                life: None,
                waited_for: true,
                body,
                bulk,
                answer,
                begun: sent,
                is_told: false,
            };
            let xid = g.new_xid();
            g.slots[usize::from(SLOT_CONTROL)] = Some(InFlight::new(xid, req, sent));
            out.frames.push(g.frame(self.target_number(), SLOT_CONTROL, false));
            out.link = Some(link);
        }
        self.send_out(out);
        let raw = rx.await.unwrap_or(Err(Errno::ENOTCONN))?;
        wire::decode_message(&raw.body).map_err(|_| Errno::EPROTO)
    }

    /// A reply arrived on the current connection: matches it, frees its slot, lets the next call go.
    pub fn on_reply(self: &Arc<Core>, f: Frame) {
        if f.header.status == STATUS_LATER {
            return self.put_off(f.header.slot, f.header.xid);
        }
        let (context, body): (ReplyContext, Bytes) = match wire::decode_context(&f.body) {
            Ok(parts) => parts,
            Err(e) => {
                tracing::warn!(target = %self.label(), op = f.header.opcode, "reply does not decode: {e}");
                (ReplyContext::default(), Bytes::new())
            }
        };
        let mut out = Outbox::default();
        let now = self.world.now();
        let (sent, answer) = {
            let mut g = self.lock();
            if context.credits != 0 {
                g.usable = context.credits.clamp(2, g.slots.len() as u16);
            }
            g.learn_committed(context.last_committed);
            g.last_transno = g.last_transno.max(f.header.transno);
            let (slot, xid) = (f.header.slot, f.header.xid);
            if g.replaying.as_ref().is_some_and(|(s, x, _)| (*s, *x) == (slot, xid)) {
                (None, g.replaying.take().map(|(_, _, answer)| answer))
            } else {
                let at = g.slots.get_mut(usize::from(slot));
                let done = at.and_then(|s| s.take_if(|i| i.xid == xid));
                let sent = done.as_ref().map(|d| d.sent);
                let answer = done.and_then(|mut d| {
                    let answer = d.req.answer.take();
                    if f.header.status == 0 && d.req.modifies && f.header.transno > g.last_committed {
                        let wall = wire::replay::wall_of(&context.extra);
                        g.kept.keep(slot, d, f.header.transno, body.clone(), wall);
                    }
                    answer
                });
                g.pump(self.target_number(), now, &mut out);
                g.ask_commit(self.target_number(), &mut out);
                (sent, answer)
            }
        };
        self.send_out(out);
        if let Some(sent) = sent {
            self.served(sent);
        }
        let Some(answer) = answer else { return };
        let _ = answer.send(match f.header.status {
            0 => Ok(RawReply {
                body,
                bulk: f.bulk.into_bytes(),
                transno: f.header.transno,
                durable: f.header.transno != 0 && f.header.transno <= context.last_committed,
                wall: wire::replay::wall_of(&context.extra),
            }),
            e => Err(Errno(i32::from(e))),
        });
    }

    /// The server has no memory for a request: it goes again after a while, with the number that it has.
    fn put_off(self: &Arc<Core>, slot: u16, xid: u64) {
        let times = {
            let mut g = self.lock();
            if g.replaying.as_ref().is_some_and(|(s, x, _)| (*s, *x) == (slot, xid)) {
                let answer = g.replaying.take().map(|(.., answer)| answer);
                drop(g);
                answer.into_iter().for_each(|a| drop(a.send(Err(LATER))));
                return;
            }
            let at = g.slots.get_mut(usize::from(slot)).and_then(Option::as_mut);
            let Some(f) = at.filter(|f| f.xid == xid) else { return };
            f.put_off = true;
            f.times_put_off = f.times_put_off.saturating_add(1);
            f.times_put_off
        };
        let (core, wait) = (self.clone(), self.later_wait(times));
        self.world.spawn("rpc-later", async move {
            core.world.sleep(wait).await;
            if !planted::on(Bug::PutOffForgotten) {
                core.send_put_off(slot, xid);
            }
        });
    }

    /// Sends it, unless the session was made anew meanwhile, which has everything sent again.
    fn send_put_off(&self, slot: u16, xid: u64) {
        let mut out = Outbox::default();
        {
            let mut g = self.lock();
            if g.link.is_none() || (slot != SLOT_CONTROL && g.state != ImportState::Full) {
                return;
            }
            let at = g.slots.get_mut(usize::from(slot)).and_then(Option::as_mut);
            let Some(f) = at.filter(|f| f.xid == xid && f.put_off) else { return };
            f.sent_again(self.world.now());
            out.frames.push(g.frame(self.target_number(), slot, true));
            out.link = g.link.clone();
        }
        self.send_out(out);
    }

    /// Twice as long each time.
    pub fn later_wait(&self, times: u32) -> Duration {
        let most = (LATER_WAIT_MIN * 2u32.saturating_pow(times.min(16))).min(LATER_WAIT_MAX);
        self.at_most(most)
    }

    /// A ping was answered: what is durable by now need not be kept. Returns what else the server said with
    /// it.
    pub fn on_pong(&self, f: &Frame) -> Vec<(u16, Vec<u8>)> {
        let Ok((context, _)) = wire::decode_context::<ReplyContext>(&f.body) else { return Vec::new() };
        let mut out = Outbox::default();
        {
            let mut g = self.lock();
            g.learn_committed(context.last_committed);
            if f.header.xid == 0 {
                g.commit_asked = false;
            }
            g.pump(self.target_number(), self.world.now(), &mut out);
            g.ask_commit(self.target_number(), &mut out);
        }
        self.send_out(out);
        context.extra
    }
}
