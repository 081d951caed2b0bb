//! The views of `nacre top`: what two looks at everything make of it. Pure.

use crate::command::jobs::{Done, Jobs};
use crate::rates::{self, Times, Totals};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What is known of a target besides what it counts.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Facts {
    /// `up`, `recovering`, `away`, …
    pub state: String,
    pub used: u64,
    pub available: u64,
}

/// One look at everything. What was not asked for is empty.
#[derive(Clone, Default, Debug)]
pub struct Look {
    pub at_ns: u64,
    pub wall_s: i64,
    /// By labels.
    pub facts: BTreeMap<String, Facts>,
    pub totals: BTreeMap<String, Totals>,
    /// Times of reads and writes of OSTs.
    pub times: BTreeMap<String, [Times; 2]>,
    pub jobs: BTreeMap<String, Jobs>,
    /// By target and address.
    pub clients: BTreeMap<(String, String), Totals>,
    /// Targets that were asked and said nothing.
    pub missing: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum View {
    Targets,
    Jobs,
    Clients,
    Latencies,
}

/// What a column holds, and so how it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Text,
    /// Bytes a second.
    Bytes,
    /// A second.
    Rate,
    /// Microseconds.
    Time,
    Percent,
    Count,
    /// Operations by their names, a second: takes what room is left.
    Operations,
}

/// One column of a view.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name in JSON and of `--sort`.
    pub key: &'static str,
    pub heading: &'static str,
    /// The least that it takes on the screen.
    pub width: usize,
    pub kind: Kind,
}

const fn column(key: &'static str, heading: &'static str, width: usize, kind: Kind) -> Column {
    Column { key, heading, width, kind }
}

const TARGETS: &[Column] = &[
    column("target", "TARGET", 14, Kind::Text),
    column("state", "STATE", 10, Kind::Text),
    column("full_percent", "FULL", 4, Kind::Percent),
    column("read_bytes_per_s", "READ/s", 7, Kind::Bytes),
    column("write_bytes_per_s", "WRITTEN/s", 9, Kind::Bytes),
    column("io_per_s", "IOPS", 6, Kind::Rate),
    column("metadata_per_s", "META/s", 6, Kind::Rate),
    column("mean_us", "MEAN", 6, Kind::Time),
    column("p99_us", "P99", 6, Kind::Time),
    column("operations_per_s", "OPERATIONS/s", 12, Kind::Operations),
];

const JOBS: &[Column] = &[
    column("job_id", "JOB", 24, Kind::Text),
    column("fsname", "FS", 8, Kind::Text),
    column("ops_per_s", "OPS/s", 7, Kind::Rate),
    column("read_bytes_per_s", "READ/s", 7, Kind::Bytes),
    column("write_bytes_per_s", "WRITTEN/s", 9, Kind::Bytes),
    column("operations_per_s", "OPERATIONS/s", 12, Kind::Operations),
];

const CLIENTS: &[Column] = &[
    column("nid", "CLIENT", 24, Kind::Text),
    column("targets", "TARGETS", 7, Kind::Count),
    column("ops_per_s", "OPS/s", 7, Kind::Rate),
    column("read_bytes_per_s", "READ/s", 7, Kind::Bytes),
    column("write_bytes_per_s", "WRITTEN/s", 9, Kind::Bytes),
    column("operations_per_s", "OPERATIONS/s", 12, Kind::Operations),
];

const LATENCIES: &[Column] = &[
    column("target", "TARGET", 20, Kind::Text),
    column("operation", "OPERATION", 16, Kind::Text),
    column("ops_per_s", "OPS/s", 8, Kind::Rate),
    column("mean_us", "MEAN", 8, Kind::Time),
    column("p99_us", "P99", 8, Kind::Time),
    column("busy_percent", "OF ITS TIME", 11, Kind::Percent),
];

/// A value of a row.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    Text(String),
    /// Not known without one.
    Number(Option<f64>),
    Operations(BTreeMap<String, f64>),
}

/// As many cells as the view has columns.
pub type Row = Vec<Cell>;

impl View {
    pub const ALL: [View; 4] = [View::Targets, View::Jobs, View::Clients, View::Latencies];

    pub fn name(self) -> &'static str {
        match self {
            View::Targets => "targets",
            View::Jobs => "jobs",
            View::Clients => "clients",
            View::Latencies => "latencies",
        }
    }

    pub fn parse(text: &str) -> Option<View> {
        View::ALL.into_iter().find(|v| v.name() == text)
    }

    pub fn columns(self) -> &'static [Column] {
        match self {
            View::Targets => TARGETS,
            View::Jobs => JOBS,
            View::Clients => CLIENTS,
            View::Latencies => LATENCIES,
        }
    }

    /// By which column its rows are in order, unless somebody says another.
    pub fn order(self) -> Order {
        let key = if self == View::Targets { "target" } else { "ops_per_s" };
        let column = self.columns().iter().position(|c| c.key == key).expect("a key of the table");
        Order { column, reversed: false }
    }
}

