//! The address at which a daemon or a mount tells its metrics and whether it is healthy, over HTTP.
//!
//! Everything a caller can cost is bounded: connections, bytes of a request, and the time that one takes from
//! its first byte to the last of its answer.

mod http;

use bytes::Bytes;
use http::{Answer, Ask, Subject};
use model::metrics::{Format, Page};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use world::sync::Semaphore;
use world::{Stream, StreamListener, World};

/// Callers that are served at a time; others wait in the host's queue.
const CALLERS_MAX: usize = 8;
/// From a connection to the end of its answer: whoever is slower is cut off.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to listen.
const LISTEN_AGAIN: Duration = Duration::from_secs(10);

/// What tells its metrics.
pub trait Told: Send + Sync + 'static {
    /// May take locks and look at disks.
    fn page(&self) -> Page;
    /// What is wrong; nothing: it is healthy.
    fn trouble(&self) -> Option<String>;
}

/// A mount.
pub struct OfMount(pub Arc<fuse::Session>);

impl Told for OfMount {
    fn page(&self) -> Page {
        self.0.metrics(admin::VERSION)
    }

    fn trouble(&self) -> Option<String> {
        let all = self.0.unhealthy();
        (!all.is_empty()).then(|| all.join("\n"))
    }
}

/// Tells them at this address from now on. An address that cannot be had is tried again and again: nobody's
/// files wait for their statistics.
pub fn start(world: &World, at: SocketAddr, of: Arc<dyn Told>) {
    let w = world.clone();
    world.spawn("metrics", async move {
        let mut told = false;
        let listener = loop {
            match w.net.listen_streams(at).await {
                Ok(l) => break l,
                Err(e) if !told => {
                    told = true;
                    let hint = match e.kind() {
                        io::ErrorKind::AddrInUse => {
                            ": somebody else listens there; give each daemon and mount an address of its own"
                        }
                        io::ErrorKind::AddrNotAvailable => ": this host has no such address",
                        _ => "",
                    };
                    tracing::warn!("no metrics at {at}: {e}{hint}; tried again every {LISTEN_AGAIN:?}");
                }
                Err(_) => {}
            }
            w.sleep(LISTEN_AGAIN).await;
        };
        tracing::info!("metrics at http://{at}/metrics");
        serve(w, listener, of).await;
    });
}

async fn serve(world: World, listener: Arc<dyn StreamListener>, of: Arc<dyn Told>) {
    let callers = Arc::new(Semaphore::new(CALLERS_MAX));
    loop {
        let Ok(place) = callers.clone().acquire_owned().await else { return };
        assert!(callers.available_permits() < CALLERS_MAX, "who is served has a place");
        let caller = match listener.accept().await {
            Ok(c) => c,
            Err(e) => {
                tracing::warn!("metrics at {}: cannot take callers any more: {e}", listener.local_addr());
                return;
            }
        };
        let (w, of) = (world.clone(), of.clone());
        world.spawn("metrics", async move {
            match w.timeout(PATIENCE, one(&w, &*caller, of)).await {
                Some(Ok(())) => {}
                Some(Err(e)) => tracing::debug!("metrics: {e}"),
                None => tracing::debug!("metrics: a caller took longer than {PATIENCE:?}"),
            }
            drop(place);
        });
    }
}

/// One request and its answer; the connection ends with it.
async fn one(world: &World, caller: &dyn Stream, of: Arc<dyn Told>) -> io::Result<()> {
    let mut raw = Vec::new();
    let ask = loop {
        assert!(raw.len() <= http::REQUEST_MAX_BYTES, "more is an answer by itself");
        let more = caller.recv(http::REQUEST_MAX_BYTES + 1 - raw.len()).await?;
        if more.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        raw.extend_from_slice(&more);
        if let Some(ask) = http::parse(&raw) {
            break ask;
        }
    };
    let answer = match ask {
        Ok(ask) => {
            let body = ask.with_body;
            let answer = world.blocking(move || answer(&ask, &*of)).await;
            answer.bytes(body)
        }
        Err(refused) => refused.bytes(true),
    };
    caller.send(Bytes::from(answer)).await
}

fn answer(ask: &Ask, of: &dyn Told) -> Answer {
    match ask.path {
        Subject::Metrics => {
            let format = if ask.open_metrics { Format::OpenMetrics } else { Format::Text };
            Answer::ok(format.content_type(), of.page().text(format))
        }
        Subject::Health => match of.trouble() {
            None => Answer::ok(http::PLAIN, "healthy\n".into()),
            Some(why) => {
                Answer::refused(503, "Service Unavailable", format!("NOT HEALTHY\n{}\n", why.trim_end()))
            }
        },
        Subject::Root => Answer::ok(http::PLAIN, "Nacre: see /metrics and /health\n".into()),
    }
}

#[cfg(test)]
mod tests;
