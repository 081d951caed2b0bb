//! What targets did a moment ago, and in the last hour: their statistics, read every few seconds, as rates.
//! The rings are bounded; what they hold is gone when the console ends (Prometheus keeps it for longer).

use crate::source::Source;
use admin::query::Stats;
use admin::rates::{Timed, Totals};
use model::mutex::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use world::{Instant, World};

/// Samples that are kept: an hour of one every five seconds.
const SAMPLES_MAX: usize = 720;
/// Targets with a ring of their own; others are in the sum only.
const TARGETS_MAX: usize = 512;

/// The curves of a target, in the order of [`Rates`].
const SERIES: [&str; 8] = [
    "read_bytes_per_s",
    "write_bytes_per_s",
    "reads_per_s",
    "writes_per_s",
    "metadata_ops_per_s",
    "read_us",
    "write_us",
    "metadata_us",
];
/// A moment of one target. What is not known is no number.
type Rates = [f32; SERIES.len()];
const UNKNOWN: Rates = [f32::NAN; SERIES.len()];

/// What a target did, as rates over so many seconds.
fn rates(t: &Totals, seconds: f64) -> Rates {
    let per = |n: u64| (n as f64 / seconds) as f32;
    // Nothing was done: how long it would have taken is not known.
    let mean = |t: Timed| t.mean_us().map_or(f32::NAN, |us| us as f32);
    let metadata = t.metadata_all();
    [
        per(t.read_bytes),
        per(t.write_bytes),
        per(t.reads.count),
        per(t.writes.count),
        per(metadata.count),
        mean(t.reads),
        mean(t.writes),
        mean(metadata),
    ]
}

type Seen = (Instant, BTreeMap<String, Totals>);

#[derive(Default)]
struct Rings {
    times: VecDeque<i64>,
    all: VecDeque<Rates>,
    targets: BTreeMap<String, VecDeque<Rates>>,
    /// Targets that were to be asked last and said nothing.
    missing: Vec<String>,
    before: Option<Seen>,
}

pub struct History {
    interval: Duration,
    rings: Mutex<Rings>,
}

fn push(ring: &mut VecDeque<Rates>, with: usize, r: Rates) {
    // One that came later has nothing of before.
    while ring.len() + 1 < with {
        ring.push_front(UNKNOWN);
    }
    ring.push_back(r);
    while ring.len() > SAMPLES_MAX {
        ring.pop_front();
    }
}

impl Rings {
    fn add(&mut self, wall: i64, now: Instant, stats: &Stats) {
        let totals: BTreeMap<String, Totals> =
            stats.texts.iter().map(|(label, text)| (label.clone(), Totals::of(label, text))).collect();
        let before = self.before.replace((now, totals.clone()));
        self.missing.clone_from(&stats.missing);
        let Some((at, before)) = before else { return };
        let seconds = now.since(at).as_secs_f64().max(0.001);
        self.times.push_back(wall);
        while self.times.len() > SAMPLES_MAX {
            self.times.pop_front();
        }
        let (len, mut sum) = (self.times.len(), Totals::default());
        for (label, t) in &totals {
            let done = before.get(label).and_then(|b| t.since(b));
            if let Some(d) = &done {
                sum.add(d);
            }
            if self.targets.contains_key(label) || self.targets.len() < TARGETS_MAX {
                let rates = done.map_or(UNKNOWN, |d| rates(&d, seconds));
                push(self.targets.entry(label.clone()).or_default(), len, rates);
            }
        }
        for (_, ring) in self.targets.iter_mut().filter(|(label, _)| !totals.contains_key(*label)) {
            push(ring, len, UNKNOWN);
        }
        // Of whom nothing is known any more is forgotten.
        self.targets.retain(|_, ring| ring.iter().any(|r| !r[0].is_nan()));
        push(&mut self.all, len, rates(&sum, seconds));
        assert!(self.times.len() == self.all.len(), "a moment has its rates");
        assert!(self.targets.len() <= TARGETS_MAX, "rings are bounded");
    }
}

impl History {
    pub fn new(interval: Duration) -> History {
        assert!(!interval.is_zero(), "between two samples is some time");
        History { interval, rings: Mutex::new(Rings::default()) }
    }

    pub fn add(&self, wall: i64, now: Instant, stats: &Stats) {
        self.rings.lock().add(wall, now, stats);
    }