/// By which column rows are in order: words from A, numbers from the largest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    pub column: usize,
    pub reversed: bool,
}

fn is_mdt(label: &str) -> bool {
    label.contains("-MDT")
}

/// `demo` of `demo-OST0000`.
fn fsname(label: &str) -> &str {
    label.rsplit_once('-').map_or(label, |(f, _)| f)
}

/// The rates between two looks.
pub struct Between<'a> {
    before: &'a Look,
    now: &'a Look,
    pub seconds: f64,
}

impl<'a> Between<'a> {
    pub fn new(before: &'a Look, now: &'a Look) -> Between<'a> {
        assert!(now.at_ns >= before.at_ns, "time does not go back");
        let ns = now.at_ns.saturating_sub(before.at_ns).max(1_000_000);
        Between { before, now, seconds: ns as f64 / 1e9 }
    }

    fn per(&self, n: u64) -> Cell {
        Cell::Number(Some(n as f64 / self.seconds))
    }

    fn done(&self, label: &str) -> Option<Totals> {
        self.now.totals.get(label)?.since(self.before.totals.get(label)?)
    }

    fn operations(&self, t: &Totals) -> Cell {
        let each = |(n, t): (&str, rates::Timed)| (n.to_string(), t.count as f64 / self.seconds);
        Cell::Operations(t.by_name().into_iter().map(each).collect())
    }

    /// What took longest of reads (0) and of writes (1), or of both.
    fn p99(&self, label: &str, sides: std::ops::Range<usize>) -> Option<f64> {
        let (now, before) = (self.now.times.get(label)?, self.before.times.get(label)?);
        let together = |of: &[Times; 2]| {
            let mut all = Times::new();
            of[sides.clone()].iter().flatten().for_each(|(ms, n)| {
                let at = all.entry(*ms).or_default();
                *at = at.saturating_add(*n);
            });
            all
        };
        rates::p99_us(&together(now), &together(before))
    }

    fn targets(&self) -> Vec<Row> {
        let mut labels: Vec<&String> = self.now.facts.keys().chain(self.now.totals.keys()).collect();
        labels.sort();
        labels.dedup();
        labels.into_iter().map(|l| self.target(l)).collect()
    }

    fn target(&self, label: &str) -> Row {
        let facts = self.now.facts.get(label);
        let room = facts.map(|f| (f.used, f.used.saturating_add(f.available))).filter(|(_, all)| *all > 0);
        let full = room.map(|(used, all)| used as f64 * 100.0 / all as f64);
        let done = self.done(label);
        let rate = |n: Option<u64>| Cell::Number(n.map(|n| n as f64 / self.seconds));
        let (d, is_mdt) = (done.as_ref(), is_mdt(label));
        let mean = d.and_then(|d| {
            let mut bulk = d.reads;
            bulk.add(d.writes);
            if is_mdt { d.metadata_all().mean_us() } else { bulk.mean_us() }
        });
        vec![
            Cell::Text(label.to_string()),
            Cell::Text(facts.map_or("–", |f| f.state.as_str()).to_string()),
            Cell::Number(full),
            rate(d.map(|d| d.read_bytes)),
            rate(d.map(|d| d.write_bytes)),
            rate(d.map(|d| d.reads.count.saturating_add(d.writes.count))),
            if is_mdt { rate(d.map(|d| d.metadata_all().count)) } else { Cell::Number(None) },
            Cell::Number(mean),
            Cell::Number(self.p99(label, 0..2)),
            d.map_or(Cell::Operations(BTreeMap::new()), |d| self.operations(d)),
        ]
    }

    /// What jobs did, by file system and job, on targets of which both looks are there: what another one
    /// counted before was not done now.
    fn jobs(&self) -> Vec<Row> {
        let (none, mut all) = (Done::default(), BTreeMap::<(&str, &str), Done>::new());
        for (label, jobs) in &self.now.jobs {
            let Some(before) = self.before.jobs.get(label) else { continue };
            for (id, done) in jobs {
                let done = done.since(before.get(id).unwrap_or(&none));
                all.entry((fsname(label), id)).or_default().add(&done);
            }
        }
        all.retain(|_, d| d.ops() > 0);
        let each = |((fs, id), d): ((&str, &str), Done)| {
            let operations = d.operations.iter().filter(|(_, n)| **n > 0);
            let operations = operations.map(|(n, c)| (n.clone(), *c as f64 / self.seconds)).collect();
            vec![
                Cell::Text(id.to_string()),
                Cell::Text(fs.to_string()),
                self.per(d.ops()),
                self.per(d.read_bytes),
                self.per(d.write_bytes),
                Cell::Operations(operations),
            ]
        };
        all.into_iter().map(each).collect()
    }

    fn clients(&self) -> Vec<Row> {
        let mut all: BTreeMap<&str, (u64, Totals)> = BTreeMap::new();
        for (at, t) in &self.now.clients {
            let (targets, done) = all.entry(&at.1).or_default();
            *targets = targets.saturating_add(1);
            if let Some(d) = self.before.clients.get(at).and_then(|b| t.since(b)) {
                done.add(&d);
            }
        }
        let each = |(nid, (targets, d)): (&str, (u64, Totals))| {
            vec![
                Cell::Text(nid.to_string()),
                Cell::Number(Some(targets as f64)),
                self.per(d.all().count),
                self.per(d.read_bytes),
                self.per(d.write_bytes),
                self.operations(&d),
            ]
        };
        all.into_iter().map(each).collect()
    }

    fn latencies(&self) -> Vec<Row> {
        let mut out = Vec::new();
        for label in self.now.totals.keys() {
            let Some(done) = self.done(label) else { continue };
            for (name, t) in done.by_name() {
                let p99 = match name {
                    "read" => self.p99(label, 0..1),
                    "write" => self.p99(label, 1..2),
                    _ => None,
                };
                out.push(vec![
                    Cell::Text(label.clone()),
                    Cell::Text(name.to_string()),
                    self.per(t.count),
                    Cell::Number(t.mean_us()),
                    Cell::Number(p99),
                    Cell::Number(Some(t.us as f64 / self.seconds / 10_000.0)),
                ]);
            }
        }
        out
    }

    pub fn rows(&self, view: View) -> Vec<Row> {
        let rows = match view {
            View::Targets => self.targets(),
            View::Jobs => self.jobs(),
            View::Clients => self.clients(),
            View::Latencies => self.latencies(),
        };
        assert!(rows.iter().all(|r| r.len() == view.columns().len()), "a cell for each column");
        rows
    }

    /// What all targets did together: of those that both looks have.
    pub fn together(&self) -> Totals {
        let mut all = Totals::default();
        self.now.totals.keys().filter_map(|l| self.done(l)).for_each(|d| all.add(&d));
        all
    }
}

