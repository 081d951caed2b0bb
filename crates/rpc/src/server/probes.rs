//! Now and then a target makes a small change of its own durable, as requests do with theirs: how long that
//! takes says how it is for those who ask it, also while nobody does. If it takes long, an event says what
//! runs at that moment.
//!
//! The same for every kind of target; mounts try targets in the same way (`llite.*.probe_interval`).

use super::Peers;
use crate::at_work::AtWork;
use model::counters::Counters;
use model::param::Decl;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use world::sync::watch;
use world::{BoxFuture, Either, Instant, World, select};

/// Default of `probe_interval`, seconds.
const INTERVAL_DEFAULT_S: u64 = 10;
/// Default of `probe_slow`, milliseconds.
const SLOW_DEFAULT_MS: u64 = 1000;
const SLOW_MAX_MS: u64 = 3_600_000;
/// So often it is looked whether they are to come as they were set.
const LOOK: Duration = Duration::from_secs(5);
/// While one hangs that is said again after so long.
const AGAIN: Duration = Duration::from_secs(60);
/// Requests that are named, at most.
pub const SHOWN_MAX: usize = 5;

model::counters! {
    /// Of `probe_stats`.
    pub enum ProbeCounter {
        Done = "done" in "usecs",
        Slow = "slow" in "usecs",
        Failed = "failed" in "reqs",
        PutOff = "put_off" in "reqs",
    }
}

/// `probe_interval`, of an OST or MDT.
pub const fn probe_interval_decl() -> Decl {
    Decl::number(
        "probe_interval",
        (0, 86_400),
        "s",
        INTERVAL_DEFAULT_S,
        "from one look how fast the target makes a small change durable to the next, on an average; 0: none",
    )
}

/// `probe_slow`, of an OST or MDT.
pub const fn probe_slow_decl() -> Decl {
    Decl::number(
        "probe_slow",
        (1, SLOW_MAX_MS),
        "ms",
        SLOW_DEFAULT_MS,
        "a probe that takes longer is an event that names the requests which run at that moment (nacre events -c hang)",
    )
}

/// `probe_stats`, of an OST or MDT.
pub const fn probe_stats_decl() -> Decl {
    Decl::counters(
        "probe_stats",
        "what probes came to (probe_interval): done, with how long that took; failed; put_off: not tried, as nothing may change just then; slow: those that took longer than probe_slow; writing anything clears them",
    )
}

/// What a target makes of an order to begin a small change.
pub enum Attempt {
    /// Ends when it is durable.
    Begun(BoxFuture<Result<(), String>>),
    /// It is frozen, read-only, in maintenance, in recovery, its disk failed, or it stops.
    PutOff,
}

impl Attempt {
    /// It was begun, and ends so.
    pub fn begun<E: std::fmt::Display + 'static>(change: BoxFuture<Result<(), E>>) -> Attempt {
        Attempt::Begun(Box::pin(async move { change.await.map_err(|e| e.to_string()) }))
    }
}

impl Peers {
    /// Requests that run, the oldest first: [`SHOWN_MAX`] of them, and how many there are in all.
    pub fn at_work(&self, now: Instant) -> (Vec<AtWork>, usize) {
        let (mut oldest, mut count) = (Vec::new(), 0);
        for s in self.all() {
            let some = s.at_work(now);
            count += some.len();
            oldest.extend(some);
            oldest.sort_by_key(|w| std::cmp::Reverse(w.age));
            oldest.truncate(SHOWN_MAX);
        }
        assert!(oldest.len() == count.min(SHOWN_MAX), "as many are named as there is room for");
        (oldest, count)
    }
}

/// What one came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    pub took: Duration,
    pub failed: Option<String>,
    /// What was said while it hung, or of its having been slow.
    pub said: Vec<String>,
}

/// Of a target.
pub struct Probes {
    world: World,
    label: String,
    peers: Peers,
    /// `probe_interval`: seconds from one to the next, on an average; 0: none.
    pub interval_s: AtomicU64,
    /// `probe_slow`, milliseconds.
    pub slow_ms: AtomicU64,
    /// How long they took.
    pub stats: Counters<ProbeCounter>,
    stopping: watch::Sender<bool>,
}

impl Probes {
    pub fn new(world: &World, label: String, peers: &Peers) -> Arc<Probes> {
        Arc::new(Probes {
            world: world.clone(),
            label,
            peers: peers.clone(),
            interval_s: AtomicU64::new(INTERVAL_DEFAULT_S),
            slow_ms: AtomicU64::new(SLOW_DEFAULT_MS),
            stats: Counters::of_set(world.wall()),
            stopping: watch::Sender::new(false),
        })
    }

