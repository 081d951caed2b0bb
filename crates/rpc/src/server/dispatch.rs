//! From a frame to the service and back.

use super::accept::{Admitted, Refusal};
use super::barred::Culprit;
use super::session::{Arrived, Asked, Kept, Session, Stamp, Step};
use super::{ClientId, Departure, Incoming, Outgoing, Replay, Server, Target, evict};
use crate::credits::Role;
use crate::nrs;
use bytes::Bytes;
use model::debug::RPCTRACE;
use model::span::Kind;
use model::{Cred, Errno, Timestamp};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::frame::{FLAG_COMMIT, FLAG_DURABLE, FLAG_REPLAY, FLAG_RESENT, FLAG_UNDER_WAY, FLAG_WAITED_FOR};
use wire::msg::notify::Notice;
use wire::{Frame, FrameKind, Header, Op, RequestContext, Sender};
use world::inbound::{Received, Room};
use world::span::{self, Span};
use world::{Conn, sync};

/// Takes frames until the connection ends; says why if the peer broke the rules.
pub(super) async fn read_loop(server: &Arc<Server>, a: &Admitted, conn: &Arc<dyn Conn>) -> Option<Refusal> {
    loop {
        let taken = match conn.recv_within(&a.share).await {
            Ok(Received::Frame(f, room)) => on_frame(server, a, f, room),
            Ok(Received::Dropped(h)) => on_dropped(server, a, &h),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                return Some(Refusal { errno: Errno::EPROTO, kind: "garbage", text: e.to_string() });
            }
            Err(_) => return None,
        };
        match taken {
            Ok(true) => {}
            Ok(false) => return None,
            Err(r) => return Some(r),
        }
    }
}

fn broken(kind: &'static str, errno: Errno, text: String) -> Result<bool, Refusal> {
    Err(Refusal { errno, kind, text })
}

/// False: this connection is done.
fn on_frame(server: &Arc<Server>, a: &Admitted, f: Frame, room: Option<Room>) -> Result<bool, Refusal> {
    let h = f.header;
    let stamp = stamp(&a.target);
    if h.kind == FrameKind::Notify {
        if h.session != a.number || h.epoch != stamp.epoch {
            return broken("session", Errno::EPROTO, "notice of another session".into());
        }
        if !a.session.heard(a.number, server.world.now()) {
            return Ok(false);
        }
        return match wire::decode_message::<Notice>(&f.body) {
            Ok(Notice::Proof { claims }) => match a.session.claim(a.number, claims) {
                Ok(()) => {
                    if a.target.service.sender(&a.session.principal()) > Sender::Client {
                        a.session.set_role(Role::Server);
                    }
                    Ok(true)
                }
                Err(e) => broken("proof", e, "a proof that nobody asked for".into()),
            },
            Ok(Notice::ClientEvicted { client }) => {
                evicted_elsewhere(server, a, ClientId(client));
                Ok(true)
            }
            Ok(n) => {
                a.target.service.notice(a.session.client, n);
                Ok(true)
            }
            Err(e) => broken("notice", Errno::EPROTO, format!("notice does not decode: {e}")),
        };
    }
    if let Some(done) = is_heard(server, a, &h, stamp)? {
        return Ok(done);
    }
    if h.opcode == Op::Ping as u16 {
        let work = h.flags & FLAG_UNDER_WAY != 0;
        if h.flags & FLAG_COMMIT != 0 {
            let (target, session) = (a.target.clone(), a.session.clone());
            server.world.spawn("rpc-commit", async move {
                target.service.clone().commit().await;
                if !target.service.speaks() {
                    return;
                }
                session.pong(h.xid, h.opcode, self::stamp(&target), work);
            });
        } else {
            a.session.pong(h.xid, h.opcode, stamp, work);
        }
        return Ok(true);
    }
    has_slot(&h)?;
    if h.opcode == Op::Disconnect as u16 {
        leave(server, a, h.slot, h.xid, stamp);
        return Ok(true);
    }
    let checked = incoming(server, a, f).and_then(|i| may_send(server, a, &i).map(|()| i));
    let incoming = match checked {
        Ok(i) => i,
        Err(e) => {
            let err = Kept::of(Outgoing::err(e), Timestamp::ZERO);
            a.session.reply(Asked { slot: h.slot, xid: h.xid, op: h.opcode }, &err, stamp);
            return Ok(true);
        }
    };
    // It waits for the recovery, and would keep out those for which the recovery waits.
    let service = &a.target.service;
    let recovers =
        incoming.replay.is_some() || (incoming.op == Op::Reclaim && service.replays(incoming.from.client));
    if room.as_ref().is_some_and(Room::is_kept) && service.recovering() && !recovers {
        drop(room);
        return put_off(server, a, &h, stamp);
    }
    if a.target.barred.bars(&incoming) {
        tracing::error!(client = %a.session.client, op = h.opcode, "{}: this request ended the server before: EIO", a.target.label);
        let err = Kept::of(Outgoing::err(Errno::EIO), Timestamp::ZERO);
        a.session.reply(Asked { slot: h.slot, xid: h.xid, op: h.opcode }, &err, stamp);
        return Ok(true);
    }
    let waited_for = h.flags & FLAG_WAITED_FOR != 0;
    let verb = incoming.op.verb();
    let unblocks = waited_for || verb.in_recovery || verb.unlimited || incoming.resent || recovers;
    // It was told how many it may have. In its slot it waits on its own side, and comes again.
    if a.patient && !unblocks && a.session.is_beyond(h.slot) {
        drop(room);
        a.session.reply(Asked { slot: h.slot, xid: h.xid, op: h.opcode }, &Kept::later(), stamp);
        return Ok(true);
    }
    match a.session.arrive(a.number, Box::new(Arrived { req: incoming, room, waited_for }), stamp) {
        Step::Execute(req) => {
            let (server2, target, session) = (server.clone(), a.target.clone(), a.session.clone());
            server.world.spawn("rpc-request", execute(server2, target, session, req));
            Ok(true)
        }
        Step::Nothing => Ok(true),
        Step::Hangup => Ok(false),
    }
}

