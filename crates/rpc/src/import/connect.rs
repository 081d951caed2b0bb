//! Finding the server: rounds over its addresses, back-off, the hello and what the server makes of it.

use super::dial::Dial;
use super::told::Told;
use super::{Core, ImportState, session};
use crate::link::Link;
use crate::look_up::look_up;
use bytes::Bytes;
use model::debug::NET;
use model::{Errno, Nid};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use wire::frame::VERSION;
use wire::msg::connect::{
    Connect, ConnectFeatures, ConnectRefused, ConnectReply, EXTRA_KEEPS_NOTHING, EXTRA_LAST_SESSION,
    EXTRA_TOKEN, FEATURES_INCOMPAT,
};
use wire::proof;
use wire::{Frame, FrameKind, Header, ReplyContext, RequestContext, decode_body, encode_body};
use world::{Conn, Either, select};

const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
const HELLO_TIMEOUT: Duration = Duration::from_secs(15);
/// With several addresses one that answers and does not welcome anybody (its disk hangs) must not keep this
/// client from the one that serves until its recovery is over. Servers know a client again that asks a second
/// time, and are quicker then.
const HELLO_TIMEOUT_SEVERAL: Duration = Duration::from_secs(3);
/// A session that lived so long was worth having: the next attempt starts with the shortest back-off.
const GOOD_SESSION: Duration = Duration::from_secs(1);

/// Why an attempt failed, and whether the server itself said no.
struct Failure {
    errno: Errno,
    text: String,
    refused: bool,
}

impl Failure {
    fn of(what: &str, e: &std::io::Error) -> Failure {
        Failure {
            errno: Errno::from(std::io::Error::from(e.kind())),
            text: format!("{what}: {e}"),
            refused: false,
        }
    }

    fn refusal(errno: Errno, text: String) -> Failure {
        Failure { errno, text, refused: true }
    }
}

