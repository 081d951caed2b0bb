//! Checks of statistics: who is slower than its equals, whose clock is another's.

use super::checks::Finding;
use super::facts::Facts;
use crate::health::Severity;

/// Fewer requests say nothing.
const SAMPLES_MIN: u64 = 100;
/// So many times the median, and so many microseconds more than it, is slow.
const SLOW_TIMES: f64 = 3.0;
const SLOW_MORE_US: f64 = 2000.0;
/// Equals are so many at least.
const EQUALS_MIN: usize = 3;

/// The mean of one line of `stats`, in its unit: `read  12 samples [usecs] 1 5 30 90`.
fn mean(stats: &str, what: &str) -> Option<f64> {
    let line = stats.lines().find(|l| l.split_whitespace().next() == Some(what))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let (samples, sum): (u64, f64) = (words.get(1)?.parse().ok()?, words.get(6)?.parse().ok()?);
    (samples >= SAMPLES_MIN && words.get(3) == Some(&"[usecs]")).then(|| sum / samples as f64)
}

/// OSTs whose reads or writes take much longer than those of the others, as their servers measured them.
pub fn slow(f: &Facts) -> Vec<Finding> {
    let mut out = Vec::new();
    for what in ["read", "write"] {
        let all: Vec<(&str, f64)> =
            f.each("obdfilter.", ".stats").filter_map(|(label, s)| Some((label, mean(s, what)?))).collect();
        let mut means: Vec<f64> = all.iter().map(|(_, m)| *m).collect();
        means.sort_by(f64::total_cmp);
        if means.len() < EQUALS_MIN {
            continue;
        }
        let median = means[(means.len() - 1) / 2];
        for (label, m) in all.iter().filter(|(_, m)| *m > SLOW_TIMES * median && m - median > SLOW_MORE_US) {
            let what = format!(
                "a {what} takes {:.1} ms in the mean, {:.1} ms on its equals",
                m / 1000.0,
                median / 1000.0
            );
            let help = format!("lctl get_param obdfilter.{label}.brw_stats; iostat -x (on its server)");
            out.push(Finding::warning(*label, what, help));
        }
    }
    out
}

/// Seconds by which clocks may differ.
const SKEW_WARNING_S: f64 = 1.0;
const SKEW_ERROR_S: f64 = 30.0;

pub fn clocks(f: &Facts) -> Vec<Finding> {
    let all = f.mounts.iter().flat_map(|m| &m.ahead).filter(|(_, s)| s.abs() >= SKEW_WARNING_S);
    all.map(|(label, s)| {
        let severity = if s.abs() >= SKEW_ERROR_S { Severity::Error } else { Severity::Warning };
        let where_to = if *s > 0.0 { "ahead of" } else { "behind" };
        let what = format!("the clock of its server is {:.1} s {where_to} this host's", s.abs());
        Finding { severity, object: label.clone(), what, help: "chronyc tracking (on both hosts)".into() }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::facts::{MountFacts, snapshot_time};
    use super::*;

    fn stats(samples: u64, mean: u64) -> String {
        format!(
            "snapshot_time 1795843518.5 secs.nsecs\nwrite {samples} samples [usecs] 1 9 {} 99\n",
            samples * mean
        )
    }

    #[test]
    fn the_slow_one_among_equals_is_named() {
        let of = |n: u16, text: String| (format!("obdfilter.demo-OST000{n}.stats"), text);
        let params = [(0, 500), (1, 600), (2, 9000)].map(|(n, mean)| of(n, stats(200, mean)));
        let f = Facts { params: params.into(), ..Facts::default() };
        let found = slow(&f);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].object, "demo-OST0002");
        assert_eq!(found[0].what, "a write takes 9.0 ms in the mean, 0.6 ms on its equals");
        let few = [(0, 500), (1, 600), (2, 9000)].map(|(n, mean)| of(n, stats(20, mean)));
        assert!(slow(&Facts { params: few.into(), ..Facts::default() }).is_empty());
    }

    #[test]
    fn clocks_that_differ_are_named_with_the_direction() {
        assert_eq!(snapshot_time(&stats(1, 1)), Some(1_795_843_518.5));
        let ahead = [("demo-OST0000".to_string(), -40.0), ("demo-OST0001".to_string(), 0.2)].into();
        let mount = MountFacts {
            dir: "/mnt".into(),
            targets: Vec::new(),
            space: Vec::new(),
            version: String::new(),
            ahead,
        };
        let found = clocks(&Facts { mounts: vec![mount], ..Facts::default() });
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "the clock of its server is 40.0 s behind this host's");
        assert_eq!(found[0].severity, Severity::Error);
    }
}
