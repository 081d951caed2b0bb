//! What surveys of storage measure: rates over a grid of groups (regions, objects) and threads, their
//! classical lines, and the document and picture of all of them.

use crate::heat::{Heat, Panel};
use crate::run::{Row, Unit, rate_of};
use crate::survey::Asked;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

const MIB: f64 = (1 << 20) as f64;

/// One test at one point of the grid.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    pub test: String,
    /// All devices together.
    pub rate: f64,
    /// The slowest and the fastest of them, each by its own begin and end.
    pub min: f64,
    pub max: f64,
    /// Each of them, in the order that they were named in.
    pub each: Vec<f64>,
    /// In the place of figures.
    pub failed: Option<String>,
}

impl Measured {
    pub fn of(test: &str, rate: f64, each: Vec<f64>) -> Measured {
        let max = each.iter().copied().fold(0.0, f64::max);
        let min = each.iter().copied().fold(f64::INFINITY, f64::min).min(max);
        Measured { test: test.to_string(), rate, min, max, each, failed: None }
    }

    /// Of devices on which so many threads each worked one behind the other.
    pub fn of_devices(test: &str, row: &Row, threads: usize) -> Measured {
        let each = row.spans.chunks(threads).map(|s| rate_of(s, Unit::MibPerSecond));
        Measured::of(test, row.rate, each.collect())
    }

    /// Of devices that moved so many bytes in so many nanoseconds each, side by side.
    pub fn of_moved(test: &str, each: &[(u64, u64)]) -> Measured {
        let rate = |bytes: u64, nanos: u64| match nanos {
            0 => 0.0,
            _ => bytes as f64 / MIB / (nanos as f64 / 1e9),
        };
        let (bytes, longest) = each.iter().fold((0, 0), |(sum, most), (b, ns)| (sum + b, most.max(*ns)));
        Measured::of(test, rate(bytes, longest), each.iter().map(|(b, ns)| rate(*b, *ns)).collect())
    }

    /// `word` is what the line says: `failed`, `ENOMEM`.
    pub fn failed(test: &str, word: &str) -> Measured {
        let failed = Some(word.to_string());
        Measured { test: test.to_string(), rate: 0.0, min: 0.0, max: 0.0, each: Vec::new(), failed }
    }
}

/// One line of a survey.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// `sz`, `rsz` in KiB: all that was moved, and one request.
    pub total_kib: u64,
    pub request_kib: u64,
    /// Of all devices together, as the line has them.
    pub groups: u64,
    pub threads: u64,
    pub tests: Vec<Measured>,
}

/// How a survey calls what it varies.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// First word of a line: `dev`, `ost`.
    pub device: &'static str,
    /// `crg`, `obj`.
    pub group: &'static str,
    /// In words, for the picture.
    pub groups: &'static str,
}

impl Shape {
    /// The line up to the first test.
    pub fn head(&self, devices: usize, p: &Point) -> String {
        format!(
            "{} {devices:>2} sz {:>8}K rsz {:>4}K {} {:>4} thr {:>4}",
            self.device, p.total_kib, p.request_kib, self.group, p.groups, p.threads
        )
    }

    pub fn line(&self, devices: usize, p: &Point) -> String {
        let mut o = self.head(devices, p);
        for m in &p.tests {
            // writing to a String cannot fail
            let _ = match &m.failed {
                Some(word) => write!(o, " {} {word:>24}", m.test),
                None => write!(o, " {} {:>8.2} [ {:>7.2}, {:>7.2}]", m.test, m.rate, m.min, m.max),
            };
        }
        o
    }
}

/// Everything a survey found.
pub fn document(survey: &str, asked: &Asked, devices: &[String], points: &[Point]) -> Value {
    json!({
        "survey": survey,
        "version": admin::VERSION,
        "time": world::sys::wall_seconds(),
        "inventory": crate::inventory::here(),
        "parameters": asked.knobs.json(),
        "devices": devices,
        "unit": "MiB/s",
        "points": points,
        "best": best(points),
    })
}

/// Whether no test failed.
pub fn is_well(points: &[Point]) -> bool {
    points.iter().all(|p| p.tests.iter().all(|m| m.failed.is_none()))
}