/// Puts rows in order and keeps those that have the words somewhere, in capitals or not.
pub fn chosen(mut rows: Vec<Row>, order: Order, words: &str) -> Vec<Row> {
    let words = words.to_lowercase();
    rows.retain(|r| {
        let has = |c: &Cell| matches!(c, Cell::Text(t) if t.to_lowercase().contains(&words));
        words.is_empty() || r.iter().any(has)
    });
    let number = |c: &Cell| match c {
        Cell::Number(n) => n.unwrap_or(-1.0),
        Cell::Operations(all) => all.values().sum(),
        Cell::Text(_) => 0.0,
    };
    // What is equal stays as the names have it.
    rows.sort_by(|a, b| {
        let (a, b) = (&a[order.column], &b[order.column]);
        let o = match (a, b) {
            (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
            _ => number(b).total_cmp(&number(a)),
        };
        if order.reversed { o.reverse() } else { o }
    });
    rows
}

/// Numbers of JSON have three digits behind the point, which is more than is known.
fn rounded(n: f64) -> Value {
    json!((n * 1000.0).round() / 1000.0)
}

/// A row as programs read it.
pub fn as_json(view: View, row: &Row) -> Value {
    let value = |c: &Cell| match c {
        Cell::Text(t) => json!(t),
        Cell::Number(n) => n.map_or(Value::Null, rounded),
        Cell::Operations(all) => {
            Value::Object(all.iter().map(|(n, v)| (n.clone(), rounded(*v))).collect::<Map<_, _>>())
        }
    };
    let columns = view.columns().iter().map(|c| c.key.to_string());
    Value::Object(columns.zip(row.iter().map(value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at_s: u64, times: u64) -> Look {
        let mdt = format!("create {} samples [usecs] 1 9 {} 0\n", times * 10, times * 1000);
        let ost = format!(
            "write_bytes {0} samples [bytes] 1 9 {1} 0\nwrite {0} samples [usecs] 1 9 {2} 0\n",
            times * 2,
            times * 2_000_000,
            times * 8000
        );
        let job = |n: u64| {
            let operations = BTreeMap::from([("write".to_string(), n)]);
            Jobs::from([("dd.0".into(), Done { operations, read_bytes: 0, write_bytes: n * 1000 })])
        };
        let of = |label: &str, text: &str| (label.to_string(), Totals::of(label, text));
        Look {
            at_ns: at_s * 1_000_000_000,
            totals: BTreeMap::from([of("d-MDT0000", &mdt), of("d-OST0000", &ost)]),
            facts: BTreeMap::from([
                ("d-OST0000".into(), Facts { state: "up".into(), used: 30, available: 70 }),
                ("d-OST0001".into(), Facts { state: "away".into(), ..Facts::default() }),
            ]),
            times: BTreeMap::from([("d-OST0000".into(), [Times::new(), Times::from([(4, times * 2)])])]),
            jobs: BTreeMap::from([
                ("d-OST0000".into(), job(times * 4)),
                (format!("d-OST000{}", times + 2), job(1000)),
            ]),
            clients: BTreeMap::from([(("d-OST0000".into(), "10.0.0.1@tcp".into()), Totals::of("x", &ost))]),
            ..Look::default()
        }
    }

    fn rows(view: View) -> Vec<Value> {
        let (a, b) = (look(10, 1), look(12, 5));
        let rows = Between::new(&a, &b).rows(view);
        chosen(rows, view.order(), "").iter().map(|r| as_json(view, r)).collect()
    }

    #[test]
    fn two_looks_are_rates_of_each_target() {
        let all = rows(View::Targets);
        assert_eq!(
            all[0],
            json!({"target": "d-MDT0000", "state": "–", "full_percent": null, "read_bytes_per_s": 0.0,
                   "write_bytes_per_s": 0.0, "io_per_s": 0.0, "metadata_per_s": 20.0, "mean_us": 100.0,
                   "p99_us": null, "operations_per_s": {"create": 20.0}})
        );
        assert_eq!(
            all[1],
            json!({"target": "d-OST0000", "state": "up", "full_percent": 30.0, "read_bytes_per_s": 0.0,
                   "write_bytes_per_s": 4_000_000.0, "io_per_s": 4.0, "metadata_per_s": null,
                   "mean_us": 4000.0, "p99_us": 4000.0, "operations_per_s": {"write": 4.0}})
        );
        assert_eq!((&all[2]["state"], &all[2]["io_per_s"]), (&json!("away"), &Value::Null));
    }

    #[test]
    fn jobs_and_clients_did_what_targets_of_both_looks_say() {
        assert_eq!(
            rows(View::Jobs),
            [json!({"job_id": "dd.0", "fsname": "d", "ops_per_s": 8.0, "read_bytes_per_s": 0.0,
                    "write_bytes_per_s": 8000.0, "operations_per_s": {"write": 8.0}})],
            "what a target counted that came later was done before"
        );
        assert_eq!(
            rows(View::Clients),
            [json!({"nid": "10.0.0.1@tcp", "targets": 1.0, "ops_per_s": 4.0, "read_bytes_per_s": 0.0,
                    "write_bytes_per_s": 4_000_000.0, "operations_per_s": {"write": 4.0}})]
        );
        let all = rows(View::Latencies);
        assert_eq!((all.len(), &all[0]["operation"]), (2, &json!("create")));
        assert_eq!(
            all[1],
            json!({"target": "d-OST0000", "operation": "write", "ops_per_s": 4.0, "mean_us": 4000.0,
                   "p99_us": 4000.0, "busy_percent": 1.6})
        );
        let (a, b) = (look(10, 1), look(12, 5));
        let all = Between::new(&a, &b).together();
        assert_eq!((all.write_bytes, all.metadata_all().count), (8_000_000, 40));
    }

    #[test]
    fn rows_are_in_the_order_that_is_asked_for() {
        let (a, b) = (look(10, 1), look(12, 5));
        let names = |order: Order, words: &str| {
            let rows = chosen(Between::new(&a, &b).rows(View::Targets), order, words);
            rows.into_iter().map(|r| r[0].clone()).collect::<Vec<_>>()
        };
        let text = |t: &str| Cell::Text(t.to_string());
        let [mdt, ost, gone] = ["d-MDT0000", "d-OST0000", "d-OST0001"].map(text);
        let by_name = View::Targets.order();
        assert_eq!(names(by_name, ""), [mdt.clone(), ost.clone(), gone.clone()]);
        let reversed = Order { reversed: true, ..by_name };
        assert_eq!(names(reversed, "ost"), [gone.clone(), ost.clone()]);
        assert_eq!(names(by_name, "AWAY"), [gone]);
        let written = Order { column: 4, reversed: false };
        assert_eq!(names(written, "d-")[0], ost, "the largest first, and what is not known last");
        assert_eq!(View::parse("jobs"), Some(View::Jobs));
        assert_eq!(View::parse("x"), None);
    }
}