/// The session's task: connects, serves the connection until it breaks, and again, until closed.
pub(super) async fn drive(core: Arc<Core>) {
    let mut backoff = BACKOFF_MIN;
    let told = Told::new(&core.world, core.label());
    loop {
        if core.lock().closed {
            return;
        }
        if is_nowhere(&core) {
            told.over(core.kick.notified()).await;
            continue;
        }
        core.set_state(ImportState::Connecting);
        let step = select(seek(&core, &told), core.kick.notified());
        let outcome = match told.over(step).await {
            Either::Left(o) => o,
            Either::Right(()) => continue,
        };
        match outcome {
            Some((nid, link, context, reply)) => {
                tracing::debug!(target: NET, "{}: connected to {nid}", core.label());
                told.restored(nid);
                let start = core.world.now();
                let why = session::run(&core, link, context, reply, nid).await;
                tracing::debug!(target: NET, "{}: the connection to {nid} ended", core.label());
                if core.lock().closed {
                    return;
                }
                core.set_state(ImportState::Disconn);
                told.lost(nid, why);
                if core.world.now().since(start) >= GOOD_SESSION {
                    backoff = BACKOFF_MIN;
                }
            }
            None => core.set_state(ImportState::Disconn),
        }
        core.tell_stuck();
        told.over(pause(&core, backoff)).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Nobody said yet where the target is.
fn is_nowhere(core: &Core) -> bool {
    let g = core.lock();
    g.nids.is_empty() && g.hosts.is_empty()
}

impl Core {
    /// Addresses of the target that this node may ask, in its order. That there are none is said.
    pub(super) fn reachable(&self, nids: Vec<Nid>) -> Vec<Nid> {
        let all: Vec<String> = nids.iter().map(ToString::to_string).collect();
        let nids = self.cfg.networks.order(nids);
        if nids.is_empty() && !all.is_empty() {
            tracing::error!(
                "{} has no address on {} (it has {}): operations wait for one, see nacred --nid and mount -o network=",
                self.label(),
                self.cfg.networks.names(),
                all.join(", ")
            );
        }
        nids
    }
}

/// All addresses, the one that served last first.
async fn addresses(core: &Core, told: &Told) -> Vec<Nid> {
    let hosts = core.lock().hosts.clone();
    if !hosts.is_empty() {
        let found = look_up(&core.world, &hosts).await;
        for (host, why) in &found.unknown {
            let label = core.label();
            let text = format!("cannot look for {label} at {host}: {why}");
            told.failed(host.to_string(), text);
        }
        let mut g = core.lock();
        // Who moved the target meanwhile knows better.
        if g.hosts == hosts {
            g.unknown = found.unknown.iter().map(|(host, why)| format!("{host}: {why}")).collect();
            let last = g.nids.get(g.nid_at).copied();
            let nids = core.cfg.networks.order(found.nids);
            g.nid_at = nids.iter().position(|n| Some(*n) == last).unwrap_or(0);
            g.nids = nids;
        }
    }
    let g = core.lock();
    let mut nids = g.nids.clone();
    nids.rotate_left(g.nid_at % g.nids.len().max(1));
    nids
}

/// One round, from the names to the session.
async fn seek(core: &Arc<Core>, told: &Told) -> Option<(Nid, Link, ReplyContext, ConnectReply)> {
    let nids = addresses(core, told).await;
    round(core, nids, told).await
}

/// Asks every address for a connection, and then, one at a time, whether the target is there: two hellos at
/// once to a server with two addresses would end each other's session.
async fn round(
    core: &Arc<Core>,
    nids: Vec<Nid>,
    told: &Told,
) -> Option<(Nid, Link, ReplyContext, ConnectReply)> {
    let patience = if nids.len() > 1 { HELLO_TIMEOUT_SEVERAL } else { HELLO_TIMEOUT };
    let mut dial = Dial::new(core, nids);
    while let Some((nid, conn)) = dial.next().await {
        let outcome = match conn {
            Ok(conn) => attempt(core, conn, patience).await,
            Err(e) => Err(Failure::of(&SocketAddr::new(nid.addr, core.cfg.port).to_string(), &e)),
        };
        match outcome {
            Ok((link, context, reply)) => {
                let mut g = core.lock();
                g.nid_at = g.nids.iter().position(|n| *n == nid).unwrap_or(0);
                drop(g);
                return Some((nid, link, context, reply));
            }
            Err(f) => note_failure(core, nid, &f, told),
        }
    }
    None
}

async fn pause(core: &Core, d: Duration) {
    let _ = select(core.world.sleep(core.at_most(d)), core.kick.notified()).await;
}

/// Has a failure told, remembers a refusal, and fails the calls if no waiting will cure it.
fn note_failure(core: &Core, nid: Nid, f: &Failure, told: &Told) {
    let label = core.label();
    let text = format!("cannot connect to {label} (at {nid}): {}", f.text);
    told.failed(nid.to_string(), text);
    let fatal = {
        let mut g = core.lock();
        if f.refused {
            g.refused = Some((f.errno, f.text.clone()));
            g.refusals += 1;
        } else {
            g.refusals = 0;
        }
        g.fatal_refusal()
    };
    if let Some(e) = fatal {
        core.fail_queue(e);
        core.announce();
    }
}

/// What the server says on a new connection.
async fn attempt(
    core: &Arc<Core>,
    conn: Arc<dyn Conn>,
    patience: Duration,
) -> Result<(Link, ReplyContext, ConnectReply), Failure> {
    let w = &core.world;
    let said = match w.timeout(patience, hello(core, &conn)).await {
        Some(r) => r,
        None => Err(Failure { errno: Errno::ETIMEDOUT, text: "no answer to connect".into(), refused: false }),
    };
    match said {
        Ok((context, reply)) => Ok((Link::new(w.clone(), conn), context, reply)),
        Err(f) => {
            conn.close();
            Err(f)
        }
    }
}

async fn hello(core: &Core, conn: &Arc<dyn Conn>) -> Result<(ReplyContext, ConnectReply), Failure> {
    let (last_epoch, last_session, slots) = {
        let g = core.lock();
        let slots = g.slots.len() as u16;
        // Another target knows nothing of what was seen of the one before it.
        if g.replaced { (0, 0, slots) } else { (g.last_epoch, g.session, slots) }
    };
    let token = proof::token(&core.secret, &core.cfg.fsname, core.target_number());
    let mut extra =
        vec![(EXTRA_LAST_SESSION, last_session.to_le_bytes().to_vec()), (EXTRA_TOKEN, token.to_vec())];
    if !core.cfg.hooks.keeps_state() {
        extra.push((EXTRA_KEEPS_NOTHING, 1u64.to_le_bytes().to_vec()));
    }
    let msg = Connect {
        client_uuid: core.cfg.client_uuid,
        client_name: core.cfg.client_name.clone(),
        fsname: core.cfg.fsname.clone(),
        version: VERSION,
        features: ConnectFeatures::OURS,
        last_epoch,
        slots,
        lane: 0,
        extra,
    };
    let mut h = Header::new(FrameKind::Connect);
    (h.target, h.epoch) = (core.target_number(), last_epoch);
    let frame = Frame::new(h, encode_body(&RequestContext::default(), &msg), Bytes::new());
    conn.send(frame).await.map_err(|e| Failure::of("connect", &e))?;
    let f = conn.recv().await.map_err(|e| Failure::of("connect", &e))?;
    if f.header.kind != FrameKind::ConnectReply {
        return Err(Failure::refusal(
            Errno::EPROTO,
            "the server's first frame is no answer to connect".into(),
        ));
    }
    if f.header.status != 0 {
        let text = refusal_text(&f);
        return Err(Failure::refusal(Errno(i32::from(f.header.status)), text));
    }
    let (context, reply): (ReplyContext, ConnectReply) = decode_body(&f.body)
        .map_err(|e| Failure::refusal(Errno::EPROTO, format!("answer to connect does not decode: {e}")))?;
    check_reply(last_epoch, &reply)?;
    Ok((context, reply))
}

pub(super) fn refusal_text(f: &Frame) -> String {
    let errno = Errno(i32::from(f.header.status));
    match decode_body::<ReplyContext, ConnectRefused>(&f.body) {
        Ok((_, r)) => format!("{} [{}]", r.message, errno.name()),
        Err(_) => errno.to_string(),
    }
}

/// What this side must know of the server before it trusts it.
fn check_reply(last_epoch: u32, r: &ConnectReply) -> Result<(), Failure> {
    let unknown = r.features.incompat & !FEATURES_INCOMPAT;
    if unknown != 0 {
        return Err(Failure::refusal(
            Errno::EPROTONOSUPPORT,
            format!(
                "server '{}' needs features {unknown:#x} that this client (version {}) does not know: upgrade the client",
                r.server_name,
                env!("CARGO_PKG_VERSION")
            ),
        ));
    }
    if let Some(lacks) = r.features.lacking() {
        return Err(Failure::refusal(
            Errno::EPROTONOSUPPORT,
            format!(
                "server '{}' is too old for this client (version {}): it does not know {lacks}: upgrade the server",
                r.server_name,
                env!("CARGO_PKG_VERSION")
            ),
        ));
    }
    if r.epoch < last_epoch || r.epoch == 0 || r.session == 0 {
        return Err(Failure::refusal(
            Errno::ESTALE,
            format!(
                "server '{}' has epoch {}, this client has seen {last_epoch}: another server took the target over",
                r.server_name, r.epoch
            ),
        ));
    }
    Ok(())
}
