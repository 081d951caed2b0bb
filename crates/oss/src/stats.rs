//! Counters of a target as `lctl get_param obdfilter.*.stats` prints them.

use std::fmt::Write;
use std::sync::Mutex;
use world::Instant;

/// What is counted, with its unit. Names as in Lustre's obdfilter.
const COUNTERS: [(&str, &str); 17] = [
    ("read_bytes", "bytes"),
    ("write_bytes", "bytes"),
    ("read", "usecs"),
    ("write", "usecs"),
    ("getattr", "usecs"),
    ("punch", "usecs"),
    ("fallocate", "usecs"),
    ("objseek", "usecs"),
    ("sync", "usecs"),
    ("destroy", "usecs"),
    ("statfs", "usecs"),
    ("batch", "usecs"),
    ("connect", "reqs"),
    ("reconnect", "reqs"),
    ("disconnect", "reqs"),
    ("get_info", "usecs"),
    ("set_info", "usecs"),
];

#[derive(Clone, Copy, Default)]
struct Counter {
    samples: u64,
    min: u64,
    max: u64,
    sum: u64,
    sumsq: u128,
}

struct State {
    counters: [Counter; COUNTERS.len()],
    since: (Instant, model::Timestamp),
}

pub struct Stats {
    state: Mutex<State>,
}

impl Stats {
    pub fn new(now: Instant, wall: model::Timestamp) -> Stats {
        Stats { state: Mutex::new(State { counters: Default::default(), since: (now, wall) }) }
    }

    /// Adds one sample to the counter `name`.
    pub fn add(&self, name: &str, value: u64) {
        let Some(i) = COUNTERS.iter().position(|(n, _)| *n == name) else {
            unreachable!("counter {name} is not declared");
        };
        let c = &mut self.lock().counters[i];
        c.min = if c.samples == 0 { value } else { c.min.min(value) };
        c.max = c.max.max(value);
        c.samples += 1;
        c.sum = c.sum.saturating_add(value);
        c.sumsq = c.sumsq.saturating_add(u128::from(value) * u128::from(value));
    }

    pub fn clear(&self, now: Instant, wall: model::Timestamp) {
        *self.lock() = State { counters: Default::default(), since: (now, wall) };
    }

    /// (samples, sum) of a counter.
    pub fn total(&self, name: &str) -> (u64, u64) {
        let i = COUNTERS.iter().position(|(n, _)| *n == name);
        i.map_or((0, 0), |i| {
            let c = self.lock().counters[i];
            (c.samples, c.sum)
        })
    }

    /// Lustre's text form: name, count, `samples`, unit, min, max, sum, sum of squares.
    pub fn text(&self, now: Instant, wall: model::Timestamp) -> String {
        let s = self.lock();
        let elapsed = now.since(s.since.0);
        let mut out = String::new();
        let mut line = |name: &str, sec: i64, nsec: u32| {
            let _ = writeln!(out, "{name:<25} {sec}.{nsec:09} secs.nsecs");
        };
        line("snapshot_time", wall.sec, wall.nsec);
        line("start_time", s.since.1.sec, s.since.1.nsec);
        line("elapsed_time", elapsed.as_secs() as i64, elapsed.subsec_nanos());
        for ((name, unit), c) in COUNTERS.iter().zip(&s.counters) {
            if c.samples > 0 {
                let _ = writeln!(
                    out,
                    "{name:<25} {} samples [{unit}] {} {} {} {}",
                    c.samples, c.min, c.max, c.sum, c.sumsq
                );
            }
        }
        out
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
}
