//! Browsers' connections, on sockets of `world`: hyper reads and writes them, axum answers.
//!
//! One request a connection. How many there are at a time, the bytes of a request and the time from a
//! connection to the end of its answer are bounded.

use axum::Router;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tower::ServiceExt;
use world::sync::Semaphore;
use world::{BoxFuture, Stream, StreamListener, World};

/// Callers that are served at a time; others wait in the host's queue.
const CALLERS_MAX: usize = 32;
/// Of a request's line and headers; of a body: [`crate::app::BODY_MAX_BYTES`].
const HEAD_MAX_BYTES: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// From a connection to the end of its answer: whoever is slower is cut off. Questions to dead targets are
/// answered earlier.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that are taken from a socket at a time.
const CHUNK_BYTES: usize = 16 << 10;

/// A stream of `world` as hyper reads and writes it.
struct Io {
    stream: Arc<dyn Stream>,
    reading: Option<BoxFuture<io::Result<Bytes>>>,
    came: Bytes,
    writing: Option<BoxFuture<io::Result<()>>>,
}

impl Io {
    fn new(stream: Arc<dyn Stream>) -> Io {
        Io { stream, reading: None, came: Bytes::new(), writing: None }
    }

    /// What is under way is written, or it failed.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(writing) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let done = ready!(writing.as_mut().poll(cx));
        self.writing = None;
        Poll::Ready(done)
    }
}

impl Read for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if me.came.is_empty() {
            let stream = &me.stream;
            let reading = me.reading.get_or_insert_with(|| stream.recv(CHUNK_BYTES));
            let came = ready!(reading.as_mut().poll(cx));
            me.reading = None;
            me.came = came?;
        }
        let n = me.came.len().min(buf.remaining());
        buf.put_slice(&me.came.split_to(n));
        Poll::Ready(Ok(()))
    }
}

impl Write for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        ready!(me.poll_written(cx))?;
        assert!(me.writing.is_none(), "one write is under way at a time");
        me.writing = Some(me.stream.send(Bytes::copy_from_slice(buf)));
        // It is begun now, and looked after with the next call.
        if let Poll::Ready(Err(e)) = me.poll_written(cx) {
            return Poll::Ready(Err(e));
        }
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_written(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // It is closed when it is dropped.
        self.get_mut().poll_written(cx)
    }
}

/// One request and its answer.
async fn one(stream: Arc<dyn Stream>, app: Router) -> Result<(), hyper::Error> {
    let service = service_fn(move |r: hyper::Request<Incoming>| app.clone().oneshot(r));
    let mut http = http1::Builder::new();
    http.keep_alive(false).max_buf_size(HEAD_MAX_BYTES).max_headers(HEADERS_MAX).header_read_timeout(None);
    http.serve_connection(Io::new(stream), service).await
}

/// Serves until the runtime ends. Returns only if no callers can be taken any more.
pub async fn serve(world: World, listener: Arc<dyn StreamListener>, app: Router) -> io::Result<()> {
    let callers = Arc::new(Semaphore::new(CALLERS_MAX));
    loop {
        let Ok(place) = callers.clone().acquire_owned().await else { return Ok(()) };
        assert!(callers.available_permits() < CALLERS_MAX, "who is served has a place");
        let stream = listener.accept().await?;
        let (w, app) = (world.clone(), app.clone());
        world.spawn("dashboard", async move {
            match w.timeout(PATIENCE, one(stream, app)).await {
                Some(Ok(())) => {}
                Some(Err(e)) => tracing::debug!("dashboard: {e}"),
                None => tracing::debug!("dashboard: a caller took longer than {PATIENCE:?}"),
            }
            drop(place);
        });
    }
}