    /// Probes `target` until it stops, or is no more.
    pub fn keep<T: Send + Sync + 'static>(
        self: &Arc<Self>,
        name: &'static str,
        target: &Arc<T>,
        begin: impl Fn(&T) -> Attempt + Send + 'static,
    ) {
        let (probes, target) = (self.clone(), Arc::downgrade(target));
        self.world.spawn(name, async move { probes.run(target, begin).await });
    }

    /// No more of them, and nobody waits for one that hangs.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        drop(stopping.wait_for(|s| *s).await);
    }

    async fn run<T>(&self, target: Weak<T>, begin: impl Fn(&T) -> Attempt) {
        while !self.is_stopping() {
            if !self.pause().await {
                continue;
            }
            let begun = self.world.now();
            let Some(attempt) = target.upgrade().map(|t| begin(&t)) else { return };
            match attempt {
                Attempt::Begun(change) => drop(self.probe(begun, change).await),
                Attempt::PutOff => self.stats.count(ProbeCounter::PutOff, 1),
            }
        }
    }

    /// Waits until the next one is due: between a half and one and a half of the interval, so that targets do
    /// not go in step. False: there is to be none, the interval was set anew, or the target stops.
    async fn pause(&self) -> bool {
        let interval = self.interval_s.load(Relaxed);
        let ms = interval * 500 + self.world.random_u64() % (interval * 1000).max(1);
        let (begun, pause) = (self.world.now(), Duration::from_millis(ms));
        loop {
            let left = pause.saturating_sub(self.world.now().since(begun));
            if interval > 0 && left.is_zero() {
                return true;
            }
            let part = if interval == 0 { LOOK } else { left.min(LOOK) };
            let stopped = matches!(select(self.stopped(), self.world.sleep(part)).await, Either::Left(()));
            if stopped || self.interval_s.load(Relaxed) != interval {
                return false;
            }
        }
    }

    /// One that was begun then. `None`: the target stops.
    pub async fn probe(&self, begun: Instant, mut change: BoxFuture<Result<(), String>>) -> Option<Probe> {
        let slow = Duration::from_millis(self.slow_ms.load(Relaxed));
        let mut said = Vec::new();
        let mut until = begun.plus(slow);
        let done = loop {
            let left = until.since(self.world.now());
            let ends = select(change.as_mut(), self.stopped());
            match select(Box::pin(ends), self.world.sleep(left)).await {
                Either::Left(Either::Left(done)) => break done,
                Either::Left(Either::Right(())) => return None,
                Either::Right(()) => {
                    said.push(self.tell(begun, "waits since"));
                    until = self.world.now().plus(AGAIN);
                }
            }
        };
        let took = self.world.now().since(begun);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        match &done {
            Ok(()) => self.stats.add(ProbeCounter::Done, us),
            Err(_) => self.stats.count(ProbeCounter::Failed, 1),
        }
        if took >= slow {
            self.stats.add(ProbeCounter::Slow, us);
            // Whatever held it up may have held up this task as well.
            if said.is_empty() {
                said.push(self.tell(begun, "took"));
            } else {
                self.tell_end(took, done.as_ref().err());
            }
        }
        Some(Probe { took, failed: done.err(), said })
    }

    /// Says that one is slow, and what runs beside it.
    fn tell(&self, begun: Instant, how: &str) -> String {
        let now = self.world.now();
        let (oldest, count) = self.peers.at_work(now);
        let named = oldest.iter().map(AtWork::to_string).collect::<Vec<_>>().join("; ");
        let beside = match count {
            0 => ": no request".to_string(),
            n if n > oldest.len() => format!(", the oldest of {n}: {named}"),
            _ => format!(": {named}"),
        };
        let (label, s) = (&self.label, now.since(begun).as_secs_f64());
        let text = format!(
            "{label}: a small change that is made durable now and then {how} {s:.1} s; at work beside it{beside}"
        );
        model::event!(WARN, SlowProbe, label, "{text}");
        text
    }

    fn tell_end(&self, took: Duration, failed: Option<&String>) {
        let (label, s) = (&self.label, took.as_secs_f64());
        let what = failed.map_or_else(|| "is durable".to_string(), |e| format!("failed ({e})"));
        model::event!(INFO, SlowProbe, label, "{label}: the small change that waited {what} after {s:.1} s");
    }
}
