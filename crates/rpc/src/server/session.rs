//! One client's session with one target, over any number of connections.

use super::slots::{Arrival, Slot};
use super::{ClientId, Incoming, Outgoing, Peer, Principal, Proofs, STATUS_UNFINISHED, StoredReply};
use crate::at_work::AtWork;
use crate::credits::Role;
use crate::link::Link;
use crate::nrs::Nrs;
use bytes::Bytes;
use model::mutex::{Mutex, MutexGuard};
use model::{Errno, Timestamp};
use std::sync::Arc;
use wire::frame::STATUS_LATER;
use wire::msg::connect::SLOT_NONE;
use wire::msg::notify::Notify;
use wire::proof::{Challenge, Claim, add_claims};
use wire::replay::{EXTRA_WALL, encode_wall};
use wire::under_way::UnderWay;
use wire::{Bulk, Frame, FrameKind, Header, Op, ReplyContext};
use world::inbound::Room;
use world::{Instant, sync};

/// Replies of requests that changed nothing are remembered up to this size; larger ones are made again.
const SMALL_REPLY_MAX_BYTES: usize = 4096;

/// A reply as a slot remembers it.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    status: u16,
    body: Bytes,
    bulk: Bulk,
    transno: u64,
    /// The server's clock when a modifying request was executed.
    wall: Timestamp,
    /// Said besides, in the context.
    extra: Vec<(u16, Vec<u8>)>,
}

/// Why a client is evicted that is heard from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    Callback,
    Administrator,
    /// It came back after a restart, and did not say in time what it had.
    Unrecovered,
}

/// Which request a reply answers.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub slot: u16,
    pub xid: u64,
    /// 0: the client knows from slot and xid.
    pub op: u16,
}

impl From<StoredReply> for Kept {
    fn from(r: StoredReply) -> Kept {
        // Durable, as it was read back: nobody will ask for it to be done again.
        let (wall, extra) = (Timestamp::ZERO, Vec::new());
        Kept {
            status: r.status,
            body: Bytes::from(r.body),
            bulk: Bulk::default(),
            transno: r.transno,
            wall,
            extra,
        }
    }
}

impl Kept {
    pub fn of(o: Outgoing, wall: Timestamp) -> Kept {
        let status = match o.status {
            Ok(()) => 0,
            Err(e) => u16::try_from(e.0).unwrap_or(Errno::EIO.0 as u16),
        };
        assert!(status == 0 || o.body.is_empty(), "an error reply has no body");
        let (body, extra) = (Bytes::from(o.body), Vec::new());
        Kept { status, body, bulk: o.bulk, transno: o.transno, wall, extra }
    }

    /// There is no memory for it: it is to come again.
    pub fn later() -> Kept {
        let (body, bulk, wall, extra) = (Bytes::new(), Bulk::default(), Timestamp::ZERO, Vec::new());
        Kept { status: STATUS_LATER, body, bulk, transno: 0, wall, extra }
    }

    /// Whether a resent request must find this reply, or may cheaply do so. Not that it came damaged: it is
    /// to come again, whole.
    fn worth_keeping(&self) -> bool {
        if i32::from(self.status) == Errno::EBADMSG.0 {
            return false;
        }
        self.transno != 0 || (self.bulk.is_empty() && self.body.len() <= SMALL_REPLY_MAX_BYTES)
    }
}

/// What every frame of a target's session says.
#[derive(Clone, Copy)]
pub(crate) struct Stamp {
    pub target: u32,
    pub epoch: u32,
    pub last_committed: u64,
}

pub(crate) struct Session {
    pub client: ClientId,
    target: u32,
    epoch: u32,
    state: Mutex<SessionState>,
    /// Which has the slots that sessions get.
    nrs: Arc<Nrs>,
    /// Wakes those who wait for the last running request.
    quiet: sync::Notify,
    /// Wakes requests that wait for their turn when the session ends.
    left: sync::Notify,
}

