//! Virtual time.

use crate::executor::{Core, Event, Handle};
use ::world::jumps::Jumps;
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
    pub(crate) jumps: Jumps,
}

impl SimClock {
    pub(crate) fn new(core: &Arc<Core>, node: u32) -> SimClock {
        let (now, wall) = read(core, node);
        SimClock { core: core.clone(), node, jumps: Jumps::new(now, wall) }
    }
}

/// Both clocks of a node.
fn read(core: &Arc<Core>, node: u32) -> (Instant, i64) {
    let s = core.lock();
    let n = &s.nodes[node as usize];
    (Instant(n.clock_ns(s.now)), EPOCH_SEC * 1_000_000_000 + n.wall_ns(s.now))
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        read(&self.core, self.node).0
    }

    fn wall(&self) -> model::Timestamp {
        model::Timestamp::from_nanos(read(&self.core, self.node).1.into())
    }

    fn jumped(&self) -> Instant {
        self.jumps.last(|| read(&self.core, self.node))
    }

    fn sleep(&self, d: Duration) -> BoxFuture<()> {
        let own = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let (real, lost) = {
            let s = self.core.lock();
            let n = &s.nodes[self.node as usize];
            (n.real_ns(own), n.lost_timers_ns)
        };
        let mut sleep = sleep(&self.core, Duration::from_nanos(real));
        sleep.timers = Some((self.node, lost));
        Box::pin(sleep)
    }
}

pub(crate) fn sleep(core: &Arc<Core>, d: Duration) -> Sleep {
    let at = core.lock().now.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
    Sleep { core: core.clone(), at, timers: None, key: None }
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
    /// By whose timers, and how much time these had lost when `at` was right.
    timers: Option<(u32, u64)>,
    key: Option<(u64, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let core = self.core.clone();
        let mut s = core.lock();
        let mut stale = None;
        if let Some((node, lost)) = self.timers {
            let now_lost = s.nodes[node as usize].lost_timers_ns;
            if now_lost > lost {
                self.at = self.at.saturating_add(now_lost - lost);
                self.timers = Some((node, now_lost));
                stale = self.key.take().and_then(|k| s.cancel_timer(k));
            }
        }
        let old = if s.now >= self.at {
            let old = self.key.take().and_then(|k| s.cancel_timer(k));
            drop(s);
            drop((old, stale));
            return Poll::Ready(());
        } else if let Some(Event::Wake(w)) = self.key.and_then(|k| s.timer_mut(k)) {
            (!w.will_wake(cx.waker())).then(|| std::mem::replace(w, cx.waker().clone()))
        } else {
            self.key = Some(s.set_timer(self.at, Event::Wake(cx.waker().clone())));
            None
        };
        drop(s);
        drop((old, stale));
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
