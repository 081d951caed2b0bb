//! One connection's life: replies, notifies, pings, until it breaks.

use super::connect::refusal_text;
use super::{Core, ImportState, doubt};
use crate::link::Link;
use bytes::Bytes;
use model::Nid;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::frame::FLAG_UNDER_WAY;
use wire::msg::connect::{
    ConnectReply, EXTRA_BULK_BYTES, EXTRA_DISK, EXTRA_LAST_XID, EXTRA_NONCE, EXTRA_WRITE_RANGES, SLOT_NONE,
    extra_key, extra_number,
};
use wire::msg::notify::Notify;
use wire::msg::ping::Ping;
use wire::under_way::UnderWay;
use wire::{Frame, FrameKind, Header, Message, ReplyContext, RequestContext, encode_body};
use world::{BoxFuture, Either, Instant, select};

/// After so long without traffic a client that keeps requests asks whether they are durable by now.
const ASK_COMMITTED: Duration = Duration::from_millis(200);
/// How often a client whose leases are over looks whether it can ask the target for a sign of life.
const LOOK_LAPSED: Duration = Duration::from_millis(100);
/// Clients ping at most so often, whatever the server asks for.
const PING_INTERVAL_MIN: Duration = Duration::from_millis(20);
const PING_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Serves a connection that the server accepted; returns why it ended.
pub(super) async fn run(
    core: &Arc<Core>,
    link: Link,
    context: ReplyContext,
    reply: ConnectReply,
    nid: Nid,
) -> String {
    let evicted = core.adopt_session(&reply, context.last_committed);
    core.cfg.hooks.bulk_limit(extra_number(&reply.extra, EXTRA_BULK_BYTES));
    core.cfg.hooks.write_ranges(extra_number(&reply.extra, EXTRA_WRITE_RANGES));
    core.disk.store(extra_number(&reply.extra, EXTRA_DISK), Ordering::Relaxed);
    core.peer_compat.store(reply.features.compat, Ordering::Relaxed);
    let now = core.world.now();
    {
        let mut g = core.lock();
        if g.closed {
            link.close();
            return "closed".into();
        }
        (g.session, g.epoch, g.last_epoch) = (reply.session, reply.epoch, reply.epoch);
        g.replaced = false;
        g.server_name.clone_from(&reply.server_name);
        g.usable = reply.slots.clamp(2, g.slots.len() as u16);
        g.next_xid = g.next_xid.max(extra_number(&reply.extra, EXTRA_LAST_XID));
        g.nonce = extra_key(&reply.extra, EXTRA_NONCE);
        (g.heard, g.sent) = (now, now);
        g.refusals = 0;
        g.link = Some(link.clone());
    }
    // Before anything else: what follows may need it.
    core.prove(&link);
    if evicted {
        core.set_state(ImportState::Evicted);
        model::event!(
            WARN,
            WasEvicted,
            core.label(),
            "this client was evicted by {} (at {nid}); in progress operations using this service fail",
            core.label()
        );
    }
    let interval =
        Duration::from_millis(u64::from(reply.ping_interval_ms)).clamp(PING_INTERVAL_MIN, PING_INTERVAL_MAX);
    core.interval.store(u64::from(reply.ping_interval_ms) * 1_000_000, Ordering::Relaxed);
    let reader =
        Reader { core, link: link.clone(), nid, interval, ping: None, pinged: now, nonce: 0, peace: now };
    let recovery = async {
        core.recover().await;
        std::future::pending::<()>().await;
    };
    let why = match select(reader.run(), recovery).await {
        Either::Left(why) => why,
        Either::Right(()) => unreachable!("recovery goes on until the connection ends"),
    };
    link.close();
    {
        let mut g = core.lock();
        (g.link, g.replaying, g.commit_asked) = (None, None, false);
    }
    why
}

struct Reader<'a> {
    core: &'a Arc<Core>,
    link: Link,
    /// Where the server is heard.
    nid: Nid,
    interval: Duration,
    /// When the ping went out that is not answered.
    ping: Option<Instant>,
    /// When the last ping went out, answered or not.
    pinged: Instant,
    nonce: u64,
    /// No other address is asked before.
    peace: Instant,
}

/// What a doubt comes to, if there is one.
async fn resolved(doubt: &mut Option<BoxFuture<Option<Nid>>>) -> Option<Nid> {
    match doubt {
        Some(d) => d.await,
        None => std::future::pending().await,
    }
}