    /// The curves of a target by its label, of all together without one. `None`: there is no such target.
    pub fn json(&self, target: &str) -> Option<Value> {
        let rings = self.rings.lock();
        let ring = if target.is_empty() { &rings.all } else { rings.targets.get(target)? };
        let curve = |n: usize| -> Vec<Value> {
            ring.iter().map(|r| if r[n].is_nan() { Value::Null } else { json!(r[n]) }).collect()
        };
        let series: serde_json::Map<String, Value> =
            SERIES.iter().enumerate().map(|(n, name)| ((*name).to_string(), json!(curve(n)))).collect();
        Some(json!({"interval_s": self.interval.as_secs(), "target": target, "times": rings.times,
                    "targets": rings.targets.keys().collect::<Vec<_>>(), "missing": rings.missing,
                    "series": series}))
    }

    /// The newest rates by target, and of all together.
    pub fn newest(&self) -> (Vec<(String, Newest)>, Option<Newest>) {
        let rings = self.rings.lock();
        let of = |ring: &VecDeque<Rates>| ring.back().map(|r| Newest(*r));
        let targets = rings.targets.iter().filter_map(|(l, r)| Some((l.clone(), of(r)?))).collect();
        (targets, of(&rings.all))
    }
}

/// The last rates of a target; `None` is not known.
#[derive(Clone, Copy)]
pub struct Newest(Rates);

impl Newest {
    /// By its name in JSON.
    pub fn of(&self, name: &str) -> Option<f64> {
        let n = SERIES.iter().position(|s| *s == name).expect("a name of the table");
        Some(f64::from(self.0[n])).filter(|v| !v.is_nan())
    }
}

/// Reads the statistics again and again, until the runtime ends.
pub async fn sample(world: World, source: Arc<dyn Source>, history: Arc<History>) {
    loop {
        let (from, to, w) = (source.clone(), history.clone(), world.clone());
        world.blocking(move || to.add(w.wall().sec, w.now(), &from.stats())).await;
        world.sleep(history.interval).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(all: &[(&str, u64)]) -> Stats {
        let text = |n: u64| {
            format!(
                "snapshot_time 1.5 secs.nsecs\nread_bytes {n} samples [bytes] 1 9 {} 0\n\
                 read {n} samples [usecs] 1 9 {} 0\nopen {n} samples [usecs] 1 9 {} 0\nping {n} samples [reqs]\n",
                n * 4096,
                n * 100,
                n * 50
            )
        };
        let texts = all.iter().map(|(label, n)| ((*label).to_string(), text(*n))).collect();
        Stats { texts, missing: Vec::new() }
    }

    fn second(n: u64) -> Instant {
        Instant(n * 1_000_000_000)
    }

    #[test]
    fn rates_are_differences_and_a_target_that_began_anew_has_none() {
        let h = History::new(Duration::from_secs(5));
        h.add(100, second(0), &stats(&[("d-OST0000", 10), ("d-MDT0000", 10)]));
        assert_eq!(h.json("").unwrap()["times"], json!([]), "one look is no rate");
        h.add(105, second(5), &stats(&[("d-OST0000", 60), ("d-MDT0000", 20)]));
        let v = h.json("d-OST0000").unwrap();
        assert_eq!(v["series"]["read_bytes_per_s"], json!([40960.0]));
        assert_eq!(v["series"]["reads_per_s"], json!([10.0]));
        assert_eq!(v["series"]["read_us"], json!([100.0]));
        assert_eq!((&v["series"]["write_us"], &v["series"]["writes_per_s"]), (&json!([null]), &json!([0.0])));
        assert_eq!(h.json("d-MDT0000").unwrap()["series"]["metadata_ops_per_s"], json!([2.0]));
        assert_eq!(h.json("").unwrap()["series"]["metadata_us"], json!([50.0]), "OSTs count none");
        // It began anew, and another one went away.
        h.add(110, second(10), &stats(&[("d-OST0000", 1)]));
        assert_eq!(h.json("d-OST0000").unwrap()["series"]["reads_per_s"], json!([10.0, null]));
        assert_eq!(h.json("d-MDT0000").unwrap()["series"]["metadata_ops_per_s"], json!([2.0, null]));
        assert_eq!(h.json("other"), None);
        assert_eq!(h.newest().1.unwrap().of("reads_per_s"), Some(0.0));
    }

    #[test]
    fn rings_are_bounded_and_one_that_came_later_has_as_many_moments() {
        let h = History::new(Duration::from_secs(1));
        for n in 0..=SAMPLES_MAX as u64 + 50 {
            let late = [("d-OST0000", n), ("d-OST0001", n)];
            h.add(n as i64, second(n), &stats(&late[..if n > 700 { 2 } else { 1 }]));
        }
        for t in ["", "d-OST0000", "d-OST0001"] {
            let v = h.json(t).unwrap();
            assert_eq!(v["series"]["reads_per_s"].as_array().map(Vec::len), Some(SAMPLES_MAX), "{t}");
            assert_eq!(v["times"].as_array().map(Vec::len), Some(SAMPLES_MAX));
        }
    }
}