/// The best point of each test.
pub fn best(points: &[Point]) -> Vec<Value> {
    let mut found: BTreeMap<&str, (&Point, &Measured)> = BTreeMap::new();
    for p in points {
        for m in p.tests.iter().filter(|m| m.failed.is_none()) {
            let slot = found.entry(&m.test).or_insert((p, m));
            if m.rate > slot.1.rate {
                *slot = (p, m);
            }
        }
    }
    let one = |(test, (p, m)): (&&str, &(&Point, &Measured))| json!({"test": test, "rate": m.rate, "groups": p.groups, "threads": p.threads, "request_kib": p.request_kib});
    found.iter().map(one).collect()
}

/// A panel for each test and request size: groups upwards, threads to the right.
pub fn heat(title: &str, shape: Shape, points: &[Point]) -> Heat {
    let mut panels: Vec<Panel> = Vec::new();
    for p in points {
        for m in &p.tests {
            let title = format!("{}, {} KiB", m.test, p.request_kib);
            let i = panels.iter().position(|q| q.title == title).unwrap_or_else(|| {
                panels.push(Panel { title, cells: BTreeMap::new() });
                panels.len() - 1
            });
            let rate = m.failed.is_none().then_some(m.rate);
            panels[i].cells.insert((p.threads, p.groups), rate);
        }
    }
    Heat {
        title: title.to_string(),
        x_label: "threads".into(),
        y_label: shape.groups.to_string(),
        unit: "MiB/s".into(),
        panels,
    }
}

/// The points as CSV, a row for each test.
pub fn csv(shape: Shape, points: &[Point]) -> String {
    let mut o = format!("request_kib,{},threads,total_kib,test,rate_mib_s,min,max,failed\n", shape.groups);
    for p in points {
        for m in &p.tests {
            let _ = writeln!(
                o,
                "{},{},{},{},{},{:.2},{:.2},{:.2},{}",
                p.request_kib,
                p.groups,
                p.threads,
                p.total_kib,
                m.test,
                m.rate,
                m.min,
                m.max,
                m.failed.as_deref().unwrap_or("")
            );
        }
    }
    o
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { device: "dev", group: "crg", groups: "regions" };

    fn point(threads: u64, rates: &[f64]) -> Point {
        let test = |(i, r): (usize, &f64)| {
            Measured::of(["write", "read"][i], *r, vec![*r / 2.0 - 1.0, *r / 2.0 + 1.0])
        };
        let tests = rates.iter().enumerate().map(test).collect();
        Point { total_kib: 125_829_120, request_kib: 1024, groups: 60, threads, tests }
    }

    #[test]
    fn lines_have_the_classical_shape() {
        let text = SHAPE.line(30, &point(120, &[6036.79, 6720.94]));
        assert_eq!(
            text,
            "dev 30 sz 125829120K rsz 1024K crg   60 thr  120 write  6036.79 [ 3017.39, 3019.39] \
             read  6720.94 [ 3359.47, 3361.47]"
        );
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words[..10], ["dev", "30", "sz", "125829120K", "rsz", "1024K", "crg", "60", "thr", "120"]);
        let bad = Point { tests: vec![Measured::failed("write", "ENOMEM")], ..point(1, &[]) };
        assert!(SHAPE.line(1, &bad).ends_with("ENOMEM"), "{}", SHAPE.line(1, &bad));
    }

    #[test]
    fn the_best_is_found_and_failures_are_none() {
        let failed = Point { threads: 9, tests: vec![Measured::failed("write", "failed")], ..point(9, &[]) };
        let all = [point(1, &[10.0, 30.0]), point(2, &[20.0, 5.0]), failed];
        let got = best(&all);
        assert_eq!((got[0]["test"].as_str(), got[0]["threads"].as_u64()), (Some("read"), Some(1)));
        assert_eq!((got[1]["test"].as_str(), got[1]["threads"].as_u64()), (Some("write"), Some(2)));
        let h = heat("t", SHAPE, &all);
        assert_eq!(h.panels.iter().map(|p| p.cells.len()).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(h.panels[0].cells[&(9, 60)], None);
        assert_eq!(csv(SHAPE, &all).lines().count(), 6);
        assert_eq!(Measured::of("w", 0.0, Vec::new()).min, 0.0);
    }
}
