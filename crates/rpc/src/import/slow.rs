//! Requests that take longer than they lately did: adaptive timeouts and early replies, as Lustre calls them.
//!
//! How long a request may take before anything is done about it comes from how long requests took in the last
//! ten minutes ([`model::estimate::Estimate`]). Nothing fails then: with the next ping the server is asked
//! what it is at work on. If it is at work on the request, that is its early reply, and it is left in peace
//! for [`EXTRA`]. If it knows nothing of it, twice, the request or its reply is lost, whoever lost it: it is
//! sent again on a new connection, and executed once.

use super::{Core, ImportInner, ImportState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use wire::under_way::UnderWay;
use world::Instant;

/// Defaults of `at_min` and `at_max`, seconds.
/// Of the two settings of [`AdaptiveLimits`].
pub const AT_MIN_DEFAULT_S: u64 = 5;
pub const AT_MAX_DEFAULT_S: u64 = 600;
/// Of `stuck_request_timeout`: longer than a recovery takes as a rule.
pub const STUCK_DEFAULT_S: u64 = 60;
/// Added to the estimate with a quarter of it: Lustre's `at_est2timeout`.
const MARGIN: Duration = Duration::from_secs(5);
/// An early reply gives the server so much longer: Lustre's `at_extra`.
const EXTRA: Duration = Duration::from_secs(30);
/// So many answers in a row without it, and a request is lost. One is not enough: a reply may be on its way.
const MISSING_MAX: u8 = 2;

/// `at_min` and `at_max`: how long requests may take at least, and at most, before the server is asked
/// whether it is at work on them. Shared by the sessions of a mount.
#[derive(Debug)]
pub struct AdaptiveLimits {
    min_s: AtomicU64,
    /// 0: requests are waited for as long as it takes.
    max_s: AtomicU64,
    /// `stuck_request_timeout`; 0: nothing is said.
    stuck_s: AtomicU64,
}

impl Default for AdaptiveLimits {
    fn default() -> AdaptiveLimits {
        AdaptiveLimits {
            min_s: AtomicU64::new(AT_MIN_DEFAULT_S),
            max_s: AtomicU64::new(AT_MAX_DEFAULT_S),
            stuck_s: AtomicU64::new(STUCK_DEFAULT_S),
        }
    }
}

impl AdaptiveLimits {
    /// Seconds.
    pub fn min_s(&self) -> u64 {
        self.min_s.load(Relaxed)
    }

    /// Seconds; 0: nothing is done about slow requests.
    pub fn max_s(&self) -> u64 {
        self.max_s.load(Relaxed)
    }

    pub fn set_min_s(&self, s: u64) {
        self.min_s.store(s, Relaxed);
    }

    pub fn set_max_s(&self, s: u64) {
        self.max_s.store(s, Relaxed);
    }

    /// Seconds after which it is said that a request waits; 0: never.
    pub fn stuck_s(&self) -> u64 {
        self.stuck_s.load(Relaxed)
    }

    pub fn set_stuck_s(&self, s: u64) {
        self.stuck_s.store(s, Relaxed);
    }

    /// As [`AdaptiveLimits::stuck_s`]; `None`: never.
    pub(super) fn stuck(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.stuck_s())).filter(|d| !d.is_zero())
    }

    /// How long a request may take; `None`: as long as it wants.
    fn patience(&self, estimate: Duration) -> Option<Duration> {
        let (min, max) = (Duration::from_secs(self.min_s()), Duration::from_secs(self.max_s()));
        (!max.is_zero()).then(|| (estimate + estimate / 4 + MARGIN).max(min).min(max))
    }
}

/// What is known of one request that takes long.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slow {
    /// The server was at work on it: it is asked again then.
    again: Option<Instant>,
    /// Answers in a row that did not know it.
    missing: u8,
}

impl ImportInner {
    /// Slots whose requests take longer than `patience`. None before everything was sent again on a new
    /// connection: a recovery takes its time.
    fn overdue(&self, now: Instant, patience: Duration) -> impl Iterator<Item = usize> {
        let late = move |sent: Instant, slow: &Slow| now >= slow.again.unwrap_or(sent.plus(patience));
        let all_sent = self.state == ImportState::Full;
        let slots = self.slots.iter().enumerate().filter(move |_| all_sent);
        slots.filter_map(move |(i, s)| s.as_ref().filter(|f| !f.put_off && late(f.sent, &f.slow)).map(|_| i))
    }
}

impl Core {
    fn patience(&self) -> Option<Duration> {
        let service = self.service.lock().current(self.world.now().seconds());
        self.cfg.adaptive.patience(service)
    }

    /// Whether the server should be asked what it is at work on.
    pub(super) fn is_late(&self) -> bool {
        let Some(patience) = self.patience() else { return false };
        self.lock().overdue(self.world.now(), patience).next().is_some()
    }

    /// The server said, in answer to a ping of `asked`, what it is at work on. `Err`: a request is lost.
    pub(super) fn heard_of_work(&self, asked: Instant, work: &UnderWay) -> Result<(), String> {
        let Some(patience) = self.patience() else { return Ok(()) };
        let now = self.world.now();
        let mut told = None;
        let lost = {
            let mut g = self.lock();
            let late: Vec<usize> = g.overdue(now, patience).collect();
            let mut lost = None;
            for slot in late {
                let Some(f) = g.slots[slot].as_mut().filter(|f| f.sent < asked) else { continue };
                if work.has(slot as u16, f.xid) {
                    f.slow = Slow { again: Some(now.plus(EXTRA)), missing: 0 };
                    told.get_or_insert((f.req.op, now.since(f.sent)));
                    continue;
                }
                f.slow.missing += 1;
                if f.slow.missing >= MISSING_MAX {
                    lost.get_or_insert((f.req.op, now.since(f.sent)));
                }
            }
            lost
        };
        if let Some((op, age)) = told {
            model::event!(
                WARN,
                RequestStuck,
                self.label(),
                "{} is slow: it has been at work on {op:?} for {} s (within {} s was expected), and goes on",
                self.label(),
                age.as_secs(),
                patience.as_secs()
            );
        }
        lost.map_or(Ok(()), |(op, age)| {
            Err(format!("{op:?}, sent {} s ago, is not known to the server: it is sent again", age.as_secs()))
        })
    }
}
