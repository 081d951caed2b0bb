//! A call's way out and back: queue, slot, xid, frame, reply.
//!
//! A request without a slot belongs to its caller alone and goes when the caller goes. With its slot it has
//! been sent, may have been executed, and holds the slot until it is answered, whoever still waits.

use crate::import::{Core, ImportState, Inner};
use crate::link::Link;
use bytes::Bytes;
use model::Errno;
use std::sync::Arc;
use wire::frame::FLAG_RESENT;
use wire::msg::connect::SLOT_CONTROL;
use wire::{Frame, FrameKind, Header, Message, Op, ReplyContext, RequestContext, encode_body};
use world::Instant;
use world::sync::oneshot;

/// What came back, not yet decoded.
pub(crate) struct RawReply {
    /// Behind the context.
    pub body: Bytes,
    pub bulk: Bytes,
    pub transno: u64,
}

pub(crate) type Answer = oneshot::Sender<Result<RawReply, Errno>>;

/// One request, encoded.
pub(crate) struct Request {
    pub op: Op,
    pub modifies: bool,
    pub body: Bytes,
    pub bulk: Bytes,
    /// `None` when the caller was told already (deactivated target).
    pub answer: Option<Answer>,
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

impl Inner {
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
        Frame { header: h, body: f.req.body.clone(), bulk: f.req.bulk.clone() }
    }

    pub fn new_xid(&mut self) -> u64 {
        self.next_xid += 1;
        self.next_xid
    }

    fn free_slot(&self) -> Option<u16> {
        let end = usize::from(self.usable).min(self.slots.len());
        (1..end).find(|&i| self.slots[i].is_none()).map(|i| i as u16)
    }

    /// Gives free slots to waiting calls, first come, first served.
    pub fn pump(&mut self, target: u32, now: Instant, out: &mut Outbox) {
        if self.state != ImportState::Full {
            return;
        }
        out.link = self.link.clone();
        while let Some(slot) = self.free_slot() {
            let Some((_, req)) = self.queue.pop_first() else { break };
            if req.forsaken() {
                continue;
            }
            let xid = self.new_xid();
            self.slots[usize::from(slot)] = Some(InFlight { xid, req, sent: now });
            out.frames.push(self.frame(target, slot, false));
        }
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
        body: Vec<u8>,
        bulk: Bytes,
    ) -> Result<RawReply, Errno> {
        if body.len() > model::limits::RPC_BODY_MAX_BYTES || bulk.len() > model::limits::RPC_BULK_MAX_BYTES {
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
            let number = g.next_ticket;
            g.next_ticket += 1;
            let req = Request { op, modifies, body: Bytes::from(body), bulk, answer: Some(tx) };
            g.queue.insert(number, req);
            g.pump(self.target_number(), now, &mut out);
            Ticket { core: self.clone(), number }
        };
        self.start();
        self.send_out(out);
        rx.await.unwrap_or(Err(Errno::ESHUTDOWN))
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
            let req =
                Request { op: M::OP, modifies: M::MODIFIES, body, bulk: Bytes::new(), answer: Some(tx) };
            let xid = g.new_xid();
            g.slots[usize::from(SLOT_CONTROL)] = Some(InFlight { xid, req, sent });
            out.frames.push(g.frame(self.target_number(), SLOT_CONTROL, false));
            out.link = Some(link);
        }
        self.send_out(out);
        let raw = rx.await.unwrap_or(Err(Errno::ENOTCONN))?;
        wire::decode_message(&raw.body).map_err(|_| Errno::EPROTO)
    }

    /// A reply arrived on the current connection: matches it, frees its slot, lets the next call go.
    pub fn on_reply(&self, f: Frame) {
        let (context, body): (ReplyContext, Bytes) = match wire::decode_context(&f.body) {
            Ok(parts) => parts,
            Err(e) => {
                tracing::warn!(target = %self.label(), op = f.header.opcode, "reply does not decode: {e}");
                (ReplyContext::default(), Bytes::new())
            }
        };
        let mut out = Outbox::default();
        let now = self.world.now();
        let done = {
            let mut g = self.lock();
            if context.credits != 0 {
                g.usable = context.credits.clamp(2, g.slots.len() as u16);
            }
            g.last_committed = g.last_committed.max(context.last_committed);
            let slot = usize::from(f.header.slot);
            let matches = g.slots.get(slot).and_then(Option::as_ref).is_some_and(|i| i.xid == f.header.xid);
            let done = if matches { g.slots[slot].take() } else { None };
            g.pump(self.target_number(), now, &mut out);
            done
        };
        self.send_out(out);
        let Some(mut done) = done else { return };
        self.heard_since(done.sent);
        done.req.finish(match f.header.status {
            0 => Ok(RawReply { body, bulk: f.bulk, transno: f.header.transno }),
            e => Err(Errno(i32::from(e))),
        });
    }
}