struct SessionState {
    name: String,
    /// As far as the newest connection has shown.
    from: Principal,
    /// Number of the newest connection.
    number: u64,
    link: Option<Link>,
    heard: Instant,
    /// As many as it has used.
    slots: Vec<Slot<Box<Arrived>, Kept>>,
    /// What runs in each of them.
    begun: Vec<Option<Begun>>,
    /// Slots that the client asked for.
    asked: u16,
    /// As far as its connection has shown.
    role: Role,
    running: usize,
    /// The fewest slots that it had free.
    low: u16,
    /// Being evicted, disconnected or abandoned: nothing new is executed.
    leaving: bool,
    /// To be evicted although it is heard from.
    condemned: Option<Why>,
    /// The longest time without requests after which it was told to ping.
    ping_ms: u32,
    /// When another target was last said to have evicted this client.
    doubted: Option<Instant>,
    /// Number of the first connection on which the client was told that it is new: until it shows that it
    /// received that answer, it is told again.
    new_since: Option<u64>,
    /// Of the token that its client showed.
    digest: Option<[u8; 32]>,
}

/// A request and the memory that it has until it is done.
pub(crate) struct Arrived {
    pub req: Incoming,
    pub room: Option<Room>,
    /// Its sender says that others may wait for it.
    pub waited_for: bool,
}

/// Of a request that runs, or waits to be begun: what is told of it if the target hangs.
struct Begun {
    op: Op,
    jobid: String,
    /// Its frame, or that of the session that was heard last before it, arrived.
    at: Instant,
}

impl Begun {
    fn of(arrived: &Arrived, at: Instant) -> Begun {
        Begun { op: arrived.req.op, jobid: arrived.req.ctx.jobid.clone(), at }
    }
}

/// What `arrive` makes of a request frame.
pub(crate) enum Step {
    Execute(Box<Arrived>),
    Nothing,
    /// The frame came on a connection that was replaced, or the session ends.
    Hangup,
}

impl SessionState {
    /// One of the slots of a session, used or not.
    fn slot(&mut self, n: u16) -> &mut Slot<Box<Arrived>, Kept> {
        assert!(n < model::limits::SLOTS_PER_SESSION, "a request has a slot of its session");
        let n = usize::from(n);
        if self.slots.len() <= n {
            self.slots.resize_with(n + 1, Slot::default);
            self.begun.resize_with(n + 1, || None);
        }
        &mut self.slots[n]
    }
}

