//! Virtual time.

use crate::executor::{Core, Event, Handle};
use ::world::{BoxFuture, Clock, Instant};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Wall-clock seconds at virtual time 0.
const EPOCH_SEC: i64 = 1_900_000_000;

pub(crate) struct SimClock {
    pub(crate) core: Arc<Core>,
    pub(crate) node: u32,
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        let s = self.core.lock();
        Instant(s.nodes[self.node as usize].own_ns(s.now))
    }

    fn wall(&self) -> model::Timestamp {
        let s = self.core.lock();
        let skew = s.nodes[self.node as usize].skew_ns;
        model::Timestamp { sec: EPOCH_SEC, nsec: 0 }.plus_nanos(s.now as i64 + skew)
    }

    fn sleep(&self, d: Duration) -> BoxFuture<()> {
        let own = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let real = self.core.lock().nodes[self.node as usize].real_ns(own);
        Box::pin(sleep(&self.core, Duration::from_nanos(real)))
    }
}

pub(crate) fn sleep(core: &Arc<Core>, d: Duration) -> Sleep {
    let at = core.lock().now.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
    Sleep { core: core.clone(), at, key: None }
}

impl Handle {
    /// Virtual time passes.
    pub fn sleep(&self, d: Duration) -> impl Future<Output = ()> + Send + 'static {
        sleep(&self.core, d)
    }
}

pub(crate) struct Sleep {
    core: Arc<Core>,
    at: u64,
    key: Option<(u64, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let core = self.core.clone();
        let mut s = core.lock();
        let old = if s.now >= self.at {
            let old = self.key.take().and_then(|k| s.cancel_timer(k));
            drop(s);
            drop(old);
            return Poll::Ready(());
        } else if let Some(Event::Wake(w)) = self.key.and_then(|k| s.timer_mut(k)) {
            (!w.will_wake(cx.waker())).then(|| std::mem::replace(w, cx.waker().clone()))
        } else {
            self.key = Some(s.set_timer(self.at, Event::Wake(cx.waker().clone())));
            None
        };
        drop(s);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(k) = self.key {
            let old = self.core.lock().cancel_timer(k);
            drop(old);
        }
    }
}