/// There was no memory for a request: its client sends it again.
fn on_dropped(server: &Arc<Server>, a: &Admitted, h: &Header) -> Result<bool, Refusal> {
    let stamp = stamp(&a.target);
    if let Some(done) = is_heard(server, a, h, stamp)? {
        return Ok(done);
    }
    has_slot(h)?;
    put_off(server, a, h, stamp)
}

fn put_off(server: &Server, a: &Admitted, h: &Header, stamp: Stamp) -> Result<bool, Refusal> {
    server.say_full();
    if !a.patient {
        let text = "no memory for a request, and this client cannot be told to send it again later: it connects anew (upgrade it)";
        return broken("memory", Errno::EBUSY, text.into());
    }
    a.session.reply(Asked { slot: h.slot, xid: h.xid, op: h.opcode }, &Kept::later(), stamp);
    Ok(true)
}

/// Whether a request belongs to this session as it is now; otherwise what becomes of the connection.
fn is_heard(server: &Server, a: &Admitted, h: &Header, stamp: Stamp) -> Result<Option<bool>, Refusal> {
    if h.kind != FrameKind::Request {
        broken("order", Errno::EPROTO, format!("frame of kind {:?} inside a session", h.kind))?;
    }
    if h.epoch != stamp.epoch {
        let text = format!("frame with epoch {}, {} has {}", h.epoch, a.target.label, stamp.epoch);
        broken("epoch", Errno::ESTALE, text)?;
    }
    if h.session != a.number || h.target != stamp.target {
        broken("session", Errno::EPROTO, "frame of another session".into())?;
    }
    if !a.session.heard(a.number, server.world.now()) {
        return Ok(Some(false));
    }
    if server.stopping.load(Ordering::Acquire) {
        return Ok(Some(true));
    }
    Ok((!a.target.service.speaks()).then_some(false))
}

fn has_slot(h: &Header) -> Result<(), Refusal> {
    if h.slot >= model::limits::SLOTS_PER_SESSION {
        let text = format!("slot {} of {}", h.slot, model::limits::SLOTS_PER_SESSION);
        broken("slot", Errno::EPROTO, text)?;
    }
    Ok(())
}

pub(super) fn stamp(t: &Target) -> Stamp {
    Stamp {
        target: t.service.target().to_u32(),
        epoch: t.service.epoch(),
        last_committed: t.service.last_committed(),
    }
}

/// The one place that says who may send what: [`wire::verb::Verb::sender`]. `EPERM` for everybody else.
fn may_send(server: &Server, a: &Admitted, r: &Incoming) -> Result<(), Errno> {
    let service = &a.target.service;
    let needed = r.op.verb().sender;
    // Whoever is nobody's client, and keeps nothing (an MDT at an OST), is not waited for, and may say again
    // what it said.
    let again = |s: Sender| r.replay.is_none() || s >= Sender::Server || service.replays(r.from.client);
    if needed == Sender::Client && r.replay.is_none() {
        return Ok(());
    }
    let is = service.sender(&r.from);
    let what = match (is >= needed, again(is)) {
        (true, true) => return Ok(()),
        (false, _) => format!("{:?} may be sent by a {needed:?}; this is a {is:?}", r.op),
        (true, false) => format!("{:?} is said to have been answered before a restart that was none", r.op),
    };
    server.complain(r.from.address, "role", &format!("{}: {what}", a.target.label));
    Err(Errno::EPERM)
}