impl Session {
    pub fn new(from: Principal, target: u32, epoch: u32, now: Instant, nrs: Arc<Nrs>) -> Session {
        Session {
            client: from.client,
            target,
            epoch,
            state: Mutex::new(SessionState {
                name: String::new(),
                from,
                number: 0,
                link: None,
                heard: now,
                slots: Vec::new(),
                begun: Vec::new(),
                asked: 2,
                role: Role::Client,
                running: 0,
                low: u16::MAX,
                leaving: false,
                condemned: None,
                ping_ms: 0,
                doubted: None,
                new_since: None,
                digest: None,
            }),
            nrs,
            quiet: sync::Notify::new(),
            left: sync::Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock()
    }

    /// Fills the slots from what the service stored before its restart.
    pub fn restore(&self, stored: impl Fn(u16) -> Option<StoredReply>) {
        let replies: Vec<_> = (0..model::limits::SLOTS_PER_SESSION).map(stored).collect();
        let mut g = self.lock();
        for (slot, r) in (0..).zip(replies).filter_map(|(slot, r)| Some((slot, r?))) {
            *g.slot(slot) = match r {
                r if r.status == STATUS_UNFINISHED => Slot::begun(r.xid),
                r => Slot::restored(r.xid, Kept::from(r)),
            };
        }
    }

    /// A new connection takes the session over; the old one is closed, its frames count no more. `answer`
    /// makes the first frame, of whether the client must be told that it is new and of the highest xid in its
    /// slots. Returns whether it was. False as error: the session is ending.
    ///
    /// Behind the answer go the remembered replies that are not durable yet: what was answered after them may
    /// rely on them, so the client must not have that and lack them (it would send again in the wrong order).
    pub fn take_over(
        &self,
        link: Link,
        hello: &Hello,
        now: Instant,
        stamp: Stamp,
        answer: impl FnOnce(bool, u64, u16) -> Frame,
    ) -> Result<bool, ()> {
        assert_eq!(hello.from.client, self.client, "a session is one client's");
        let slots = 2..=model::limits::SLOTS_PER_SESSION;
        assert!(slots.contains(&hello.asked), "a client may use slots that its session has");
        let (old, new) = {
            let mut g = self.lock();
            if g.leaving {
                return Err(());
            }
            g.name.clone_from(&hello.name);
            g.number = hello.number;
            g.digest = g.digest.or(hello.digest);
            let (nonce, session) = (hello.nonce.unwrap_or_default(), hello.number);
            let challenge = Challenge { nonce, session, target: self.target, client: self.client.0 };
            g.from = hello.from.clone().with_proofs(Proofs { challenge, claims: Vec::new() });
            g.heard = now;
            // Who was told of a longer time may not have got this answer, and relies on its leases that long.
            g.ping_ms = g.ping_ms.max(hello.ping_ms);
            // A server shows that it is one on each connection anew.
            (g.asked, g.role) = (hello.asked, Role::Client);
            let granted = self.granted(&g);
            if hello.new_client && g.new_since.is_none() {
                g.new_since = Some(hello.number);
            }
            let new = g.new_since.is_some_and(|n| hello.last_session < n);
            link.post(answer(new, g.slots.iter().map(Slot::newest).max().unwrap_or(0), granted));
            let mut again: Vec<(u64, u16, u64, Kept)> = Vec::new();
            for (i, s) in g.slots.iter().enumerate() {
                if let Some((xid, k)) = s.answered().filter(|(_, k)| k.transno > stamp.last_committed) {
                    again.push((k.transno, i as u16, xid, k.clone()));
                }
            }
            again.sort_unstable_by_key(|(transno, ..)| *transno);
            for (_, slot, xid, kept) in again {
                let asked = Asked { slot, xid, op: 0 };
                link.post(frame((hello.number, granted), asked, &kept, stamp));
            }
            (g.link.replace(link), new)
        };
        if let Some(l) = old {
            l.close();
        }
        Ok(new)
    }

    /// Slots that the client may use now.
    fn granted(&self, g: &SessionState) -> u16 {
        self.nrs.credits().granted(g.role, g.asked)
    }

    /// A request more is under way.
    fn look_at_slots(&self, g: &mut SessionState) {
        let running = u16::try_from(g.running).unwrap_or(u16::MAX);
        // One is the session's own.
        let free = self.granted(g).saturating_sub(1).saturating_sub(running);
        g.low = g.low.min(free);
        self.nrs.credits().saw_free(g.role, free);
    }

    /// Whether a new request in this slot is one too many.
    pub fn is_beyond(&self, slot: u16) -> bool {
        let g = self.lock();
        let granted = self.granted(&g);
        slot >= granted && g.running >= usize::from(granted)
    }

    /// What its connection has shown.
    pub fn set_role(&self, role: Role) {
        self.lock().role = role;
    }

    /// The fewest slots that it had free, if it had a request.
    pub fn slots_low(&self) -> Option<u16> {
        Some(self.lock().low).filter(|n| *n != u16::MAX)
    }

    /// A sign of life outside a frame of the session (a new hello). False if the session is ending.
    pub fn touch(&self, now: Instant) -> bool {
        let mut g = self.lock();
        g.heard = now;
        !g.leaving
    }

    /// Whether a client that shows this may speak in the session's name.
    pub fn is_of(&self, digest: Option<[u8; 32]>) -> bool {
        let mine = self.lock().digest;
        mine.is_none() || mine == digest
    }

    /// Connection `number` claims to be something. `EPROTO`: it was sent no nonce, or claims too much.
    pub fn claim(&self, number: u64, claims: Vec<Claim>) -> Result<(), Errno> {
        let mut g = self.lock();
        if g.number != number {
            return Ok(());
        }
        let challenge = g.from.proofs().challenge;
        if challenge.nonce == [0; 32] {
            return Err(Errno::EPROTO);
        }
        let claims = add_claims(&g.from.proofs().claims, claims).ok_or(Errno::EPROTO)?;
        g.from = g.from.clone().with_proofs(Proofs { challenge, claims });
        Ok(())
    }

    /// Who speaks in it now.
    pub fn principal(&self) -> Principal {
        self.lock().from.clone()
    }

    /// A frame arrived on connection `number`. False: that connection was replaced.
    pub fn heard(&self, number: u64, now: Instant) -> bool {
        let mut g = self.lock();
        let current = g.number == number && !g.leaving;
        if current {
            g.heard = now;
        }
        current
    }

    pub fn arrive(&self, number: u64, arrived: Box<Arrived>, stamp: Stamp) -> Step {
        let req = &arrived.req;
        let asked = Asked { slot: req.slot, xid: req.xid, op: req.op as u16 };
        let kept = {
            let mut g = self.lock();
            if g.number != number || g.leaving {
                return Step::Hangup;
            }
            let replay = req.replay.is_some();
            match g.slot(asked.slot).arrive_or_replay(asked.xid, arrived, replay) {
                Arrival::Execute(r) => {
                    let begun = Begun::of(&r, g.heard);
                    g.begun[usize::from(asked.slot)] = Some(begun);
                    g.running += 1;
                    assert!(g.running <= g.slots.len(), "one request at a time runs in a slot");
                    self.look_at_slots(&mut g);
                    return Step::Execute(r);
                }
                Arrival::Answered(k) => k,
                // A later request of the slot is durable, so this one is.
                Arrival::Stale if replay => Kept::of(Outgoing::ok(&(), 0), Timestamp::ZERO),
                Arrival::Waits | Arrival::InProgress | Arrival::Stale => return Step::Nothing,
            }
        };
        self.reply(asked, &kept, stamp);
        Step::Nothing
    }

    /// A request ended: remembers and sends its reply; returns the one that waited behind it.
    pub fn finish(&self, asked: Asked, kept: Kept, stamp: Stamp) -> Option<Box<Arrived>> {
        let next = {
            let mut g = self.lock();
            let slot = usize::from(asked.slot);
            if g.leaving {
                g.slots[slot].give_up_waiting();
            }
            let keep = kept.worth_keeping().then(|| kept.clone());
            let next = g.slots[slot].finish(asked.xid, keep);
            // One that waited in its slot: when the session was heard last is near enough.
            g.begun[slot] = next.as_ref().map(|n| Begun::of(n, g.heard));
            if next.is_none() {
                assert!(g.running > 0, "a request that ends was running");
                g.running -= 1;
                if g.running == 0 {
                    self.quiet.notify_waiters();
                }
            }
            next
        };
        self.reply(asked, &kept, stamp);
        next
    }

    /// Sends a reply on the newest connection; nowhere if there is none (the client will ask again).
    pub fn reply(&self, asked: Asked, kept: &Kept, stamp: Stamp) {
        let (link, number, granted) = {
            let g = self.lock();
            let Some(link) = g.link.clone() else { return };
            (link, g.number, self.granted(&g))
        };
        link.post(frame((number, granted), asked, kept, stamp));
    }

    /// Answers a ping, which has no slot; `work`: with what is under way.
    pub fn pong(&self, xid: u64, op: u16, stamp: Stamp, work: bool) {
        let mut kept = Kept::of(Outgoing { body: Vec::new(), ..Outgoing::ok(&(), 0) }, Timestamp::ZERO);
        if work {
            kept.extra.push(self.under_way().encode());
        }
        self.reply(Asked { slot: SLOT_NONE, xid, op }, &kept, stamp);
    }

    fn under_way(&self) -> UnderWay {
        let g = self.lock();
        let slots = (0..).zip(&g.slots);
        UnderWay::new(slots.filter_map(|(i, s)| Some((i, s.under_way()?))).collect())
    }

    /// What runs in it.
    pub fn at_work(&self, now: Instant) -> Vec<AtWork> {
        let g = self.lock();
        let begun: Vec<&Begun> = g.begun.iter().flatten().collect();
        assert!(begun.len() <= usize::from(model::limits::SLOTS_PER_SESSION), "one runs in a slot");
        let one = |b: &Begun| AtWork {
            age: now.since(b.at),
            op: b.op,
            jobid: b.jobid.clone(),
            name: g.name.clone(),
            address: g.from.address,
        };
        begun.into_iter().map(one).collect()
    }

    pub fn notify(&self, n: &Notify) {
        let (link, number) = {
            let g = self.lock();
            match &g.link {
                Some(l) if !g.leaving => (l.clone(), g.number),
                _ => return,
            }
        };
        let mut h = Header::new(FrameKind::Notify);
        (h.target, h.epoch, h.session) = (self.target, self.epoch, number);
        let body = postcard::to_stdvec(n).expect("plain data encodes");
        link.post(Frame::new(h, body, Bytes::new()));
    }

    /// Connection `number` ended. The client has until its eviction to come back.
    pub fn lost(&self, number: u64) {
        let mut g = self.lock();
        if g.number == number {
            g.link = None;
        }
    }

    /// Waits until no request of this session runs.
    pub async fn idle(&self) {
        loop {
            let mut quiet = Box::pin(self.quiet.notified());
            quiet.as_mut().enable();
            if self.lock().running == 0 {
                return;
            }
            quiet.await;
        }
    }

    /// Whether no request runs, and none will.
    pub fn is_over(&self) -> bool {
        let g = self.lock();
        g.leaving && g.running == 0
    }

    /// No request is executed from now on. False if that was so already.
    pub fn leave(&self) -> bool {
        let was = std::mem::replace(&mut self.lock().leaving, true);
        self.left.notify_waiters();
        !was
    }

    /// Told when the session ends.
    pub fn left(&self) -> &sync::Notify {
        &self.left
    }

    pub fn is_leaving(&self) -> bool {
        self.lock().leaving
    }

    pub fn close_link(&self) {
        let link = self.lock().link.take();
        if let Some(l) = link {
            l.close();
        }
    }

    /// The target goes away under the session.
    pub fn abandon(&self) {
        self.leave();
        self.close_link();
    }

    /// When the client last gave a sign of life; `None` if the session is ending anyway.
    pub fn last_heard(&self) -> Option<Instant> {
        let g = self.lock();
        (!g.leaving).then_some(g.heard)
    }

    /// Another target evicted this client.
    pub fn doubt(&self, now: Instant) {
        self.lock().doubted = Some(now);
    }

    /// Whether nothing was heard of the client since another target was said to have evicted it.
    pub fn is_doubted(&self) -> bool {
        let g = self.lock();
        g.doubted.is_some_and(|at| at >= g.heard)
    }

    pub fn condemn(&self, why: Why) {
        self.lock().condemned.get_or_insert(why);
    }

    /// The longest time without requests after which it was told to ping, in milliseconds.
    pub fn ping_ms(&self) -> u32 {
        self.lock().ping_ms
    }

    /// Why it is to be evicted, if it is.
    pub fn condemned(&self) -> Option<Why> {
        self.lock().condemned
    }

    /// As far as its connection has shown.
    pub fn role(&self) -> Role {
        self.lock().role
    }

    pub fn describe(&self) -> Peer {
        let g = self.lock();
        Peer { who: g.from.clone(), name: g.name.clone(), connected: g.link.is_some() }
    }
}

/// The reply on connection `number`, which may use `granted` slots.
fn frame((number, granted): (u64, u16), asked: Asked, kept: &Kept, stamp: Stamp) -> Frame {
    assert_ne!(kept.status, STATUS_UNFINISHED, "a request that goes on has no answer yet");
    assert!(stamp.epoch > 0 && number > 0, "an answer is of a target's life, and of a connection");
    let extra = kept.extra.clone();
    let mut context = ReplyContext { last_committed: stamp.last_committed, credits: granted, extra };
    if kept.transno > stamp.last_committed {
        context.extra.push((EXTRA_WALL, encode_wall(kept.wall)));
    }
    let mut body = postcard::to_stdvec(&context).expect("plain data encodes");
    let mut h = Header::new(FrameKind::Reply);
    (h.target, h.epoch, h.session) = (stamp.target, stamp.epoch, number);
    (h.opcode, h.slot, h.xid) = (asked.op, asked.slot, asked.xid);
    (h.status, h.transno) = (kept.status, kept.transno);
    let bulk = kept.bulk.clone();
    let over = body.len() + kept.body.len() > model::limits::RPC_BODY_MAX_BYTES
        || bulk.len() > model::limits::RPC_BULK_MAX_BYTES;
    if over {
        let (body, bulk) = (kept.body.len(), bulk.len());
        tracing::error!(op = asked.op, body, bulk, "reply is over the limits: EMSGSIZE");
        h.status = Errno::EMSGSIZE.0 as u16;
    } else {
        body.extend_from_slice(&kept.body);
    }
    Frame::new(h, body, if over { Bulk::default() } else { bulk })
}

/// What a hello brought.
pub(crate) struct Hello {
    pub name: String,
    pub from: Principal,
    pub number: u64,
    /// Slots.
    pub asked: u16,
    pub new_client: bool,
    /// The last session number of this epoch that the client received; 0 for none.
    pub last_session: u64,
    /// After how long without requests it is told to ping.
    pub ping_ms: u32,
    /// Of the client's token.
    pub digest: Option<[u8; 32]>,
    /// What the client is to make its proofs over; `None`: it cannot.
    pub nonce: Option<[u8; 32]>,
}

/// So that `Arc<Session>` identity can be compared in the table.
pub(crate) fn same(a: &Arc<Session>, b: &Arc<Session>) -> bool {
    Arc::ptr_eq(a, b)
}
