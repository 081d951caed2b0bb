//! Requests that wait: which they are, since when, and where they wait. For those who are asked why nothing
//! goes on.

use super::call::Request;
use super::{Core, Import, ImportInner, ImportState};
use bytes::Bytes;
use std::time::Duration;
use wire::Op;
use world::Instant;

/// So many are said at a time, the oldest ones.
pub const WAITING_MAX: usize = 16;

/// Where a request waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitsFor {
    /// The session is not up.
    Connection,
    /// Others of this client are under way, as many as may be.
    Slot,
    /// The server had no memory for it; it goes again soon.
    Memory,
    /// It was sent.
    Server,
}

impl WaitsFor {
    /// For lists and logs.
    pub fn word(self) -> &'static str {
        match self {
            WaitsFor::Connection => "connection",
            WaitsFor::Slot => "slot",
            WaitsFor::Memory => "memory",
            WaitsFor::Server => "server",
        }
    }
}

/// A request that is not answered.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub op: Op,
    /// Since its caller asked, however often it was sent.
    pub age: Duration,
    pub waits_for: WaitsFor,
    /// As it goes over the network, with its context.
    pub body: Bytes,
}

impl ImportInner {
    /// All of them but the session's own.
    fn waiting(&mut self) -> impl Iterator<Item = (&mut Request, WaitsFor)> {
        let is_up = self.state == ImportState::Full;
        let unsent = if is_up { WaitsFor::Slot } else { WaitsFor::Connection };
        let sent = self.slots.iter_mut().skip(1).flatten().map(move |f| {
            let of = if f.put_off { WaitsFor::Memory } else { WaitsFor::Server };
            (&mut f.req, if is_up { of } else { WaitsFor::Connection })
        });
        sent.chain(self.queue.values_mut().map(move |r| (r, unsent)))
    }
}

/// The oldest ones.
fn oldest(mut all: Vec<Waiting>) -> Vec<Waiting> {
    all.sort_by_key(|w| std::cmp::Reverse(w.age));
    all.truncate(WAITING_MAX);
    all
}

fn sample(r: &Request, now: Instant, waits_for: WaitsFor) -> Waiting {
    Waiting { op: r.op, age: now.since(r.begun), waits_for, body: r.body.clone() }
}

impl Import {
    /// Requests that wait for so long at least, the oldest first.
    pub fn waiting(&self, least: Duration) -> Vec<Waiting> {
        let now = self.core.world.now();
        let mut g = self.core.lock();
        oldest(
            g.waiting()
                .map(|(r, of)| sample(r, now, of))
                .filter(|w| w.age >= least)
                .take(usize::from(model::limits::SLOTS_PER_SESSION) + WAITING_MAX)
                .collect(),
        )
    }
}

impl Core {
    /// Has those told of that wait for longer than `stuck_request_timeout`, each once.
    pub(super) fn tell_stuck(&self) {
        let Some(limit) = self.cfg.adaptive.stuck() else { return };
        let now = self.world.now();
        let (mut told, mut count) = (Vec::new(), 0);
        {
            let mut g = self.lock();
            for (r, of) in g.waiting() {
                if r.is_told || now.since(r.begun) < limit {
                    continue;
                }
                r.is_told = true;
                count += 1;
                if told.len() < WAITING_MAX {
                    told.push(sample(r, now, of));
                }
            }
        }
        if count > 0 {
            self.cfg.hooks.stuck(count, &oldest(told));
        }
    }
}