/// Another target has evicted a client. Only a server of the file system is believed that.
fn evicted_elsewhere(server: &Server, a: &Admitted, client: ClientId) {
    let from = a.session.principal();
    if a.target.service.sender(&from) >= Sender::Server {
        a.target.peers.doubt(client, server.world.now());
    } else {
        server.complain(from.address, "role", &format!("{}: only servers tell of evictions", a.target.label));
    }
}

fn incoming(server: &Server, a: &Admitted, f: Frame) -> Result<Incoming, Errno> {
    let h = f.header;
    let complain = |what: &dyn std::fmt::Display| {
        tracing::warn!(client = %a.session.client, target = a.target.label, op = h.opcode, "bad request: {what}");
    };
    let op = Op::from_u16(h.opcode).map_err(|e| {
        complain(&e);
        Errno::EOPNOTSUPP
    })?;
    let (mut body, mut wall, mut replay) = (f.body, server.world.wall(), None);
    if h.flags & FLAG_REPLAY != 0 {
        let (message, tail) = wire::replay::split(&body).map_err(|e| {
            complain(&e);
            Errno::EBADMSG
        })?;
        (body, wall) = (message, tail.wall);
        replay = Some(Replay { transno: h.transno, reply: tail.reply.into() });
    }
    let (ctx, body): (RequestContext, Bytes) = wire::decode_context(&body).map_err(|e| {
        complain(&e);
        Errno::EBADMSG
    })?;
    if ctx.cred.groups.len() > model::limits::GROUPS_MAX {
        complain(&"more groups than any process can have");
        return Err(Errno::EINVAL);
    }
    Ok(Incoming {
        from: a.session.principal(),
        op,
        slot: h.slot,
        xid: h.xid,
        resent: h.flags & FLAG_RESENT != 0,
        durable: h.flags & FLAG_DURABLE != 0,
        wall,
        replay,
        ctx,
        body,
        bulk: f.bulk.into_bytes(),
    })
}

/// Ends the process if a handler panics: half an operation may have been done to the state. The request is
/// noted before, so that it does not end the next start as well.
struct AbortOnPanic {
    target: Arc<Target>,
    abort: bool,
    /// What is being executed.
    culprit: Option<Culprit>,
}

impl Drop for AbortOnPanic {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        if let Some(c) = &self.culprit {
            self.target.barred.add(c);
        }
        if self.abort {
            eprintln!(
                "nacre: a request handler panicked: the process ends so that nobody sees half an operation"
            );
            std::process::abort();
        }
    }
}

/// A request that is about to begin, as its order asks about it.
struct Begins<'a> {
    target: &'a Target,
    session: &'a Session,
    arrived: &'a Arrived,
}

impl nrs::Request for Begins<'_> {
    fn goes_ahead(&self) -> bool {
        let Arrived { req, waited_for, .. } = self.arrived;
        nrs::goes_ahead(req.op, req.replay.is_some() || req.resent, *waited_for)
    }

    fn unblocks(&self) -> bool {
        let is_server = || self.target.service.sender(&self.arrived.req.from) >= Sender::Server;
        (self.arrived.waited_for && self.is_awaited()) || is_server()
    }

    fn is_awaited(&self) -> bool {
        self.target.peers.holders().is_some_and(|h| h.awaited(self.session.client))
    }

    fn subject(&self) -> nrs::Subject {
        let req = &self.arrived.req;
        let account = match self.target.peers.holders() {
            Some(h) => h.account(req.op, &req.ctx, &req.body),
            None => nrs::Account::of(&req.ctx),
        };
        let squashed = || self.target.service.nodemap(&req.from).cred(&Cred::root());
        let account = if account.uid == 0 { account.as_user(&squashed()) } else { account };
        nrs::Subject { account, client: self.session.client, from: req.from.address, op: req.op }
    }

    fn cost(&self) -> u64 {
        nrs::cost(self.arrived.req.op, &self.arrived.req.body, self.arrived.req.bulk.len())
    }

    fn left(&self) -> &sync::Notify {
        self.session.left()
    }

    fn is_leaving(&self) -> bool {
        self.session.is_leaving()
    }
}

