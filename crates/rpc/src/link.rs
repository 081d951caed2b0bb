//! Putting frames on a connection without waiting for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use wire::Frame;
use world::{Conn, World};

/// Frames that may wait for a slow peer: all replies of a session and some notifies. A peer that lets
/// more pile up loses its connection (and repairs the loss when it comes back).
const PENDING_MAX: usize = model::limits::SLOTS_PER_SESSION as usize * 2 + 1024;

/// A connection and the frames that wait for it.
#[derive(Clone)]
pub(crate) struct Link {
    world: World,
    conn: Arc<dyn Conn>,
    pending: Arc<AtomicUsize>,
}

impl Link {
    pub fn new(world: World, conn: Arc<dyn Conn>) -> Link {
        Link { world, conn, pending: Arc::default() }
    }

    pub fn conn(&self) -> &Arc<dyn Conn> {
        &self.conn
    }

    pub fn close(&self) {
        self.conn.close();
    }

    /// Sends at once if the connection takes the frame, else from a task of its own. An error closes the
    /// connection: its reader notices.
    pub fn post(&self, frame: Frame) {
        let mut sending = self.conn.send(frame);
        match sending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => self.conn.close(),
            Poll::Pending => {
                if self.pending.fetch_add(1, Ordering::Relaxed) >= PENDING_MAX {
                    tracing::warn!(peer = %self.conn.peer(), "peer does not read: connection closed");
                    self.conn.close();
                }
                let (conn, pending) = (self.conn.clone(), self.pending.clone());
                self.world.spawn("rpc-send", async move {
                    if sending.await.is_err() {
                        conn.close();
                    }
                    pending.fetch_sub(1, Ordering::Relaxed);
                });
            }
        }
    }
}
