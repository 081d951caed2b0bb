//! When processors are to stay awake: while requests of the kernel come one after the other.
//!
//! A program that waits for an answer leaves its processor idle, and so does a daemon that waits for the next
//! request. What it costs to leave an idle state (10 to 100 µs from the deep ones, as much in a virtual
//! machine) is then paid several times for each request. Lustre's clients ask the kernel for shallow ones
//! meanwhile (`enable_pmqos`), and so do we; only while a mount is busy, as it costs power.

use model::mutex::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use world::sys::idle::{self, Limit};
use world::{Instant, World};

/// So many requests within [`BURST_WITHIN`] mean that the mount is busy.
const BURST: u64 = 16;
const BURST_WITHIN: Duration = Duration::from_millis(20);
/// `pmqos_default_duration_usec`: how long it goes on at least, and how often it is looked at.
pub(crate) const DURATION_DEFAULT_US: u64 = 50_000;
/// Latency asked for where idle states have a latency: the shallow ones of common processors.
const LATENCY_US: u32 = 20;
/// Polling costs the whole machine: on larger ones only if told to.
const POLLING_PROCESSORS_MAX: usize = 16;
/// `pmqos_latency_max_usec`: as this host suggests.
const AUTO: u32 = u32::MAX;

/// The state of one mount.
pub(crate) struct PmQos {
    pub enabled: AtomicBool,
    latency_us: AtomicU32,
    pub duration_us: AtomicU64,
    requests: AtomicU64,
    /// When the last burst was full ([`Instant`]); 0: never.
    last: AtomicU64,
    held: AtomicBool,
    /// For `pmqos_stats`.
    times: AtomicU64,
    held_us: AtomicU64,
    /// Why it cannot be had.
    failed: Mutex<Option<String>>,
}

impl Default for PmQos {
    fn default() -> PmQos {
        PmQos {
            enabled: AtomicBool::new(true),
            latency_us: AtomicU32::new(AUTO),
            duration_us: AtomicU64::new(DURATION_DEFAULT_US),
            requests: AtomicU64::new(0),
            last: AtomicU64::new(0),
            held: AtomicBool::new(false),
            times: AtomicU64::new(0),
            held_us: AtomicU64::new(0),
            failed: Mutex::new(None),
        }
    }
}

/// What `pmqos_latency_max_usec` can be.
pub(crate) fn latency_of(text: &str) -> Option<u32> {
    match text {
        "auto" => Some(AUTO),
        t => t.parse().ok().filter(|us| *us <= 1_000_000),
    }
}

impl PmQos {
    /// Counts a request. True: the mount has become busy, and the caller is the one to see to it
    /// ([`PmQos::hold`]).
    pub fn came(&self, now: impl FnOnce() -> Instant) -> bool {
        let n = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        if !n.is_multiple_of(BURST)
            || self.held.load(Ordering::Relaxed)
            || !self.enabled.load(Ordering::Relaxed)
        {
            return false;
        }
        let now = now();
        let last = self.last.swap(now.0, Ordering::Relaxed);
        let burst = last > 0 && now.since(Instant(last)) <= BURST_WITHIN;
        burst && !self.held.swap(true, Ordering::AcqRel)
    }

    /// Keeps processors awake until the mount is not busy any more.
    pub async fn hold(&self, world: &World) {
        let limit = Limit::new(self.latency() as i32);
        let failed = limit.as_ref().err().map(|e| format!("/dev/cpu_dma_latency: {e}"));
        if let Some(why) = &failed {
            tracing::debug!("processors sleep as they like: {why}");
            // Until somebody switches it on again.
            self.enabled.store(false, Ordering::Relaxed);
        }
        *self.failed.lock() = failed;
        if limit.is_ok() {
            self.times.fetch_add(1, Ordering::Relaxed);
            let begun = world.now();
            self.while_busy(world).await;
            let us = world.now().since(begun).as_micros() as u64;
            self.held_us.fetch_add(us, Ordering::Relaxed);
        }
        drop(limit);
        self.held.store(false, Ordering::Release);
    }

    async fn while_busy(&self, world: &World) {
        loop {
            let seen = self.requests.load(Ordering::Relaxed);
            let duration = Duration::from_micros(self.duration_us.load(Ordering::Relaxed));
            world.sleep(duration).await;
            let came = self.requests.load(Ordering::Relaxed) - seen;
            let least = BURST * duration.as_micros() as u64 / BURST_WITHIN.as_micros() as u64;
            if came < least.max(1) || !self.enabled.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// µs to ask the kernel for.
    fn latency(&self) -> u32 {
        match self.latency_us.load(Ordering::Relaxed) {
            AUTO if idle::halts_to_host() && idle::processors() <= POLLING_PROCESSORS_MAX => 0,
            AUTO => LATENCY_US,
            us => us,
        }
    }

    /// `auto`, or µs. False: neither.
    pub fn set_latency(&self, text: &str) -> bool {
        let us = latency_of(text);
        if let Some(us) = us {
            self.latency_us.store(us, Ordering::Relaxed);
        }
        us.is_some()
    }

    pub fn latency_text(&self) -> String {
        match self.latency_us.load(Ordering::Relaxed) {
            AUTO => "auto".to_string(),
            us => us.to_string(),
        }
    }

    pub fn text(&self) -> String {
        let held = self.held.load(Ordering::Relaxed);
        let mut out = format!(
            "held: {}\nlatency_usec: {}\ntimes: {}\ntime_usec: {}\n",
            u8::from(held),
            self.latency(),
            self.times.load(Ordering::Relaxed),
            self.held_us.load(Ordering::Relaxed)
        );
        if let Some(why) = &*self.failed.lock() {
            out.push_str(&format!("unavailable: {why}\n"));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests at these distances; how often somebody was told to keep processors awake.
    fn told(w: &PmQos, at: &mut Instant, n: u32, apart: Duration) -> usize {
        (0..n)
            .filter(|_| {
                *at = at.plus(apart);
                w.came(|| *at)
            })
            .count()
    }

    #[test]
    fn only_requests_one_after_the_other_keep_processors_awake() {
        let mut at = Instant(1);
        let w = PmQos::default();
        assert_eq!(told(&w, &mut at, 1_000, Duration::from_millis(2)), 0, "500 a second");
        assert_eq!(
            told(&w, &mut at, 1_000, Duration::from_micros(500)),
            1,
            "2,000 a second: one is told, once"
        );
        w.held.store(false, Ordering::Release);
        at = at.plus(Duration::from_secs(60));
        assert_eq!(told(&w, &mut at, BURST as u32, Duration::from_micros(10)), 0, "a few after a long time");
        assert_eq!(told(&w, &mut at, BURST as u32, Duration::from_micros(10)), 1);
        w.held.store(false, Ordering::Release);
        w.enabled.store(false, Ordering::Release);
        assert_eq!(told(&w, &mut at, 1_000, Duration::from_micros(10)), 0, "switched off");
    }

    #[test]
    fn latencies_are_auto_or_microseconds() {
        let w = PmQos::default();
        for (text, ok) in
            [("5", true), ("auto", true), ("", false), ("-1", false), ("2000000", false), ("0", true)]
        {
            assert_eq!(w.set_latency(text), ok, "{text}");
        }
        assert_eq!((w.latency_text().as_str(), w.latency()), ("0", 0));
    }
}