/// `EROFS` for what must not be done while the file system is maintained. Servers go on with their own work.
fn held(server: &Server, target: &Target, req: &Incoming) -> Result<(), Errno> {
    let hold = target.peers.maintenance();
    // What is sent or done again may have been executed.
    if !hold.is_on() || req.resent || req.replay.is_some() || req.ctx.knows_maintenance(hold.ordered()) {
        return Ok(());
    }
    match hold.permits(req.op, req.from.address, server.world.now()) {
        Err(_) if target.service.sender(&req.from) >= Sender::Server => Ok(()),
        said => said,
    }
}

async fn handle(server: &Server, target: &Target, req: Incoming) -> Outgoing {
    if !req.op.verb().by_host {
        return target.service.clone().handle(req).await;
    }
    match server.host.get() {
        Some(h) => h.order(target.service.target(), target.service.fsname(), req).await,
        None => Outgoing::err(Errno::EOPNOTSUPP),
    }
}

/// Runs a request, and those that waited behind it in its slot, to their replies.
async fn execute(server: Arc<Server>, target: Arc<Target>, session: Arc<Session>, first: Box<Arrived>) {
    let abort = server.abort_on_panic.load(Ordering::Relaxed);
    let mut guard = AbortOnPanic { target: target.clone(), abort, culprit: None };
    let mut next = Some(first);
    while let Some(arrived) = next {
        let place =
            target.peers.nrs().enter(&Begins { target: &target, session: &session, arrived: &arrived }).await;
        let Arrived { req, room, .. } = *arrived;
        let asked = Asked { slot: req.slot, xid: req.xid, op: req.op as u16 };
        assert!(asked.slot < model::limits::SLOTS_PER_SESSION, "what is executed has a slot for its answer");
        let wall = req.wall;
        guard.culprit = Some(Culprit::of(&req));
        let (op, xid) = (req.op, req.xid);
        let traced = tracing::enabled!(target: RPCTRACE, tracing::Level::DEBUG);
        let begun = traced.then(|| server.world.now());
        let span = span_of(&server, &target, &req);
        let done = async {
            match held(&server, &target, &req) {
                Ok(()) => handle(&server, &target, req).await,
                Err(e) => Outgoing::err(e),
            }
        };
        let mut out = Span::around(span.as_ref().map(|s| s.at), done).await;
        if let Some(s) = span {
            s.end(&server.world, out.status.err().map_or("ok", |e| e.text()));
        }
        drop((room, place));
        guard.culprit = None;
        if let Some(begun) = begun {
            let us = server.world.now().since(begun).as_micros();
            trace((&target.label, session.client), (op, xid), us, &out);
        }
        assert!(out.transno == 0 || out.status.is_ok(), "{:?} failed and changed something", asked.op);
        let plain = out.body.is_empty() && out.bulk.is_empty();
        assert!(out.status.is_ok() || plain, "an error is answered with nothing else");
        let hold = out.hold.take();
        if !target.service.speaks() {
            return session.close_link();
        }
        next = session.finish(asked, Kept::of(out, wall), stamp(&target));
        // Later answers to this client may go now.
        drop(hold);
    }
}

/// Of a request that its sender follows, if somebody wants to hear of it here.
fn span_of(server: &Server, target: &Target, req: &Incoming) -> Option<Span> {
    let (trace, span) = req.ctx.followed().filter(|_| span::wanted())?;
    let name = format!("{:?} at {} (x{})", req.op, target.label, req.xid);
    Some(Span::part(&server.world, span::At { trace, span }, Kind::Server, name))
}

/// What became of a request, after so many microseconds.
fn trace((target, by): (&str, ClientId), (op, xid): (Op, u64), us: u128, out: &Outgoing) {
    let (status, transno) = (out.status.err().map_or("ok", |e| e.text()), out.transno);
    tracing::debug!(target: RPCTRACE, "{target}: {op:?} x{xid} of {by}: {status} after {us} us, transaction {transno}");
}

/// The client says good-bye: its departure is durable before it gets the answer.
fn leave(server: &Arc<Server>, a: &Admitted, slot: u16, xid: u64, stamp: Stamp) {
    let (server2, target, session) = (server.clone(), a.target.clone(), a.session.clone());
    server.world.spawn("rpc-depart", async move {
        evict::depart(server2, target, session.clone(), Departure::Disconnected).await;
        let ok = Kept::of(Outgoing::ok(&(), 0), Timestamp::ZERO);
        session.reply(Asked { slot, xid, op: Op::Disconnect as u16 }, &ok, stamp);
    });
}