impl Reader<'_> {
    async fn run(mut self) -> String {
        let conn = self.link.conn().clone();
        let mut frame = conn.recv();
        let mut tick = self.core.world.sleep(self.step());
        let mut kick = Box::pin(self.core.kick.notified());
        let mut doubt = None;
        loop {
            match select(&mut frame, select(&mut tick, select(&mut kick, resolved(&mut doubt)))).await {
                Either::Left(Ok(f)) => {
                    frame = conn.recv();
                    doubt = None;
                    if let Err(why) = self.on_frame(f) {
                        return why;
                    }
                }
                Either::Left(Err(e)) => return e.to_string(),
                Either::Right(Either::Left(())) => {
                    tick = self.core.world.sleep(self.step());
                    if let Err(why) = self.on_tick() {
                        return why;
                    }
                    if doubt.is_none() && self.is_in_doubt() {
                        doubt = Some(self.doubt());
                    }
                }
                Either::Right(Either::Right(Either::Right(found))) => {
                    doubt = None;
                    self.peace = self.core.world.now().plus(doubt::PEACE);
                    if let Some(other) = found {
                        return self.passed_over(other);
                    }
                }
                Either::Right(Either::Right(Either::Left(()))) => {
                    if self.core.lock().closed {
                        return "closed".into();
                    }
                    kick = Box::pin(self.core.kick.notified());
                }
            }
        }
    }

    /// How long until the next look at the state of things.
    fn step(&self) -> Duration {
        let step = self.interval / 4;
        let (kept, busy, other_way) = {
            let g = self.core.lock();
            (g.kept.len() > 0, g.in_flight() > 0, doubt::has_other_way(&g.nids, self.nid))
        };
        let step = if kept { step.min(ASK_COMMITTED) } else { step };
        let step = match (other_way, busy || self.ping.is_some()) {
            (false, _) => step,
            (true, true) => step.min(doubt::LOOK_BUSY),
            (true, false) => step.min(doubt::LOOK_IDLE),
        };
        if self.core.has_lapsed() { step.min(LOOK_LAPSED) } else { step }
    }

    /// A ping is not answered, and the server may be heard on another network.
    fn is_in_doubt(&self) -> bool {
        let now = self.core.world.now();
        let unanswered = self.ping.is_some_and(|t| now.since(t) >= doubt::UNANSWERED);
        unanswered && now >= self.peace && doubt::has_other_way(&self.core.lock().nids, self.nid)
    }

    /// Which of its addresses answers.
    fn doubt(&self) -> BoxFuture<Option<Nid>> {
        let (core, nids) = (self.core, self.core.lock().nids.clone());
        let way = doubt::Way { world: core.world.clone(), bind: core.cfg.bind, port: core.cfg.port };
        doubt::look(&way, &nids, self.nid)
    }

    /// The next connection is made to `other` first.
    fn passed_over(&self, other: Nid) -> String {
        assert_ne!(other, self.nid, "an address is passed over for another one");
        let mut g = self.core.lock();
        if let Some(at) = g.nids.iter().position(|n| *n == other) {
            g.nid_at = at;
        }
        format!("it does not answer there, and {other} does")
    }

    fn on_frame(&mut self, f: Frame) -> Result<(), String> {
        let now = self.core.world.now();
        let (session, epoch) = {
            let mut g = self.core.lock();
            g.heard = now;
            (g.session, g.epoch)
        };
        self.ping = None;
        let h = &f.header;
        if h.kind == FrameKind::ConnectReply && h.status != 0 {
            return Err(format!("the server says: {}", refusal_text(&f)));
        }
        if h.session != session || h.epoch != epoch {
            return Err(format!(
                "frame of session {} epoch {} in session {session} epoch {epoch}",
                h.session, h.epoch
            ));
        }
        match h.kind {
            FrameKind::Reply if h.slot == SLOT_NONE => {
                let extra = self.core.on_pong(&f);
                if h.xid == self.nonce {
                    self.core.ponged(self.pinged);
                    if let Some(work) = UnderWay::of(&extra) {
                        self.core.heard_of_work(self.pinged, &work)?;
                    }
                }
            }
            FrameKind::Reply => self.core.on_reply(f),
            FrameKind::Notify => match wire::decode_message::<Notify>(&f.body) {
                Ok(n) => self.core.cfg.hooks.notify(n),
                Err(e) => tracing::warn!("notify of {} does not decode: {e}", self.core.label()),
            },
            k => return Err(format!("unexpected frame of kind {k:?}")),
        }
        Ok(())
    }

    /// Pings when the session is idle, when a request is unanswered while the server says nothing, when
    /// leases are over although the session is up (it was made anew after a long silence), and when this
    /// host's clocks may have stood still; gives the connection up when a ping is not answered for two
    /// intervals.
    fn on_tick(&mut self) -> Result<(), String> {
        self.core.tell_stuck();
        let now = self.core.world.now();
        let (heard, sent, busy, kept, up, other_way) = {
            let g = self.core.lock();
            let (up, other_way) = (g.state == ImportState::Full, doubt::has_other_way(&g.nids, self.nid));
            (g.heard, g.sent, g.in_flight() > 0, g.kept.len() > 0, up, other_way)
        };
        if let Some(t) = self.ping {
            let silent = now.since(t);
            if silent >= self.interval * 2 {
                return Err(format!("no answer to a ping for {} ms", silent.as_millis()));
            }
            return Ok(());
        }
        let idle = now.since(sent) >= self.interval;
        let quiet = if other_way { doubt::QUIET.min(self.interval / 2) } else { self.interval / 2 };
        let doubtful = busy && now.since(heard) >= quiet;
        // Nothing more to do: what is kept need not be kept any longer than it takes the server to commit it.
        let done = kept && !busy && now.since(sent) >= ASK_COMMITTED / 2;
        let late = busy && self.core.is_late();
        // Nothing that is kept is believed before the answer.
        let unsure = self.core.is_unsure();
        // Whoever holds what is leased waits, and sends nothing that would be answered.
        let lapsed = up && self.core.has_lapsed();
        if idle || doubtful || done || late || unsure || lapsed {
            self.nonce += 1;
            let body = encode_body(&RequestContext::default(), &Ping { nonce: self.nonce });
            let mut h = Header::new(FrameKind::Request);
            (h.target, h.opcode) = (self.core.target_number(), Ping::OP as u16);
            (h.slot, h.xid) = (SLOT_NONE, self.nonce);
            if late {
                h.flags |= FLAG_UNDER_WAY;
            }
            {
                let g = self.core.lock();
                (h.session, h.epoch) = (g.session, g.epoch);
            }
            (self.ping, self.pinged) = (Some(now), now);
            self.core.touch_sent();
            self.link.post(Frame::new(h, body, Bytes::new()));
        }
        Ok(())
    }
}
