//! Finding the server: addresses in turn, back-off, the hello and what the server makes of it.

use super::{Core, ImportState, session};
use crate::link::Link;
use bytes::Bytes;
use model::{Errno, Nid};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use wire::frame::VERSION;
use wire::msg::connect::{
    Connect, ConnectFeatures, ConnectRefused, ConnectReply, EXTRA_KEEPS_NOTHING, EXTRA_LAST_SESSION,
    FEATURES_COMPAT, FEATURES_INCOMPAT,
};
use wire::{Frame, FrameKind, Header, ReplyContext, RequestContext, decode_body, encode_body};
use world::{Conn, Either, select};

const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
const TCP_TIMEOUT: Duration = Duration::from_secs(5);
const HELLO_TIMEOUT: Duration = Duration::from_secs(15);
/// With several addresses one that takes connections and says nothing (its host sleeps) must not keep this client from the
/// one that serves until its recovery is over: so long in the first round, twice as long in each further one.
const HELLO_TIMEOUT_MIN: Duration = Duration::from_secs(3);
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
    let mut said = String::new();
    let mut patience = HELLO_TIMEOUT_MIN;
    loop {
        let Some((nid, last_of_round)) = next_nid(&core) else {
            if core.lock().closed {
                return;
            }
            core.kick.notified().await;
            continue;
        };
        core.set_state(ImportState::Connecting);
        let outcome = match select(attempt(&core, nid, patience), core.kick.notified()).await {
            Either::Left(o) => o,
            Either::Right(()) => continue,
        };
        match outcome {
            Ok((link, context, reply)) => {
                if !said.is_empty() {
                    tracing::info!("connection restored to {} (at {nid})", core.label());
                    said.clear();
                }
                patience = HELLO_TIMEOUT_MIN;
                let start = core.world.now();
                let why = session::run(&core, link, context, reply, nid).await;
                if core.lock().closed {
                    return;
                }
                core.set_state(ImportState::Disconn);
                said = format!(
                    "connection to {} (at {nid}) was lost ({why}); operations wait for it",
                    core.label()
                );
                tracing::warn!("{said}");
                if core.world.now().since(start) >= GOOD_SESSION {
                    backoff = BACKOFF_MIN;
                }
                pause(&core, backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
            Err(f) => {
                note_failure(&core, nid, &f, &mut said);
                core.set_state(ImportState::Disconn);
                core.lock().nid_at += 1;
                if last_of_round {
                    patience = (patience * 2).min(HELLO_TIMEOUT);
                    pause(&core, backoff).await;
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
    }
}

/// The address to try now and whether it ends a round over all; `None` if closed or none is known.
fn next_nid(core: &Core) -> Option<(Nid, bool)> {
    let g = core.lock();
    if g.closed || g.nids.is_empty() {
        return None;
    }
    let i = g.nid_at % g.nids.len();
    Some((g.nids[i], i + 1 == g.nids.len()))
}

/// Half the time for certain, half by chance, so that clients do not come back in step.
async fn pause(core: &Core, d: Duration) {
    let half = d / 2;
    let jitter = Duration::from_nanos(core.world.random_u64() % (half.as_nanos() as u64 + 1));
    let _ = select(core.world.sleep(half + jitter), core.kick.notified()).await;
}

/// Logs a failure once, remembers a refusal, and fails the calls if no waiting will cure it.
fn note_failure(core: &Core, nid: Nid, f: &Failure, said: &mut String) {
    let text = format!("cannot connect to {} (at {nid}): {}", core.label(), f.text);
    if *said != text {
        tracing::warn!("{text}");
        *said = text;
    }
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

/// One attempt with one address: a connection whose server said yes.
async fn attempt(
    core: &Arc<Core>,
    nid: Nid,
    patience: Duration,
) -> Result<(Link, ReplyContext, ConnectReply), Failure> {
    let w = &core.world;
    let to = SocketAddr::new(nid.addr, core.cfg.port);
    let conn = match w.timeout(TCP_TIMEOUT, w.net.connect(core.cfg.bind, to)).await {
        None => {
            return Err(Failure {
                errno: Errno::ETIMEDOUT,
                text: format!("{to} does not answer"),
                refused: false,
            });
        }
        Some(r) => r.map_err(|e| Failure::of(&to.to_string(), &e))?,
    };
    let patience = if core.lock().nids.len() > 1 { patience } else { HELLO_TIMEOUT };
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
        (g.last_epoch, g.session, g.slots.len() as u16)
    };
    let mut extra = vec![(EXTRA_LAST_SESSION, last_session.to_le_bytes().to_vec())];
    if !core.cfg.hooks.keeps_state() {
        extra.push((EXTRA_KEEPS_NOTHING, 1u64.to_le_bytes().to_vec()));
    }
    let msg = Connect {
        client_uuid: core.cfg.client_uuid,
        client_name: core.cfg.client_name.clone(),
        fsname: core.cfg.fsname.clone(),
        version: VERSION,
        features: ConnectFeatures { compat: FEATURES_COMPAT, incompat: FEATURES_INCOMPAT },
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
